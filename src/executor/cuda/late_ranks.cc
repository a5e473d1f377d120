#include "executor/cuda/late_ranks.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "base/process_state.h"
#include "executor/call_check.h"
#include "executor/call_words.h"
#include "executor/kernel_waits.h"

namespace nitinol::cuda {

namespace {

/// Kernels whose time is up wait for their host a little longer than that (waiting.h).
constexpr std::chrono::seconds kKernelsGiveUpAfter{10};

/// Kernels look at what the host tells them every few milliseconds.
constexpr std::chrono::milliseconds kForKernelsToNotice{200};

/// "its kernels wait in AllReduce (count 100, type float32, op sum) for rank 1 and rank 2".
std::string text_of_kernel_wait(const KernelWait& wait) {
  if (!wait.any()) return "its kernels wait for nobody";
  std::string ranks;
  for (int rank = 0; rank < kMaxRanks; ++rank) {
    if (wait.is_for(rank)) ranks += formatted("{}rank {}", ranks.empty() ? "" : " and ", rank);
  }
  return formatted("its kernels wait in {} for {}", wait.text(), ranks);
}

}  // namespace

std::vector<int> ranks_noted_as_late(const Domain& domain) {
  std::vector<int> noted;
  for (int peer = 0; peer < domain.ranks(); ++peer) {
    if (domain.signals().late[peer] != 0) noted.push_back(peer);
  }
  return noted;
}

bool Question::is_over(const CallBoard& board, int asker) {
  if (numbers_.empty()) {
    asked_at_ = std::chrono::steady_clock::now();
    std::vector<uint64_t> numbers;
    numbers.reserve(static_cast<size_t>(board.ranks()));
    for (int peer = 0; peer < board.ranks(); ++peer) numbers.push_back(board.page(peer).asked.fetch_add(1) + 1);
    numbers_ = std::move(numbers);
    return false;
  }
  if (std::chrono::steady_clock::now() - asked_at_ >= kPatienceWithAnswers) return true;
  for (int peer = 0; peer < board.ranks(); ++peer) {
    if (peer != asker && !is_answered(board, peer)) return false;
  }
  return true;
}

bool Question::is_answered(const CallBoard& board, int peer) const {
  return board.page(peer).answered.load() >= numbers_[static_cast<size_t>(peer)];
}

void LateRanks::set_timeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  domain_.signals().patience = units_of_patience();
}

/// The timeout in the units that kernels count in, at least one; 0: for ever.
uint32_t LateRanks::units_of_patience() const {
  const std::chrono::milliseconds timeout = timeout_;
  if (timeout.count() <= 0) return 0;
  const int64_t units = (timeout.count() * 1'000'000 >> 20) + 1;
  return static_cast<uint32_t>(std::min<int64_t>(units, std::numeric_limits<int32_t>::max()));
}

bool LateRanks::is_just_back() {
  const auto now = std::chrono::steady_clock::now();
  const auto missed = attendance_.missed(now);
  if (missed.count() > 0 && missed < kKernelsGiveUpAfter) forgives_until_ = now + kForKernelsToNotice;
  if (!forgives_until_) return false;
  const bool forgives = now < *forgives_until_;
  volatile Signals& signals = domain_.signals();
  signals.patience = forgives ? 0 : units_of_patience();
  for (int peer = 0; peer < ranks_; ++peer) signals.late[peer] = 0;
  if (!forgives) forgives_until_.reset();
  return forgives;
}

void LateRanks::adjust_patience(const CallBoard& board) {
  uint32_t wanted = units_of_patience();
  if (wanted != 0) {
    bool set_up = false;
    for (int rank = 0; rank < ranks_ && !set_up; ++rank) set_up = is_setting_up(board, rank);
    const auto now = std::chrono::steady_clock::now();
    if (!set_up) set_up_since_.reset();
    if (set_up && !set_up_since_) set_up_since_ = now;
    if (set_up && now - *set_up_since_ < domain_.setup().set_up_timeout) wanted = 0;
  }
  volatile uint32_t& patience = domain_.signals().patience;
  if (patience != wanted) patience = wanted;
}

/// And comes to an end with it: the process is not stopped.
bool LateRanks::is_setting_up(const CallBoard& board, int rank) const {
  if (board.page(rank).setting_up.load(std::memory_order_acquire) == 0) return false;
  const Peer& who = domain_.setup().peers[static_cast<size_t>(rank)];
  return rank == rank_ || process_state(who.pid, who.pid_namespace) != ProcessState::kStopped;
}

std::optional<std::string> LateRanks::look(const CallBoard* board) {
  const std::vector<int> noted = ranks_noted_as_late(domain_);
  if (noted.empty()) return std::nullopt;
  if (board == nullptr) return sentence_without_board(noted);
  if (!question_.is_over(*board, rank_)) return std::nullopt;
  return sentence(*board, {noted, timeout_, Delay::kOver, question_});
}

std::optional<std::string> LateRanks::take_warning(const CallBoard& board, const KernelWait& wait,
                                                   std::chrono::milliseconds waited) {
  const auto due = domain_.setup().warn_after;
  const bool is_long = due.count() > 0 && waited >= due;
  if (!is_long) {
    question_for_warning_.forget();
    warned_ = false;
  }
  if (!is_long || warned_ || !question_for_warning_.is_over(board, rank_)) return std::nullopt;
  warned_ = true;
  std::vector<int> ranks;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (wait.is_for(peer)) ranks.push_back(peer);
  }
  return sentence(board, {std::move(ranks), waited, Delay::kGoesOn, question_for_warning_});
}

/// What the system says about the processes.
std::string LateRanks::sentence_without_board(const std::vector<int>& noted) const {
  const ExecutorSetup& setup = domain_.setup();
  std::string states;
  for (const int rank : noted) {
    const Peer& who = setup.peers[static_cast<size_t>(rank)];
    const ProcessState state = process_of(who, setup.peers[static_cast<size_t>(rank_)]);
    states += formatted("{}{}: {}", states.empty() ? "" : "; ", describe_rank(rank, who), words_for(state));
  }
  return no_progress({noted, timeout_, Delay::kOver, question_}, "an operation makes", "nothing came from: " + states);
}

std::string LateRanks::sentence(const CallBoard& board, const Wait& wait) const {
  const CallPage& mine = board.page(rank_);
  if (mine.captures.load() != 0) {
    const KernelWait told = read_kernel_wait(mine).wait;
    const std::string what = told.any() ? told.text() + " makes" : "an operation makes";
    return no_progress(wait, what,
                       "nothing came from: " + doings_of(board, wait.ranks, wait.question, Also::kKernelWaits));
  }
  if (mine.in_messages.load() != 0) {
    return no_progress(wait, "sends and receives make",
                       "waiting for: " + doings_of(board, wait.ranks, wait.question, Also::kMessages));
  }
  return sentence_of_collective(board, wait);
}

/// Whoever has not even issued what this rank has is to blame, whether or not a kernel came to wait for it too; if
/// those who are waited for have, then others.
std::string LateRanks::sentence_of_collective(const CallBoard& board, const Wait& wait) const {
  const CallPage& mine = board.page(rank_);
  const uint64_t issued = mine.calls.last();
  const auto that_makes = [&](uint64_t number) {
    const auto call = mine.calls.find(number);
    return (call ? call->text() : "a collective") + " makes";
  };
  std::vector<int> everybody(static_cast<size_t>(ranks_));
  std::iota(everybody.begin(), everybody.end(), 0);
  for (const std::vector<int>& candidates : {wait.ranks, everybody}) {
    uint64_t least = issued;
    for (const int peer : candidates) least = std::min(least, board.page(peer).calls.last());
    if (least == issued) continue;
    std::vector<int> behind;
    for (const int peer : everybody) {
      if (board.page(peer).calls.last() <= least) behind.push_back(peer);
    }
    return no_progress(wait, that_makes(least + 1), "not arrived: " + doings_of(board, behind, wait.question));
  }
  return no_progress(wait, that_makes(issued), "all have begun it: " + doings_of(board, wait.ranks, wait.question));
}

std::string LateRanks::no_progress(const Wait& wait, const std::string& what, const std::string& doings) const {
  return delay_sentence(rank_, what, wait.waited, wait.delay, doings);
}

/// What the ranks are doing.
std::string LateRanks::doings_of(const CallBoard& board, const std::vector<int>& ranks, const Question& question,
                                 Also also) const {
  const CallCheck words(board, domain_.setup().peers, rank_, domain_.room_for_messages());
  std::string text;
  for (const int peer : ranks) {
    const bool answered = question.is_answered(board, peer);
    const std::string message = also == Also::kMessages ? words.unmatched_message(peer) : "";
    text += (text.empty() ? "" : "; ") + message + (message.empty() ? "" : ", ") + words.doings_of(peer, answered);
    if (also == Also::kKernelWaits) text += ", " + text_of_kernel_wait(read_kernel_wait(board.page(peer)).wait);
  }
  return text;
}

}  // namespace nitinol::cuda
