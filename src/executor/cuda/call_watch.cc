#include "executor/cuda/call_watch.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/process_state.h"
#include "device/guards.h"
#include "device/stream.h"
#include "executor/call_words.h"
#include "executor/cuda/late_watch.h"
#include "executor/cuda/mismatch_tags.h"
#include "executor/room_waits.h"

namespace nitinol::cuda {

namespace {

/// After so long without an answer a peer is taken for one that gives none.
constexpr std::chrono::milliseconds kPatienceWithAnswers{300};

/// After so long a device that is to answer at once is taken for stuck.
constexpr std::chrono::milliseconds kPatienceWithDevice{20};

/// A call is on the board a moment before its launch is in the stream.
constexpr std::chrono::milliseconds kFromNoteToLaunch{20};

/// Kernels that wait say so every few milliseconds.
constexpr std::chrono::milliseconds kBetweenLooksAtKernels{40};

/// Kernels whose time is up wait for their host a little longer than that (waiting.h).
constexpr std::chrono::seconds kKernelsGiveUpAfter{10};

/// Kernels look at what the host tells them every few milliseconds.
constexpr std::chrono::milliseconds kForKernelsToNotice{200};

/// How long whoever asks how far a GPU has come waits for the looking thread.
constexpr int kMillisecondsForProgress = 100;

/// Messages larger than this wait for their receiver: there is not so much room on the way.
size_t unreceived_bytes(const Domain& domain) {
  size_t most = 0;
  for (const Queue queue : {Queue::kMessageLL, Queue::kMessageLL128, Queue::kMessageSimple}) {
    const QueueLayout& layout = domain.layout(queue);
    most = std::max(most, size_t{layout.slots} * layout.slot_bytes * static_cast<size_t>(layout.channels));
  }
  return most;
}

/// Without a call board: what the system says about the processes.
std::string states_of(const ExecutorSetup& setup, const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) {
    const Peer& who = setup.peers[static_cast<size_t>(rank)];
    const ProcessState state = process_of(who, setup.peers[static_cast<size_t>(setup.rank)]);
    text += formatted("{}{}: {}", text.empty() ? "" : "; ", describe_rank(rank, who), words_for(state));
  }
  return text;
}

}  // namespace

CallWatch::CallWatch(std::shared_ptr<Domain> domain)
    : domain_(std::move(domain)),
      rank_(domain_->setup().rank),
      ranks_(domain_->ranks()),
      kernel_wait_(domain_->signals(), names_) {
  if (domain_->setup().record_times) times_ = std::make_unique<LaunchTimes>();
  if (ranks_ > 1) watch_ = start_watching([this] { look(); });
}

/// Whoever leaves may have been faster than the looking thread.
void CallWatch::stop() {
  const uint64_t watch = watch_.exchange(0);
  if (watch == 0) return;
  stop_watching(watch);
  try {
    if (domain_->signals().aborted != 0) note_end();
  } catch (const std::exception& error) {
    log_note("rank {}: while it looked how far its GPU has come: {}", rank_, error.what());
  }
}

bool CallWatch::meet() {
  if (ranks_ == 1 || !domain_->setup().check) return false;
  board_.store(domain_->reach_board(), std::memory_order_release);
  return true;
}

CallWatch::SettingUp CallWatch::announce(const Launch& launch, cudaStream_t stream) {
  const CallBoard* const board = board_.load(std::memory_order_relaxed);
  if (board == nullptr) return SettingUp(nullptr);
  if (!is_being_captured(stream)) announce_calls(*board, rank_, launch);
  return SettingUp(&board->page(rank_));
}

void CallWatch::set_timeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  domain_->signals().patience = units_of_patience();
}

/// The timeout in the units that kernels count in, at least one; 0: for ever.
uint32_t CallWatch::units_of_patience() const {
  const std::chrono::milliseconds timeout = timeout_;
  if (timeout.count() <= 0) return 0;
  const int64_t units = (timeout.count() * 1'000'000 >> 20) + 1;
  return static_cast<uint32_t>(std::min<int64_t>(units, std::numeric_limits<int32_t>::max()));
}

/// Starting up a GPU takes long on large machines, and has nothing to do with what an operation may take: kernels'
/// clocks begin when all ranks that are on their way have arrived.
void CallWatch::adjust_patience() {
  uint32_t wanted = units_of_patience();
  if (wanted != 0) {
    bool set_up = false;
    for (int rank = 0; rank < ranks_ && !set_up; ++rank) set_up = is_setting_up(rank);
    const auto now = std::chrono::steady_clock::now();
    if (!set_up) set_up_since_.reset();
    if (set_up && !set_up_since_) set_up_since_ = now;
    if (set_up && now - *set_up_since_ < domain_->setup().set_up_timeout) wanted = 0;
  }
  volatile uint32_t& patience = domain_->signals().patience;
  if (patience != wanted) patience = wanted;
}

/// Whether this process had been stopped until now: kernels ran on meanwhile and may have noted ranks as late that had
/// been stopped with it. Their clocks begin anew. Not if they have given up since.
bool CallWatch::is_just_back() {
  const auto now = std::chrono::steady_clock::now();
  const auto missed = attendance_.missed(now);
  if (missed.count() > 0 && missed < kKernelsGiveUpAfter) forgives_until_ = now + kForKernelsToNotice;
  if (!forgives_until_) return false;
  const bool forgives = now < *forgives_until_;
  volatile Signals& signals = domain_->signals();
  signals.patience = forgives ? 0 : units_of_patience();
  for (int peer = 0; peer < ranks_; ++peer) signals.late[peer] = 0;
  if (!forgives) forgives_until_.reset();
  return forgives;
}

/// And comes to an end with it: the process is not stopped.
bool CallWatch::is_setting_up(int rank) const {
  if (board_.load()->page(rank).setting_up.load(std::memory_order_acquire) == 0) return false;
  const Peer& who = domain_->setup().peers[static_cast<size_t>(rank)];
  return rank == rank_ || process_state(who.pid) != ProcessState::kStopped;
}

void CallWatch::leave() {
  if (const CallBoard* const board = board_.load()) board->page(rank_).leaving.store(1, std::memory_order_release);
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

std::optional<std::string> CallWatch::difference_in_the_end() const {
  const CallBoard* const board = board_.load(std::memory_order_acquire);
  if (board == nullptr) return std::nullopt;
  return CallCheck(*board, domain_->setup().peers, rank_, unreceived_bytes(*domain_)).difference_in_the_end();
}

/// False if the looking thread does not come to it in time.
bool CallWatch::ask_how_far() {
  const uint64_t question = ++asked_;
  look_soon();
  for (int i = 0; i < kMillisecondsForProgress && watch_ != 0 && answered_ < question; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return answered_ >= question;
}

Executor::Passed CallWatch::passed() {
  if (ranks_ == 1) return passed_now();  // nobody looks
  if (!ask_how_far()) return {};
  const std::lock_guard lock(marks_mutex_);
  return passed_;
}

/// What was aborted is over, but has not come to its end, nor may what has waited too long: then nothing is known.
Executor::Passed CallWatch::passed_now() const {
  Executor::Passed passed;
  if (const auto& count = domain_->setup().exactly_through) passed.launches = count();
  if (domain_->setup().idle) passed.all = idle();
  if (times_) passed.runs = times_->read(kPatienceWithDevice);
  const bool undisturbed = domain_->signals().aborted == 0 && noted_as_late().empty();
  return undisturbed ? passed : Executor::Passed{};
}

std::optional<Executor::Progress> CallWatch::progress() {
  if (ranks_ == 1 || !domain_->setup().check || !domain_->setup().idle) return std::nullopt;
  static_cast<void>(ask_how_far());
  const CallBoard* const board = board_.load(std::memory_order_acquire);
  const uint64_t begun = board == nullptr ? 0 : board->page(rank_).calls.last();
  const std::lock_guard lock(marks_mutex_);
  return Executor::Progress{begun, std::min(begun, ended_)};
}

void CallWatch::find_progress() {
  const CallBoard* const board = board_.load(std::memory_order_acquire);
  const uint64_t begun = board == nullptr ? 0 : board->page(rank_).calls.last();
  const auto now = std::chrono::steady_clock::now();
  if (std::exchange(begun_, begun) != begun) begun_since_ = now;
  const uint64_t question = asked_;
  if (question == answered_) return;
  const Executor::Passed passed = passed_now();
  const bool all_through = passed.all.value_or(false);
  if (all_through && now - begun_since_ <= kFromNoteToLaunch) return;  // or not in the stream yet: the next look tells
  {
    const std::lock_guard lock(marks_mutex_);
    passed_ = when_reported_.value_or(passed);
    if (passed.all) collect_marks();
    if (all_through) ended_ = begun;
  }
  answered_ = question;
}

CallWatch::Mark* CallWatch::take_mark() {
  const std::lock_guard lock(marks_mutex_);
  collect_marks();
  const auto free = std::find_if(marks_.begin(), marks_.end(), [](const Mark& mark) { return !mark.taken; });
  if (free == marks_.end()) return nullptr;
  if (!free->event) free->event = Event::create();
  free->taken = true;
  return &*free;
}

/// The lock is not held while CUDA records, which waits for the device if a queue is full.
void CallWatch::mark(uint64_t behind, cudaStream_t stream) {
  if (behind == 0) return;
  wants_mark_.store(false, std::memory_order_relaxed);
  Mark* const mark = take_mark();
  if (mark == nullptr) return;
  mark->event.record(stream);
  const std::lock_guard lock(marks_mutex_);
  mark->behind = behind;
  mark->recorded = true;
}

void CallWatch::collect_marks() {
  const RelaxedCaptureGuard relaxed;
  for (Mark& mark : marks_) {
    if (!mark.recorded) continue;
    const cudaError_t status = cudaEventQuery(mark.event.get());
    if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
    if (status != cudaSuccess) continue;
    mark.taken = mark.recorded = false;
    ended_ = std::max(ended_, mark.behind);
  }
}

bool CallWatch::idle() const { return domain_->setup().idle && domain_->setup().idle(); }

void CallWatch::look() {
  try {
    find_progress();
    if (domain_->signals().aborted != 0) note_end();
    if (reported_ || domain_->signals().aborted != 0) return;
    if (is_just_back()) return;
    wants_mark_.store(true, std::memory_order_relaxed);
    if (const auto sentence = look_at_data()) return report(ncclInvalidUsage, *sentence);
    const CallBoard* const board = board_.load(std::memory_order_acquire);
    if (board != nullptr && calls_.load(std::memory_order_relaxed)) {
      adjust_patience();
      look_at_calls(*board);
      if (reported_) return;
    }
    if (board != nullptr) answer();
    look_for_late_ranks();
  } catch (const std::exception& error) {
    log_warn("rank {}: while it looked at what the other ranks do: {}", rank_, error.what());
    reported_ = true;
  }
}

void CallWatch::look_at_calls(const CallBoard& board) {
  const std::vector<Peer>& peers = domain_->setup().peers;
  if (!check_) {
    const size_t unreceived = unreceived_bytes(*domain_);
    check_ = std::make_unique<CallCheck>(board, peers, rank_, unreceived);
    kernel_waits_ = std::make_unique<KernelWaits>(board, peers, rank_);
    present_ = std::make_unique<PresentLaunch>(board, rank_, unreceived);
    circle_ = std::make_unique<LongCircle>(*present_, LongCircle::Self{domain_->setup().identity, peers, places_});
  }
  const auto now = std::chrono::steady_clock::now();
  if (const auto sentence = check_->look([this] { return idle(); }, now)) return report(ncclInvalidUsage, *sentence);
  if (const auto warning = check_->take_warning()) log_note("rank {}: {}", rank_, *warning);
  if (const auto finding = look_at_kernels(board, now)) return report(finding->code, finding->sentence);
  present_->look(domain_->setup().through, now);
  if (present_->number() != 0) look_for_room(board, now);
  if (const auto sentence = stopped_peers_.look(*present_, peers, now)) return report(ncclRemoteError, *sentence);
  if (const auto sentence = circle_->look()) return report(ncclInvalidUsage, *sentence);
}

/// Kernels tell what they find in the place of data of their own call. That is certain, wherever it was launched.
std::optional<std::string> CallWatch::look_at_data() const {
  for (int peer = 0; peer < ranks_; ++peer) {
    const auto tags = tags_of(domain_->signals().arrived[peer]);
    if (!tags) continue;
    const std::string who = describe_rank(peer, domain_->setup().peers[static_cast<size_t>(peer)]);
    return mismatch_sentence(rank_, call_marked(rank_, peer, false, tags->expected), who,
                             call_marked(peer, rank_, true, tags->found));
  }
  return std::nullopt;
}

/// A call in which rank `rank` sends to the peer or receives from it.
std::string CallWatch::call_marked(int rank, int peer, bool sends, SeenTag tag) const {
  const CallBoard* const board = board_.load(std::memory_order_acquire);
  if (board == nullptr) return "something (NITINOL_CHECK=off: it is not known what)";
  const auto found = find_marked_call(*board, rank, peer, sends, tag);
  return found.value_or("something that is too long ago to tell (NITINOL_CHECK=strict tells)");
}

/// Where there are graphs: what runs is not seen otherwise.
std::optional<KernelWaits::Finding> CallWatch::look_at_kernels(const CallBoard& board,
                                                               std::chrono::steady_clock::time_point now) {
  if (!anything_captured(board)) return std::nullopt;
  any_captured_ = true;
  if (now - looked_at_kernels_ < kBetweenLooksAtKernels) return std::nullopt;
  looked_at_kernels_ = now;
  write_kernel_wait(board.page(rank_), kernel_wait_.read());
  return kernel_waits_->look();
}

/// Where there are none.
void CallWatch::look_for_room(const CallBoard& board, std::chrono::steady_clock::time_point now) {
  if (now - looked_at_kernels_ < kBetweenLooksAtKernels) return;
  looked_at_kernels_ = now;
  note_room_waits(board.page(rank_), {present_->number(), kernel_wait_.read().for_room});
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
  page.running.store(idle() && noted_as_late().empty() ? 0 : 1, std::memory_order_release);
  page.answered.store(question, std::memory_order_release);
}

/// Kernels leave a note of whom they have waited for too long, and wait on until they are told to end.
std::vector<int> CallWatch::noted_as_late() const {
  std::vector<int> noted;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (domain_->signals().late[peer] != 0) noted.push_back(peer);
  }
  return noted;
}

void CallWatch::look_for_late_ranks() {
  const std::vector<int> noted = noted_as_late();
  if (noted.empty()) return;
  if (board_.load() == nullptr) {
    return report(
        ncclRemoteError,
        formatted("rank {}: an operation makes no progress for {} ms (NITINOL_TIMEOUT); nothing came from: {}", rank_,
                  timeout_.load().count(), states_of(domain_->setup(), noted)));
  }
  if (questions_.empty()) return ask_all();
  if (!all_have_answered() && std::chrono::steady_clock::now() - asked_at_ < kPatienceWithAnswers) return;
  report(ncclRemoteError, late_sentence(noted));
}

void CallWatch::ask_all() {
  const CallBoard& board = *board_.load();
  asked_at_ = std::chrono::steady_clock::now();
  for (int peer = 0; peer < ranks_; ++peer) questions_.push_back(board.page(peer).asked.fetch_add(1) + 1);
}

bool CallWatch::all_have_answered() const {
  const CallBoard& board = *board_.load();
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer != rank_ && board.page(peer).answered.load() < questions_[static_cast<size_t>(peer)]) return false;
  }
  return true;
}

std::string CallWatch::list(const std::vector<int>& ranks, bool for_messages) const {
  const CallBoard& board = *board_.load();
  const CallCheck words(board, domain_->setup().peers, rank_, 0);
  std::string text;
  for (const int peer : ranks) {
    const bool answered = board.page(peer).answered.load() >= questions_[static_cast<size_t>(peer)];
    const std::string message = for_messages ? words.unmatched_message(peer) : "";
    text += (text.empty() ? "" : "; ") + message + (message.empty() ? "" : ", ") + words.doings_of(peer, answered);
  }
  return text;
}

std::string CallWatch::late_sentence(const std::vector<int>& noted) const {
  const CallBoard& board = *board_.load();
  const CallPage& mine = board.page(rank_);
  const auto sentence = [&](const std::string& what, const char* who, const std::vector<int>& ranks) {
    return formatted("rank {}: {} no progress for {} ms (NITINOL_TIMEOUT); {}: {}", rank_, what,
                     timeout_.load().count(), who, list(ranks, mine.in_messages.load() != 0));
  };
  if (mine.captures.load() != 0) {
    const KernelWait wait = read_kernel_wait(mine).wait;
    return sentence(wait.any() ? wait.text() + " makes" : "an operation makes", "nothing came from", noted);
  }
  if (mine.in_messages.load() != 0) return sentence("sends and receives make", "waiting for", noted);
  // Whoever has not even issued what this rank has is to blame, whether or not a kernel came to wait for it too; if
  // those who are waited for have, then others.
  const uint64_t issued = mine.calls.last();
  std::vector<int> everybody(static_cast<size_t>(ranks_));
  std::iota(everybody.begin(), everybody.end(), 0);
  for (const std::vector<int>& candidates : {noted, everybody}) {
    uint64_t least = issued;
    for (const int peer : candidates) least = std::min(least, board.page(peer).calls.last());
    if (least == issued) continue;
    std::vector<int> behind;
    for (const int peer : everybody) {
      if (board.page(peer).calls.last() <= least) behind.push_back(peer);
    }
    const auto call = mine.calls.find(least + 1);
    return sentence((call ? call->text() : "a collective") + " makes", "not arrived", behind);
  }
  const auto call = mine.calls.find(issued);
  return sentence((call ? call->text() : "a collective") + " makes", "all have begun it", noted);
}

void CallWatch::report(ncclResult_t code, const std::string& sentence) {
  reported_ = true;
  when_reported_ = passed_now();
  if (domain_->setup().failed) domain_->setup().failed(code, sentence);
}

}  // namespace nitinol::cuda
