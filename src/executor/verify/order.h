// What of a run would be the same in any other: which transfers wait for which others, through messages. Parts of a
// rank share its buffers, so what they find there is certain only where this order is.
//
// Only messages count, not free slots: what holds does so for any number of slots.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithm/replay.h"
#include "executor/verify/finding.h"

namespace nitinol::verify {

class Order {
 public:
  Order(const algorithm::Program& program, int slots);

  /// Takes note of a transfer as it happens.
  void note(const algorithm::Replay& replay, const algorithm::Replay::Event& event);

  /// Adds a finding for each rank of which two parts touch the same elements, at least one writes them, and neither
  /// waits for the other; only of transfers that were noted. At most so many.
  void check(bool in_place, size_t most_findings, Report& report);

 private:
  struct Transfer {
    int process = 0;
    uint32_t previous = 0;  ///< of the process
    size_t sources = 0;     ///< the first of those in sources_, which reach up to the next transfer's
    uint32_t seen = 0;      ///< by which search
  };

  void check_rank(int rank, bool in_place, Report& report);
  uint32_t number_of(int process, size_t step) const { return numbers_[first_[process] + step]; }
  bool certain(uint32_t one, uint32_t other);
  bool waits_for(uint32_t later, uint32_t earlier);

  const algorithm::Program& program_;
  size_t slots_;
  std::vector<Transfer> transfers_;  ///< in the order in which they happened; number 0 is none
  std::vector<uint32_t> sources_;    ///< numbers of the transfers whose messages were taken
  std::vector<size_t> first_;        ///< by process: where its steps' numbers stand
  std::vector<uint32_t> numbers_;    ///< 0: not yet
  std::vector<uint32_t> senders_;    ///< connection * slots + message % slots -> who sent it
  std::vector<uint32_t> to_do_;      ///< of a search
  uint32_t searches_ = 0;
};

}  // namespace nitinol::verify
