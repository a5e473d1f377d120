// What strangers write into memory that ranks share: pieces of the input, each with whose part it goes to and where.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "executor/call_board.h"

namespace nitinol::fuzz {

inline constexpr int kMostRanks = 8;

/// From 2 to kMostRanks.
inline int ranks_from(uint8_t byte) { return 2 + byte % (kMostRanks - 1); }

/// Any rank but 0, which is the fuzz target's own.
inline int stranger_from(uint8_t byte, int ranks) { return 1 + byte % (ranks - 1); }

/// Takes pieces off the input: the rank, its words before the piece (two bytes), the length, the bytes.
class Scribbler {
 public:
  Scribbler(const CallBoard& board, std::span<const uint8_t> input) : board_(board), input_(input) {}

  /// False if none is left.
  bool write_one() {
    if (input_.size() < kHead) return false;
    const int stranger = stranger_from(input_[0], board_.ranks());
    const size_t most = CallBoard::bytes_for(board_.ranks()) / static_cast<size_t>(board_.ranks());
    const size_t target = (input_[1] | static_cast<size_t>(input_[2]) << 8) * 8 % most;
    const size_t bytes = std::min({static_cast<size_t>(input_[3]), input_.size() - kHead, most - target});
    auto* const theirs = reinterpret_cast<std::byte*>(&board_.page(stranger));
    std::memcpy(theirs + target, input_.data() + kHead, bytes);
    input_ = input_.subspan(kHead + bytes);
    return true;
  }

 private:
  static constexpr size_t kHead = 4;
  const CallBoard& board_;
  std::span<const uint8_t> input_;
};

}  // namespace nitinol::fuzz
