// NITINOL_TIMEOUT: ranks for which a rank's kernels have waited for longer than that. Kernels leave a note of whom they
// have waited for too long, and wait on until they are told to end, but no longer than waiting.h says.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/attendance.h"
#include "executor/call_words.h"
#include "executor/cuda/domain.h"
#include "executor/kernel_waits.h"

namespace nitinol::cuda {

/// After so long without an answer a peer is taken for one that gives none.
inline constexpr std::chrono::milliseconds kPatienceWithAnswers{300};

/// Those of whom there is a note.
std::vector<int> ranks_noted_as_late(const Domain& domain);

/// What all others are asked at the same time: what they are doing.
class Question {
 public:
  /// Whether all have answered, or are not going to. Asks them if nobody has.
  bool is_over(const CallBoard& board, int asker);
  bool is_answered(const CallBoard& board, int peer) const;
  void forget() { numbers_.clear(); }

 private:
  std::vector<uint64_t> numbers_;  ///< by peer; empty: they were not asked
  std::chrono::steady_clock::time_point asked_at_{};
};

class LateRanks {
 public:
  explicit LateRanks(const Domain& domain) : domain_(domain), rank_(domain.setup().rank), ranks_(domain.ranks()) {}

  /// Any thread; 0: no limit.
  void set_timeout(std::chrono::milliseconds timeout);
  std::chrono::milliseconds timeout() const { return timeout_; }

  // By the looking thread:
  /// Whether this process had been stopped until now: kernels ran on meanwhile and may have noted ranks as late that
  /// had been stopped with it. Their clocks begin anew. Not if they have given up since.
  bool is_just_back();
  /// Starting up a GPU takes long on large machines, and has nothing to do with what an operation may take: kernels'
  /// clocks begin when all ranks that are on their way have arrived.
  void adjust_patience(const CallBoard& board);
  /// Who is late, once all have been asked what they are doing. Null: there is no board.
  std::optional<std::string> look(const CallBoard* board);
  /// For the log, once for each wait of so long: who is waited for, and what all do. To be called at each look.
  std::optional<std::string> take_warning(const CallBoard& board, const KernelWait& wait,
                                          std::chrono::milliseconds waited);

 private:
  uint32_t units_of_patience() const;
  bool is_setting_up(const CallBoard& board, int rank) const;
  std::string sentence_without_board(const std::vector<int>& noted) const;
  /// For whom this rank waits, and since when.
  struct Wait {
    std::vector<int> ranks;
    std::chrono::milliseconds waited;
    Delay delay;
    const Question& question;
  };
  std::string sentence(const CallBoard& board, const Wait& wait) const;
  std::string sentence_of_collective(const CallBoard& board, const Wait& wait) const;
  std::string no_progress(const Wait& wait, const std::string& what, const std::string& doings) const;
  /// And of each the first message that waits for it, or what its kernels wait for.
  enum class Also { kNothing, kMessages, kKernelWaits };
  std::string doings_of(const CallBoard& board, const std::vector<int>& ranks, const Question& question,
                        Also also = Also::kNothing) const;

  const Domain& domain_;
  const int rank_;
  const int ranks_;
  std::atomic<std::chrono::milliseconds> timeout_{};
  std::optional<std::chrono::steady_clock::time_point> set_up_since_;  ///< since when some rank is setting things up
  Attendance attendance_;
  std::optional<std::chrono::steady_clock::time_point> forgives_until_;  ///< what kernels have noted meanwhile
  Question question_;                                                    ///< once somebody is late
  Question question_for_warning_;
  bool warned_ = false;  ///< of the wait that goes on
};

}  // namespace nitinol::cuda
