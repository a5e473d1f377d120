// NITINOL_TIMEOUT: ranks for which a rank's kernels have waited for longer than that. Kernels leave a note of whom they
// have waited for too long, and wait on until they are told to end.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/attendance.h"
#include "executor/cuda/domain.h"

namespace nitinol::cuda {

/// After so long without an answer a peer is taken for one that gives none.
inline constexpr std::chrono::milliseconds kPatienceWithAnswers{300};

/// Those of whom there is a note.
std::vector<int> ranks_noted_as_late(const Domain& domain);

class LateRanks {
 public:
  explicit LateRanks(const Domain& domain) : domain_(domain), rank_(domain.setup().rank), ranks_(domain.ranks()) {}

  /// Any thread; 0: no limit.
  void set_timeout(std::chrono::milliseconds timeout);

  // By the looking thread:
  /// Whether this process had been stopped until now: kernels ran on meanwhile and may have noted ranks as late that
  /// had been stopped with it. Their clocks begin anew. Not if they have given up since.
  bool is_just_back();
  /// Starting up a GPU takes long on large machines, and has nothing to do with what an operation may take: kernels'
  /// clocks begin when all ranks that are on their way have arrived.
  void adjust_patience(const CallBoard& board);
  /// Who is late, once all have been asked what they are doing. Null: there is no board.
  std::optional<std::string> look(const CallBoard* board);

 private:
  uint32_t units_of_patience() const;
  bool is_setting_up(const CallBoard& board, int rank) const;
  void ask_all(const CallBoard& board);
  bool all_have_answered(const CallBoard& board) const;
  std::string sentence_without_board(const std::vector<int>& noted) const;
  std::string sentence(const CallBoard& board, const std::vector<int>& noted) const;
  std::string sentence_of_collective(const CallBoard& board, const std::vector<int>& noted) const;
  std::string no_progress(const std::string& what, const char* who, const std::string& doings) const;
  /// And of each the first message that waits for it, or what its kernels wait for.
  enum class Also { kNothing, kMessages, kKernelWaits };
  std::string doings_of(const CallBoard& board, const std::vector<int>& ranks, Also also = Also::kNothing) const;

  const Domain& domain_;
  const int rank_;
  const int ranks_;
  std::atomic<std::chrono::milliseconds> timeout_{};
  std::optional<std::chrono::steady_clock::time_point> set_up_since_;  ///< since when some rank is setting things up
  Attendance attendance_;
  std::optional<std::chrono::steady_clock::time_point> forgives_until_;  ///< what kernels have noted meanwhile
  std::vector<uint64_t> questions_;  ///< that the peers were asked; empty: they were not
  std::chrono::steady_clock::time_point asked_at_{};
};

}  // namespace nitinol::cuda
