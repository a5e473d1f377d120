// See engine.h.
#include "vgpu/engine.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <limits>
#include <new>
#include <thread>

#include "vgpu/runtime.h"

namespace nitinol::vgpu {
namespace {

using std::chrono::microseconds;

constexpr microseconds kTick{200};
constexpr microseconds kLongestTick{800};       // while nothing has been left waiting
constexpr int kWatchMicroseconds = 10'000;      // a stream with nothing to do is watched for so long
constexpr std::chrono::seconds kWorkerIdle{2};  // then an idle worker ends
constexpr std::chrono::milliseconds kWithoutMemory{1};
constexpr uint64_t kEverything = std::numeric_limits<uint64_t>::max();

struct WorkerPool {
  std::mutex mutex;
  std::condition_variable work;
  std::deque<Stream*> jobs;  // claimed streams
  size_t idle = 0;
};

struct Ticker {
  std::mutex mutex;
  std::condition_variable work;
  std::vector<Stream*> incoming;
  bool running = false;
  bool asleep = false;
};

WorkerPool& workers() {
  static WorkerPool* const instance = new WorkerPool;
  return *instance;
}

Ticker& ticker() {
  static Ticker* const instance = new Ticker;
  return *instance;
}

// To be seen by whoever only polls, for whom streams stand still then.
void tell_of_no_threads() {
  static std::atomic_flag told;
  if (told.test_and_set()) return;
  std::fputs(
      "vgpu: the system has no thread to run streams: until it has, only who waits for them (cudaStreamSynchronize) "
      "runs them, and to who polls they are not ready\n",
      stderr);
}

// Signals are for the program's own threads.
bool start_thread(const char* name, void (*body)()) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    std::thread([name, body] {
      pthread_setname_np(pthread_self(), name);
      body();
    }).detach();
  } catch (const std::exception&) {
    started = false;
    tell_of_no_threads();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

bool has_unclaimed_work(Stream& stream) { return !stream.claimed && !stream.parked && !stream.queue.empty(); }

bool try_claim(Stream& stream) {
  std::lock_guard lock(stream.mutex);
  if (!has_unclaimed_work(stream)) return false;
  stream.claimed = true;
  return true;
}

// Without memory it is left to the next one who queues work in the stream, waits for it or asks for it, as without a
// thread.
void watch_if_possible(Stream& stream) {
  try {
    watch(stream);
  } catch (const std::bad_alloc&) {
  }
}

// The stream may go on: the point that it was parked on is reached.
void unpark(Stream& stream) {
  {
    std::lock_guard lock(stream.mutex);
    stream.parked = false;
    if (stream.claimed || stream.queue.empty()) return;
    stream.aged = true;  // it has waited long enough
    stream.seen_completed = stream.completed.load(std::memory_order_relaxed);
    if (!stream.listed) watch_if_possible(stream);
    if (stream.sleepers > 0) stream.changed.notify_all();
  }
  ThreadState& thread = thread_state();
  if (!thread.is_worker) return;
  try {
    thread.released.push_back(&stream);
  } catch (const std::bad_alloc&) {  // it is watched, too
  }
}

void complete_one(Stream& stream, std::unique_lock<SpinLock>& lock) {
  const uint64_t done = stream.completed.load(std::memory_order_relaxed) + 1;
  stream.completed.store(done, std::memory_order_release);
  if (stream.sleepers > 0) stream.changed.notify_all();
  const auto is_ready = [done](const Waiter& waiter) { return waiter.sequence <= done; };
  for (;;) {
    const auto ready = std::find_if(stream.waiters.begin(), stream.waiters.end(), is_ready);
    if (ready == stream.waiters.end()) return;
    Stream& waiter = *ready->stream;
    stream.waiters.erase(ready);
    lock.unlock();
    unpark(waiter);
    lock.lock();
  }
}

// Within that the task may wait for another stream, and execute that.
void run_task(const Stream& stream, Task& task) {
  ThreadState& thread = thread_state();
  const unsigned long long before = std::exchange(thread.running_stream, stream.id.load(std::memory_order_relaxed));
  const cudaError_t last_error = thread.last_error;  // of a thread that waits, and knows of no work that it does
  task();
  thread.last_error = last_error;
  thread.running_stream = before;
}

// Executes a stream that the caller has claimed until so many operations are complete or none is left. Returns the
// point that the next operation waits for if that is not reached. The stream is locked before and after, not meanwhile.
Point execute(Stream& stream, uint64_t until, std::unique_lock<SpinLock>& lock) {
  while (!stream.queue.empty() && stream.completed.load(std::memory_order_relaxed) < until) {
    if (engine_stopped()) return {};
    Operation& first = stream.queue.front();
    if (first.wait) {
      if (!first.wait.reached()) return first.wait;
      stream.queue.pop();
    } else {
      Task task = std::move(first.task);
      stream.queue.pop();
      lock.unlock();
      run_task(stream, task);
      task.reset();
      lock.lock();
    }
    complete_one(stream, lock);
  }
  return {};
}

// Gives up the claim. With `keep_if_work`, keeps it and returns true if there is more to do. The stream comes locked.
bool release_claim(Stream& stream, bool keep_if_work, std::unique_lock<SpinLock> lock) {
  const bool empty = stream.queue.empty();
  if (keep_if_work && !empty && !stream.parked && !engine_stopped()) return true;
  if (empty && stream.destroyed.load(std::memory_order_relaxed)) {
    lock.unlock();
    recycle_stream(stream);
    return false;
  }
  stream.claimed = false;
  if (!empty) {
    if (!stream.listed && !stream.parked) watch_if_possible(stream);
    if (stream.sleepers > 0) stream.changed.notify_all();
  }
  return false;
}

// Leaves a claimed stream to the stream of the point that it waits for. False if the point has been reached meanwhile,
// or there is no memory for it.
bool park(Stream& stream, const Point& point) {
  {
    std::lock_guard lock(stream.mutex);
    stream.parked = true;
  }
  try {
    std::lock_guard lock(point.stream->mutex);
    if (!point.reached()) {
      point.stream->waiters.push_back({point.sequence, &stream});
      return true;
    }
  } catch (const std::bad_alloc&) {
    std::this_thread::sleep_for(kWithoutMemory);  // then it looks again
  }
  std::lock_guard lock(stream.mutex);
  stream.parked = false;
  return false;
}

Stream* claim_released() {
  std::vector<Stream*>& released = thread_state().released;
  while (!released.empty()) {
    Stream* stream = released.back();
    released.pop_back();
    if (try_claim(*stream)) return stream;
  }
  return nullptr;
}

// Executes a claimed stream, and then what that has set free, until there is nothing more.
void work_on(Stream* stream) {
  while (stream != nullptr) {
    std::unique_lock lock(stream->mutex);
    const Point blocker = execute(*stream, kEverything, lock);
    if (blocker) {
      lock.unlock();
      if (!park(*stream, blocker)) continue;
      lock.lock();
    }
    if (release_claim(*stream, true, std::move(lock))) continue;
    if (blocker && try_claim(*blocker.stream)) {
      stream = blocker.stream;
    } else {
      stream = claim_released();
    }
  }
}

void become_worker() {
  for (;;) {
    try {
      thread_state().is_worker = true;
      return;
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(kWithoutMemory);
    }
  }
}

void worker_main() {
  become_worker();
  WorkerPool& pool = workers();
  std::unique_lock lock(pool.mutex);
  for (;;) {
    if (pool.jobs.empty()) {
      ++pool.idle;
      const bool found = pool.work.wait_for(lock, kWorkerIdle, [&] { return !pool.jobs.empty(); });
      --pool.idle;
      if (!found) break;
    }
    Stream* stream = pool.jobs.front();
    pool.jobs.pop_front();
    lock.unlock();
    work_on(stream);
    lock.lock();
  }
}

// Queues a claimed stream for a worker of its own; false if there can be none now.
bool find_worker(Stream& stream) {
  WorkerPool& pool = workers();
  std::lock_guard lock(pool.mutex);
  pool.jobs.push_back(&stream);
  if (pool.jobs.size() <= pool.idle) {
    pool.work.notify_one();
    return true;
  }
  if (start_thread("vgpu-worker", worker_main)) return true;
  pool.jobs.pop_back();
  return false;
}

// Hands a claimed stream to a worker. Without one it is nobody's again: whoever waits for it executes it, or the ticker
// gives it away later. It is not left for a busy worker, which may be waiting for just this stream.
void dispatch(Stream& stream) {
  bool found = false;
  try {
    found = find_worker(stream);
  } catch (const std::bad_alloc&) {
  }
  if (!found) release_claim(stream, false, std::unique_lock(stream.mutex));
}

enum class Sight { kWaiting, kBusy, kQuiet };

// What the ticker finds at a stream: work that waits (which it gives away when it has seen it waiting before), none at
// the moment, or none for a long time.
Sight look_at(Stream& stream, microseconds since_last) {
  {
    std::lock_guard lock(stream.mutex);
    const uint64_t completed = stream.completed.load(std::memory_order_relaxed);
    const bool moved = completed != std::exchange(stream.seen_completed, completed);
    if (!has_unclaimed_work(stream)) {
      stream.aged = false;
      stream.idle_microseconds = moved ? 0 : stream.idle_microseconds + static_cast<int>(since_last.count());
      if (stream.idle_microseconds < kWatchMicroseconds) return Sight::kBusy;
      stream.listed = false;
      return Sight::kQuiet;
    }
    stream.idle_microseconds = 0;
    if (moved || !std::exchange(stream.aged, true)) {
      stream.aged = true;
      return Sight::kWaiting;
    }
    stream.aged = false;
    stream.claimed = true;
  }
  dispatch(stream);
  return Sight::kWaiting;
}

void ticker_main() {
  Ticker& self = ticker();
  std::vector<Stream*> watched;
  microseconds interval = kTick;
  for (;;) {
    {
      std::unique_lock lock(self.mutex);
      if (watched.empty() && self.incoming.empty()) {
        self.asleep = true;
        self.work.wait(lock, [&] { return !self.incoming.empty(); });
        self.asleep = false;
        interval = kTick;
      }
      try {
        watched.insert(watched.end(), self.incoming.begin(), self.incoming.end());
        self.incoming.clear();
      } catch (const std::bad_alloc&) {  // they come later
      }
    }
    std::this_thread::sleep_for(interval);
    if (engine_stopped()) return;
    bool waiting = false;
    std::erase_if(watched, [&](Stream* stream) {
      const Sight sight = look_at(*stream, interval);
      waiting = waiting || sight == Sight::kWaiting;
      return sight == Sight::kQuiet;
    });
    interval = waiting ? kTick : std::min(2 * interval, kLongestTick);
  }
}

// Sleeps until the point is reached or the stream can be executed by the caller.
void sleep_until_changed(Stream& stream, uint64_t sequence) {
  give_away_own_work();
  std::unique_lock lock(stream.mutex);
  ++stream.sleepers;
  stream.changed.wait(lock, [&] {
    return stream.completed.load(std::memory_order_relaxed) >= sequence || (!stream.claimed && !stream.queue.empty());
  });
  --stream.sleepers;
}

/// Others can see what the thread waits for; within that for what is before it.
class Waiting {
 public:
  explicit Waiting(const Point& point) : wait_(own()), before_(wait_.get()) { wait_.set(point); }
  ~Waiting() { wait_.set(before_); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  static HostWait& own() {
    ThreadState& thread = thread_state();
    if (!thread.host_wait) thread.host_wait = make_host_wait();
    return *thread.host_wait;
  }

  HostWait& wait_;
  const Point before_;
};

}  // namespace

void wait_for(Point point) {
  if (point.reached()) return;
  const Waiting waiting(point);
  while (!point.reached() && !engine_stopped()) {
    Stream& stream = *point.stream;
    std::unique_lock lock(stream.mutex);
    if (stream.claimed || stream.queue.empty()) {
      lock.unlock();
      sleep_until_changed(stream, point.sequence);
      continue;
    }
    stream.claimed = true;
    while (Point blocker = execute(stream, point.sequence, lock)) {
      lock.unlock();
      wait_for(blocker);
      lock.lock();
    }
    release_claim(stream, false, std::move(lock));
  }
}

void give_to_worker(Stream& stream) {
  if (try_claim(stream)) dispatch(stream);
}

void give_away_own_work() {
  ThreadState& thread = thread_state();
  if (thread.own_work.empty()) return;
  std::erase_if(thread.own_work, [&](Stream* stream) {
    if (stream->enqueuer.load(std::memory_order_relaxed) != thread.id) return true;
    give_to_worker(*stream);
    return false;
  });
}

void watch(Stream& stream) {
  Ticker& clock = ticker();
  std::lock_guard lock(clock.mutex);
  clock.incoming.push_back(&stream);
  stream.listed = true;
  stream.aged = true;  // if nothing has happened at the ticker's first look, it has been waiting for a whole interval
  stream.seen_completed = stream.completed.load(std::memory_order_relaxed);
  stream.idle_microseconds = 0;
  if (clock.running) {
    if (clock.asleep) clock.work.notify_one();
    return;
  }
  clock.running = start_thread("vgpu-ticker", ticker_main);
  if (clock.running) return;
  // Not watched then: the next one to queue work in the stream, or to ask for it, tries again.
  clock.incoming.pop_back();
  stream.listed = false;
}

void stop_engine() { g_engine_stopped.store(true, std::memory_order_release); }

}  // namespace nitinol::vgpu
