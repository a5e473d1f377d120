// What all ranks of a communicator must agree on in a call, as a value that can be compared, and told to people.
#pragma once

#include <cstdint>
#include <string>

#include "model/plan.h"

namespace nitinol {

/// One collective as far as all ranks must agree on it.
struct Signature {
  uint64_t sequence = 0;  ///< collectives of the communicator are counted from 1, in the order in which they run
  uint64_t count = 0;     ///< in the executor's elements
  uint64_t call = 0;      ///< what is called, packed
  friend bool operator==(const Signature&, const Signature&) = default;

  static Signature of(const CollectiveWork& work, uint64_t sequence) {
    uint64_t call = static_cast<uint64_t>(work.what) | static_cast<uint64_t>(work.stated) << 8;
    if (reduces(work.what)) {
      call |= static_cast<uint64_t>(work.reduction.combine) << 16;
      if (work.reduction.average) call |= kAverage;
      if (work.reduction.scalar != Reduction::Scalar::kNone) call |= kScaled;
    }
    if (rooted(work.what)) call |= static_cast<uint64_t>(static_cast<uint32_t>(work.root)) << 32;
    return {sequence, work.count, call};
  }

  /// 24 bits in which two that differ hardly ever agree. Every collective computes it: the highest bits of three
  /// products, which take the processor no longer than one.
  uint32_t tag() const {
    return static_cast<uint32_t>(
        (sequence * 0x9e3779b97f4a7c15U + count * 0xc2b2ae3d27d4eb4fU + call * 0x165667b19e3779f9U) >> 40);
  }
  /// Whether rank `waiting` cannot be through with the call before rank `other` has begun it.
  bool needs(int waiting, int other) const;
  /// "AllReduce number 5 (count 100, type float32, op sum)"; without a number if the sequence is 0.
  std::string text() const;

  static constexpr uint64_t kAverage = 1 << 24;
  static constexpr uint64_t kScaled = 1 << 25;
};

/// One send or receive as far as both its ends must agree on it.
struct MessageSignature {
  uint64_t number = 0;  ///< messages from one rank to another are counted from 1; 0: not known
  uint64_t bytes = 0;
  DataType type = DataType::kUint8;

  /// Bytes and type, which must be the same at both ends.
  uint64_t packed() const { return (bytes & kBytes) | static_cast<uint64_t>(type) << kTypeShift; }
  static MessageSignature unpacked(uint64_t number, uint64_t packed) {  // a peer's memory may hold anything
    return {number, packed & kBytes, static_cast<DataType>((packed >> kTypeShift) % kDataTypes)};
  }
  /// The tag on the pieces of the message.
  uint32_t tag() const { return Signature{0, packed(), 0}.tag(); }
  /// "Send number 3 to rank 1 (count 100, type float32)".
  std::string text(bool sends, int peer) const;

  static constexpr int kTypeShift = 56;
  static constexpr uint64_t kBytes = (uint64_t{1} << kTypeShift) - 1;
};

/// A send to a peer, or a receive from it.
struct PeerMessage {
  bool sends = false;
  int peer = 0;
  MessageSignature message{};
  std::string text() const { return message.text(sends, peer); }
};

}  // namespace nitinol
