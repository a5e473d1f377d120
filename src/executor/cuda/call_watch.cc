#include "executor/cuda/call_watch.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "base/log.h"
#include "device/guards.h"
#include "device/stream.h"
#include "executor/call_words.h"
#include "executor/collective_waits.h"
#include "executor/cuda/late_watch.h"
#include "executor/cuda/mismatch_tags.h"

namespace nitinol::cuda {

namespace {

/// Kernels that wait say so every few milliseconds.
constexpr std::chrono::milliseconds kBetweenLooksAtKernels{40};

/// Kernels have told for so long that they wait before anybody looks for dead processes.
constexpr std::chrono::milliseconds kLongWait{1000};

constexpr const char* kForgotten = "something that is too long ago to tell (NITINOL_CHECK=strict tells)";

}  // namespace

CallWatch::CallWatch(std::shared_ptr<Domain> domain)
    : domain_(std::move(domain)),
      rank_(domain_->setup().rank),
      ranks_(domain_->ranks()),
      progress_(*domain_, ranks_ > 1),
      late_ranks_(*domain_),
      kernel_wait_(domain_->signals(), names_) {
  if (ranks_ == 1) return;
  watch_ = start_watching([this] {
    settle_on(domain_->device());
    look();
  });
}

/// Whoever leaves may have been faster than the looking thread.
void CallWatch::stop() {
  const uint64_t watch = watch_.exchange(0);
  if (watch == 0) return;
  progress_.stop();
  stop_watching(watch);
  const bool is_aborted = domain_->signals().aborted != 0;
  try {
    if (is_aborted) note_end();
    if (!is_aborted && captured_) domain_->look_after_graphs(late_ranks_.timeout());
  } catch (const std::bad_alloc&) {  // nor is there any to say so
  } catch (const std::exception& error) {
    log_note("rank {}: {}: {}", rank_,
             is_aborted ? "while it looked how far its GPU has come" : "nobody looks at what its graphs wait for",
             error.what());
  }
}

bool CallWatch::meet() {
  if (ranks_ == 1 || !domain_->setup().check) return false;
  board_.store(domain_->reach_board(), std::memory_order_release);
  return true;
}

RaisedFlag CallWatch::announce(const Launch& launch, cudaStream_t stream) {
  const CallBoard* const board = board_.load(std::memory_order_relaxed);
  if (board == nullptr) return RaisedFlag(nullptr);
  if (!is_being_captured(stream)) announce_calls(*board, rank_, launch);
  return RaisedFlag(&board->page(rank_).setting_up);
}

void CallWatch::leave() {
  const CallBoard* const board = board_.load();
  if (board == nullptr) return;
  take_over_runs(*board);
  board->page(rank_).leaving.store(1, std::memory_order_release);
}

void CallWatch::note_waiting_to_call(const CollectiveWork* next) {
  const CallBoard* const board = board_.load(std::memory_order_relaxed);
  if (board != nullptr) nitinol::note_waiting_to_call(*board, rank_, next);
}

void CallWatch::wait_on_host(HostCall call, std::span<const int> ranks) {
  const CallBoard* const board = board_.load(std::memory_order_acquire);
  if (board == nullptr) return;
  for (const int other : ranks) board->host_call(rank_, other).store(call);
}

/// How far the GPU has come before the kernels notice is for the looking thread to see: nobody else is to wait for
/// CUDA.
void CallWatch::abort() {
  domain_->signals().aborted = 1;
  if (aborted_.exchange(true)) return;
  if (const CallBoard* const board = board_.load(std::memory_order_acquire)) {
    CallPage& page = board->page(rank_);
    page.through.store(std::numeric_limits<uint64_t>::max(), std::memory_order_release);
    page.stopped.store(1, std::memory_order_release);
    look_soon();
  }
}

Executor::DoingsOfPeer CallWatch::doings_of(int peer) {
  const CallBoard* const board = board_.load(std::memory_order_acquire);
  if (board == nullptr || peer == rank_) return {};
  CallPage& page = board->page(peer);
  const std::lock_guard lock(doings_mutex_);
  asked_for_doings_.resize(static_cast<size_t>(ranks_));
  Asked& asked = asked_for_doings_[static_cast<size_t>(peer)];
  const auto now = std::chrono::steady_clock::now();
  const bool answered = asked.question != 0 && page.answered.load(std::memory_order_acquire) >= asked.question;
  asked.answers = answered || (asked.answers && now - asked.at < kPatienceWithAnswers);
  const Doings doings = CallCheck(*board, domain_->setup().peers, rank_, 0).look_at(peer, asked.answers);
  if (answered || asked.question == 0) {
    asked.question = page.asked.fetch_add(1) + 1;
    asked.at = now;
  }
  return {words_for_doings(doings), doings.stopped};
}

std::vector<int> CallWatch::awaited() {
  const KernelWait wait = awaited_.read();
  std::vector<int> awaited;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (wait.is_for(peer)) awaited.push_back(peer);
  }
  return awaited;
}

/// Before the ranks have met none has called anything.
bool CallWatch::is_needed() const {
  const CallBoard* const board = board_.load(std::memory_order_acquire);
  if (board == nullptr) return ranks_ > 1 && !domain_->setup().check;
  return !CallCheck(*board, domain_->setup().peers, rank_, domain_->room_for_messages()).calls_match();
}

std::optional<std::string> CallWatch::difference_in_the_end() const {
  const CallBoard* const board = board_.load(std::memory_order_acquire);
  if (board == nullptr) return std::nullopt;
  const CallCheck check(*board, domain_->setup().peers, rank_, domain_->room_for_messages());
  if (auto difference = check.difference_in_the_end()) return difference;
  return anything_captured(*board) ? look_at_runs(*board) : std::nullopt;
}

void CallWatch::look() {
  try {
    const CallBoard* const board = board_.load(std::memory_order_acquire);
    progress_.find(board);
    if (domain_->signals().aborted != 0) note_end();
    if (reported_ || domain_->signals().aborted != 0) return;
    if (late_ranks_.is_just_back()) return;
    progress_.want_mark();
    if (const auto sentence = look_at_data()) return report(ncclInvalidUsage, *sentence);
    if (board != nullptr && calls_.load(std::memory_order_relaxed)) {
      late_ranks_.adjust_patience(*board);
      look_at_calls(*board);
      if (reported_) return;
    }
    if (board != nullptr) answer();
    if (const auto sentence = late_ranks_.look(board)) report(ncclRemoteError, *sentence);
  } catch (const std::bad_alloc&) {  // the next look may have memory
  } catch (const std::exception& error) {
    reported_ = true;
    log_warn("rank {}: while it looked at what the other ranks do: {}", rank_, error.what());
  }
}

/// All of it, or nothing where there is no memory.
void CallWatch::begin_to_look_at_calls(const CallBoard& board) {
  const std::vector<Peer>& peers = domain_->setup().peers;
  const size_t unreceived = domain_->room_for_messages();
  auto check = std::make_unique<CallCheck>(board, peers, rank_, unreceived);
  auto kernel_waits = std::make_unique<KernelWaits>(board, peers, rank_);
  auto present = std::make_unique<PresentLaunch>(board, rank_, unreceived);
  circle_ = std::make_unique<LongCircle>(*present, LongCircle::Self{domain_->setup().identity, peers, places_});
  present_ = std::move(present);
  kernel_waits_ = std::move(kernel_waits);
  check_ = std::move(check);
}

void CallWatch::look_at_calls(const CallBoard& board) {
  const std::vector<Peer>& peers = domain_->setup().peers;
  if (!check_) begin_to_look_at_calls(board);
  const auto now = std::chrono::steady_clock::now();
  if (const auto sentence = check_->look([this] { return progress_.idle(); }, now))
    return report(ncclInvalidUsage, *sentence);
  if (const auto warning = check_->take_warning()) log_note("rank {}: {}", rank_, *warning);
  if (anything_captured(board)) {  // what runs is not seen otherwise
    any_captured_ = true;
    take_over_runs(board);
    if (const auto sentence = look_at_runs(board)) return report(ncclInvalidUsage, *sentence);
    if (const auto finding = look_at_kernels(board, now)) return report(finding->code, finding->sentence);
  }
  present_->look(domain_->setup().through, now);
  if (present_->number() != 0) {
    if (const auto sentence = look_at_collectives(board, now)) return report(ncclRemoteError, *sentence);
  }
  if (const auto sentence = stopped_peers_.look(*present_, peers, now)) return report(ncclRemoteError, *sentence);
  if (const auto sentence = circle_->look()) return report(ncclInvalidUsage, *sentence);
}

/// Kernels tell what they find in the place of data of their own call. That is certain, wherever it was launched.
std::optional<std::string> CallWatch::look_at_data() const {
  for (int peer = 0; peer < ranks_; ++peer) {
    const auto tags = tags_of(domain_->signals().arrived[peer]);
    if (!tags) continue;
    return mismatch_sentence(rank_, call_marked(rank_, peer, false, tags->expected), describe(peer),
                             call_marked(peer, rank_, true, tags->found));
  }
  return std::nullopt;
}

std::string CallWatch::describe(int rank) const {
  return describe_rank(rank, domain_->setup().peers[static_cast<size_t>(rank)]);
}

/// A call in which rank `rank` sends to the peer or receives from it.
std::string CallWatch::call_marked(int rank, int peer, bool sends, SeenTag tag) const {
  const CallBoard* const board = board_.load(std::memory_order_acquire);
  if (board == nullptr) return "something (NITINOL_CHECK=off: it is not known what)";
  const auto found = find_marked_call(*board, rank, peer, sends, tag);
  return found.value_or(kForgotten);
}

void CallWatch::take_over_runs(const CallBoard& board) {
  const RunNotes* const runs = domain_->runs();
  for (int line = 0; runs != nullptr && line < RunLines::count(ranks_); ++line) {
    board.runs(rank_, line).take_over(runs[line]);
  }
}

/// What has run on this rank and on another, once that is seen to be different.
std::optional<std::string> CallWatch::look_at_runs(const CallBoard& board) const {
  const auto found = find_different_run(board, rank_);
  if (!found) return std::nullopt;
  const CallCheck check(board, domain_->setup().peers, rank_, 0);
  if (!found->marks) {
    if (auto captured = check.difference_in_graphs(found->peer)) return captured;
  }
  std::string mine = kForgotten;
  std::string theirs = kForgotten;
  if (found->marks) {
    mine = call_marked(rank_, found->peer, found->sends, SeenTag{found->marks->mine >> 8});
    theirs = call_marked(found->peer, rank_, !found->sends, SeenTag{found->marks->theirs >> 8});
  }
  return mismatch_sentence(rank_, mine, check.describe(found->peer), theirs);
}

/// Where there are graphs.
std::optional<KernelWaits::Finding> CallWatch::look_at_kernels(const CallBoard& board,
                                                               std::chrono::steady_clock::time_point now) {
  if (now - looked_at_kernels_ < kBetweenLooksAtKernels) return std::nullopt;
  looked_at_kernels_ = now;
  const KernelWait wait = kernel_wait_.read();
  write_kernel_wait(board.page(rank_), wait);
  if (auto finding = kernel_waits_->look()) return finding;
  warn_of(board, wait);
  const auto dead = find_dead(board, wait, now);
  if (!dead) return std::nullopt;
  return KernelWaits::Finding{ncclRemoteError, dead_sentence(rank_, wait.text(), describe(*dead))};
}

/// Where there are none.
std::optional<std::string> CallWatch::look_at_collectives(const CallBoard& board,
                                                          std::chrono::steady_clock::time_point now) {
  if (now - looked_at_kernels_ < kBetweenLooksAtKernels) return std::nullopt;
  looked_at_kernels_ = now;
  const KernelWait wait = kernel_wait_.read();
  note_waits_in_collectives(board);
  warn_of(board, wait);
  const auto dead = find_dead(board, wait, now);
  if (!dead) return std::nullopt;
  return dead_sentence(rank_, present_->text(), describe(*dead));
}

/// A rank of this host has died without having left, while kernels wait for it.
std::optional<int> CallWatch::find_dead(const CallBoard& board, const KernelWait& wait,
                                        std::chrono::steady_clock::time_point now) {
  if (kernel_wait_.waited() < kLongWait) return std::nullopt;
  const std::vector<Peer>& peers = domain_->setup().peers;
  const Peer& self = peers[static_cast<size_t>(rank_)];
  const auto state_of = [&](int peer) {
    const Peer& who = peers[static_cast<size_t>(peer)];
    const bool matters = who.host == self.host && board.page(peer).leaving.load(std::memory_order_acquire) == 0;
    return matters ? process_of(who, self) : ProcessState::kUnknown;
  };
  return dead_peers_.look(ranks_, now, state_of, [&](int peer) { return wait.is_for(peer); });
}

/// What is seen but once may be of the launch before, which has ended since; and of an earlier one if there are more
/// launches than are remembered.
void CallWatch::note_waits_in_collectives(const CallBoard& board) {
  CollectiveWaits seen{present_->number(), kernel_wait_.in_collectives()};
  const CollectiveWaits before = std::exchange(seen_waits_, seen);
  seen.ranks.keep(before.ranks);
  const auto& exactly_through = domain_->setup().exactly_through;
  if (before.launch != seen.launch || !seen.ranks.any() || !exactly_through) return;
  const auto through = exactly_through();
  if (through && *through + 1 == seen.launch) note_collective_waits(board.page(rank_), seen);
}

void CallWatch::warn_of(const CallBoard& board, const KernelWait& wait) {
  const auto warning = late_ranks_.take_warning(board, wait, kernel_wait_.waited());
  if (warning && domain_->setup().warned) domain_->setup().warned(*warning);
}

/// Nothing runs any more, or not for long: what others may still wait for is what has not come to its end by now.
void CallWatch::note_end() {
  const CallBoard* const board = board_.load(std::memory_order_acquire);
  if (board == nullptr || std::exchange(noted_end_, true)) return;
  if (circle_) circle_->forget();
  const auto& count = domain_->setup().through;
  const auto through = count ? count() : std::nullopt;
  if (through) board->page(rank_).through.store(*through, std::memory_order_release);
}

/// Says what this rank is doing, if somebody asks.
void CallWatch::answer() {
  CallPage& page = board_.load()->page(rank_);
  const uint64_t question = page.asked.load(std::memory_order_acquire);
  if (question == page.answered.load(std::memory_order_relaxed)) return;
  page.running.store(progress_.idle() && ranks_noted_as_late(*domain_).empty() ? 0 : 1, std::memory_order_release);
  page.answered.store(question, std::memory_order_release);
}

void CallWatch::report(ncclResult_t code, const std::string& sentence) {
  reported_ = true;
  progress_.freeze();
  if (domain_->setup().failed) domain_->setup().failed(code, sentence);
}

}  // namespace nitinol::cuda
