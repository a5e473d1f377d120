// A stream: a queue of operations that some thread executes in order.
//
// Words: an operation's *sequence number* is its place in the stream's whole history (1, 2, 3 ...; it goes on when the
// object is reused for another stream). A *point* is a stream and a number: reached once that many are complete. To
// *claim* a stream is to become the one thread that executes it. A stream whose first operation waits for a point that
// is not reached may be *parked*: it is in that stream's list of waiters and nobody need look at it until then.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "driver_types.h"
#include "vgpu/spin_lock.h"
#include "vgpu/task.h"

namespace nitinol::vgpu {

class Capture;
struct GraphNode;
struct Stream;

struct Point {
  Stream* stream = nullptr;
  uint64_t sequence = 0;

  explicit operator bool() const { return stream != nullptr; }
  bool reached() const;
};

// Either something to run or a point to wait for.
struct Operation {
  Task task;
  Point wait;
};

struct Waiter {
  uint64_t sequence;
  Stream* stream;
};

// What a handle points to: never deleted, only reused, and at once when its stream is destroyed, even if that still has
// work: programs, and the library, are not to take streams for the same because their handles are.
struct StreamHandle {
  std::atomic<Stream*> stream{nullptr};
};

enum class StreamKind { kFree, kNormal, kLegacy, kPerThread, kLane };

// Stream objects are never deleted, only reused, so that a Point is always safe to look at. Everything without a
// remark is guarded by the mutex.
struct Stream {
  SpinLock mutex;
  std::condition_variable_any changed;  // completed an operation, or is unclaimed with work left; for sleepers
  int sleepers = 0;
  RingQueue<Operation> queue;
  std::atomic<uint64_t> submitted{0};  // written under the mutex, like the next
  std::atomic<uint64_t> completed{0};
  bool claimed = false;
  bool parked = false;
  std::atomic<bool> destroyed{false};
  StreamHandle* handle = nullptr;  // of normal streams until they are destroyed
  std::vector<Waiter> waiters;     // streams parked on this one

  // For the ticker (engine.h).
  bool listed = false;
  bool aged = false;
  uint64_t seen_completed = 0;
  int idle_microseconds = 0;

  std::atomic<uint64_t> enqueuer{0};  // the thread that queued work last (ThreadState::id)

  // Set while nobody else knows the stream.
  std::atomic<StreamKind> kind{StreamKind::kFree};
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  std::atomic<uint64_t> id{0};  // never used again

  // Guarded by the capture mutex (capture.h); the pointer may be looked at without.
  std::atomic<Capture*> capture{nullptr};
  std::vector<GraphNode*> capture_dependencies;

  bool blocking() const { return (flags & cudaStreamNonBlocking) == 0; }
  bool idle() const { return completed.load(std::memory_order_acquire) >= submitted.load(std::memory_order_acquire); }
  Point end() { return {this, submitted.load(std::memory_order_acquire)}; }
};

inline bool Point::reached() const {
  return stream == nullptr || stream->completed.load(std::memory_order_acquire) >= sequence;
}

// The point in the device's legacy default stream that work queued in the stream now has to wait for; none if it is the
// legacy stream itself, or one that does not wait for it.
Point end_of_legacy_before(const Stream& stream);

// Adds operations to a stream: holds its lock, and begins with the waits that CUDA's rules for the legacy default
// stream demand.
class Submission {
 public:
  explicit Submission(Stream& stream);
  ~Submission();
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  void run(Task&& task);
  void wait(Point point);  // adds nothing if it is reached already
  Point end() const { return stream_.end(); }

 private:
  Operation& add();
  void announce();

  Stream& stream_;
  std::unique_lock<SpinLock> lock_;
  bool pushed_ = false;
};

// The life of streams. A destroyed stream goes on until its queue is empty.
Stream* create_stream(StreamKind kind, int device, unsigned flags, int priority);
void destroy_stream(Stream& stream);
// To be called by the executor that found a destroyed stream empty; the stream is unclaimed.
void recycle_stream(Stream& stream);

// The stream of a handle; null if there is none.
Stream* find_stream(cudaStream_t handle);
Stream& legacy_stream(int device);
inline cudaStream_t handle_of(const Stream& stream) { return reinterpret_cast<cudaStream_t>(stream.handle); }

}  // namespace nitinol::vgpu
