// Short names for launches, under which kernels can tell in what they are: a word is all that they have time for.
//
// Names of what was captured into graphs last as long as the communicator, as graphs may; alike launches have the same.
// Others lead to their launch until many more have come, more than fit into the queue of a stream.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "executor/rank_set.h"
#include "model/signature.h"

namespace nitinol {

/// One kernel: some collectives, or messages.
struct NamedLaunch {
  static constexpr size_t kMost = 8;
  std::array<Signature, kMost> collectives{};  ///< without numbers
  size_t count = 0;                            ///< of those; 0: messages
  RankSet sends_to{};                          ///< messages: to whom there are any, as far as is known
  RankSet receives_from{};
  friend bool operator==(const NamedLaunch&, const NamedLaunch&) = default;

  void add(const Signature& collective) { collectives[count++] = collective; }
  /// A bit for each of the collectives, of its tag.
  uint64_t works() const;
};

class CallNames {
 public:
  /// The lowest bits of a name are free for a number: which of the collectives it is.
  static constexpr int kFreeBits = 3;
  static constexpr uint32_t kUnknown = 0;
  static_assert(NamedLaunch::kMost <= 1 << kFreeBits);

  /// By the thread that launches. kUnknown once too many are captured.
  uint32_t name(const NamedLaunch& launch, bool captured);

  struct Call {
    NamedLaunch launch;
    size_t which = 0;  ///< of its collectives
  };
  /// Any thread. Nothing for a name that was not given, or of a launch too long ago.
  std::optional<Call> find(uint32_t name) const;

 private:
  static constexpr uint32_t kNotCaptured = 1U << 31;
  static constexpr size_t kMostCaptured = 1 << 16;
  static constexpr size_t kRecent = 2048;

  uint32_t name_captured(const NamedLaunch& launch);

  mutable std::mutex mutex_;
  std::deque<NamedLaunch> captured_;
  std::unordered_multimap<uint64_t, uint32_t> numbers_;  ///< of those, by their works and peers
  struct Recent {
    uint32_t number = 0;  ///< as in the name; from 1 on
    NamedLaunch launch;
  };
  std::vector<Recent> recent_;  ///< a ring
  uint32_t launches_ = 0;
};

}  // namespace nitinol
