#include "executor/cuda/gpu_progress.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "device/guards.h"
#include "executor/cuda/late_ranks.h"
#include "executor/cuda/late_watch.h"

namespace nitinol::cuda {

namespace {

/// After so long a device that is to answer at once is taken for stuck.
constexpr std::chrono::milliseconds kPatienceWithDevice{20};

/// A call is on the board a moment before its launch is in the stream.
constexpr std::chrono::milliseconds kFromNoteToLaunch{20};

/// How long whoever asks waits for the looking thread.
constexpr int kMillisecondsForAnswer = 100;

/// The looking thread, which is one for all communicators of the process. If CUDA does not let it go on, whoever asks
/// all of them waits for that once.
class LookingThread {
 public:
  void note_look() { ++looks_; }
  uint64_t looks() const { return looks_; }
  void note_that_it_did_not_come_since(uint64_t look) { stuck_after_ = look; }
  bool is_stuck() const { return stuck_after_ == looks_; }

 private:
  std::atomic<uint64_t> looks_{1};
  std::atomic<uint64_t> stuck_after_{0};
};

LookingThread looking_thread;

}  // namespace

GpuProgress::GpuProgress(const Domain& domain, bool looked_after)
    : domain_(domain), rank_(domain.setup().rank), looked_after_(looked_after) {
  if (domain_.setup().record_times) times_ = std::make_unique<LaunchTimes>();
}

/// False if the looking thread does not come to it in time.
bool GpuProgress::ask() {
  const uint64_t question = ++asked_;
  const uint64_t before = looking_thread.looks();
  look_soon();
  const auto is_worth_waiting = [&] { return looked_after_ && answered_ < question && !looking_thread.is_stuck(); };
  int waited = 0;
  for (; waited < kMillisecondsForAnswer && is_worth_waiting(); ++waited) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (waited == kMillisecondsForAnswer) looking_thread.note_that_it_did_not_come_since(before);
  return answered_ >= question;
}

Executor::Passed GpuProgress::passed() {
  if (domain_.ranks() == 1) return passed_now();  // nobody looks
  if (!ask()) return {};
  const std::lock_guard lock(mutex_);
  return passed_;
}

/// What was aborted is over, but has not come to its end, nor may what has waited too long: then nothing is known.
Executor::Passed GpuProgress::passed_now() const {
  Executor::Passed passed;
  if (const auto& count = domain_.setup().exactly_through) passed.launches = count();
  if (domain_.setup().idle) passed.all = idle();
  if (times_) passed.runs = times_->read(kPatienceWithDevice);
  const bool undisturbed = domain_.signals().aborted == 0 && ranks_noted_as_late(domain_).empty();
  return undisturbed ? passed : Executor::Passed{};
}

std::optional<Executor::Progress> GpuProgress::progress(const CallBoard* board) {
  if (domain_.ranks() == 1 || !domain_.setup().check || !domain_.setup().idle) return std::nullopt;
  static_cast<void>(ask());
  const uint64_t begun = issued(board);
  const std::lock_guard lock(mutex_);
  return Executor::Progress{begun, std::min(begun, ended_)};
}

void GpuProgress::find(const CallBoard* board) {
  looking_thread.note_look();
  const uint64_t begun = issued(board);
  const auto now = std::chrono::steady_clock::now();
  if (std::exchange(begun_, begun) != begun) begun_since_ = now;
  const uint64_t question = asked_;
  if (question == answered_) return;
  const Executor::Passed passed = passed_now();
  const bool all_through = passed.all.value_or(false);
  if (all_through && now - begun_since_ <= kFromNoteToLaunch) return;  // or not in the stream yet: the next look tells
  if (passed.all) collect_marks();
  {
    const std::lock_guard lock(mutex_);
    passed_ = frozen_.value_or(passed);
    if (all_through) ended_ = begun;
  }
  answered_ = question;
}

GpuProgress::Mark* GpuProgress::take_mark() {
  collect_marks();
  Mark* taken = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto free = std::find_if(marks_.begin(), marks_.end(), [](const Mark& mark) { return !mark.taken; });
    if (free == marks_.end()) return nullptr;
    free->taken = true;
    taken = &*free;
  }
  try {
    if (!taken->event) taken->event = Event::create();
  } catch (const Error&) {
    const std::lock_guard lock(mutex_);
    taken->taken = false;
    throw;
  }
  return taken;
}

/// The lock is not held while CUDA records, which waits for the device if a queue is full.
void GpuProgress::mark(uint64_t behind, cudaStream_t stream) {
  if (behind == 0) return;
  wants_mark_.store(false, std::memory_order_relaxed);
  Mark* const mark = take_mark();
  if (mark == nullptr) return;
  mark->event.record(stream);
  const std::lock_guard lock(mutex_);
  mark->behind = behind;
  mark->recorded = true;
}

/// Nor while it is asked, which may have to wait for whoever frees memory, and so for kernels.
void GpuProgress::collect_marks() {
  std::array<uint64_t, kMarks> behind{};
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < kMarks; ++i) behind[i] = marks_[i].recorded ? marks_[i].behind : 0;
  }
  const RelaxedCaptureGuard relaxed;
  for (size_t i = 0; i < kMarks; ++i) {
    if (behind[i] == 0) continue;
    const cudaError_t status = cudaEventQuery(marks_[i].event.get());
    if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
    if (status == cudaSuccess) note_passed(marks_[i], behind[i]);
  }
}

/// Another thread may have found that too, and the mark may be used anew since.
void GpuProgress::note_passed(Mark& mark, uint64_t behind) {
  const std::lock_guard lock(mutex_);
  if (mark.recorded && mark.behind == behind) mark.taken = mark.recorded = false;
  ended_ = std::max(ended_, behind);
}

}  // namespace nitinol::cuda
