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

  static Signature of(const CollectiveWork& work, uint64_t sequence);

  /// 24 bits in which two that differ hardly ever agree.
  uint32_t tag() const {
    uint64_t mix = (sequence * 0x9e3779b97f4a7c15U) ^ (count * 0xc2b2ae3d27d4eb4fU) ^ (call * 0x165667b19e3779f9U);
    mix ^= mix >> 29;
    mix *= 0xbf58476d1ce4e5b9U;
    return static_cast<uint32_t>(mix >> 40);
  }
  /// Whether rank `waiting` cannot be through with the call before rank `other` has begun it.
  bool needs(int waiting, int other) const;
  /// "AllReduce number 5 (count 100, type float32, op sum)"; without a number if the sequence is 0.
  std::string text() const;
};

/// The tag on the pieces of a message.
inline uint32_t message_tag(uint64_t bytes) { return Signature{0, bytes, 0}.tag(); }

}  // namespace nitinol
