// See stream.h.
#include "vgpu/stream.h"

#include <algorithm>
#include <utility>

#include "vgpu/capture.h"
#include "vgpu/engine.h"
#include "vgpu/pool.h"
#include "vgpu/runtime.h"

namespace nitinol::vgpu {
namespace {

std::atomic<uint64_t> g_next_id{1};

// Where the blocking streams of the device stand, for an operation in the legacy stream, which waits for them all.
std::vector<Point> ends_of_blocking_streams(Device& device, const Stream& legacy) {
  std::vector<Point> ends;
  std::lock_guard lock(device.mutex);
  for (Stream* stream : device.streams) {
    if (stream != &legacy && stream->blocking() && !stream->idle()) ends.push_back(stream->end());
  }
  return ends;
}

}  // namespace

Point end_of_legacy_before(const Stream& stream) {
  const StreamKind kind = stream.kind.load(std::memory_order_relaxed);
  if (kind == StreamKind::kLane || kind == StreamKind::kLegacy || !stream.blocking()) return {};
  Stream* const legacy = device_at(stream.device).legacy.load(std::memory_order_acquire);
  return legacy != nullptr ? legacy->end() : Point{};
}

Submission::Submission(Stream& stream) : stream_(stream), lock_(stream.mutex, std::defer_lock) {
  const StreamKind kind = stream.kind.load(std::memory_order_relaxed);
  if (kind == StreamKind::kLegacy) {
    const std::vector<Point> ends = ends_of_blocking_streams(device_at(stream.device), stream);
    lock_.lock();
    for (const Point& end : ends) wait(end);
    return;
  }
  const Point before = end_of_legacy_before(stream);
  lock_.lock();
  wait(before);
}

Submission::~Submission() {
  if (pushed_ && stream_.sleepers > 0) stream_.changed.notify_all();
}

// Those who are to execute the stream learn of it before it has something for them: that may need memory.
void Submission::announce() {
  ThreadState& thread = thread_state();
  if (stream_.enqueuer.load(std::memory_order_relaxed) != thread.id) {
    if (std::find(thread.own_work.begin(), thread.own_work.end(), &stream_) == thread.own_work.end()) {
      thread.own_work.push_back(&stream_);
    }
    stream_.enqueuer.store(thread.id, std::memory_order_relaxed);
  }
  if (!stream_.listed) watch(stream_);
}

void Submission::run(Task&& task) {
  Operation& operation = add();
  operation.task = std::move(task);
  operation.wait = {};
}

void Submission::wait(Point point) {
  if (point.stream == &stream_ || point.reached()) return;
  add().wait = point;
}

Operation& Submission::add() {
  if (!pushed_) announce();
  Operation& operation = stream_.queue.add();
  stream_.submitted.store(stream_.submitted.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  pushed_ = true;
  return operation;
}

Stream* create_stream(StreamKind kind, int device, unsigned flags, int priority) {
  Stream* const stream = pool<Stream>().take();
  {
    std::lock_guard lock(stream->mutex);
    stream->destroyed = false;
    stream->device = device;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = g_next_id.fetch_add(1);
    stream->enqueuer.store(0);
    stream->kind.store(kind, std::memory_order_release);
  }
  if (kind == StreamKind::kNormal) {
    stream->handle = pool<StreamHandle>().take();
    stream->handle->stream.store(stream, std::memory_order_release);
  }
  if (kind != StreamKind::kLane) {
    Device& d = device_at(device);
    std::lock_guard lock(d.mutex);
    d.streams.push_back(stream);
  }
  return stream;
}

void destroy_stream(Stream& stream) {
  leave_capture(stream);
  bool empty = false;
  StreamHandle* handle = nullptr;
  {
    std::lock_guard lock(stream.mutex);
    stream.destroyed = true;
    handle = std::exchange(stream.handle, nullptr);
    if (handle != nullptr) handle->stream.store(nullptr, std::memory_order_release);
    empty = stream.queue.empty() && !stream.claimed;
    if (empty) stream.claimed = true;  // so that nobody else recycles it
  }
  if (handle != nullptr) pool<StreamHandle>().give_back(handle);
  if (empty) recycle_stream(stream);
}

void recycle_stream(Stream& stream) {
  if (stream.kind.load(std::memory_order_relaxed) != StreamKind::kLane) {
    Device& device = device_at(stream.device);
    std::lock_guard lock(device.mutex);
    std::erase(device.streams, &stream);
  }
  {
    std::lock_guard lock(stream.mutex);
    stream.kind.store(StreamKind::kFree, std::memory_order_release);
    stream.claimed = false;
  }
  pool<Stream>().give_back(&stream);
}

Stream& legacy_stream(int device) {
  Device& d = device_at(device);
  Stream* found = d.legacy.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  Stream* created = create_stream(StreamKind::kLegacy, device, cudaStreamDefault, 0);
  if (d.legacy.compare_exchange_strong(found, created)) return *created;
  destroy_stream(*created);
  return *found;
}

namespace {

Stream* per_thread_stream() {
  ThreadState& thread = thread_state();
  const auto device = static_cast<size_t>(thread.device);
  if (thread.per_thread_streams.size() <= device) thread.per_thread_streams.resize(device + 1);
  Stream*& stream = thread.per_thread_streams[device];
  if (stream == nullptr) stream = create_stream(StreamKind::kPerThread, thread.device, cudaStreamDefault, 0);
  return stream;
}

}  // namespace

Stream* find_stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return &legacy_stream(thread_state().device);
  if (handle == cudaStreamPerThread) return per_thread_stream();
  return reinterpret_cast<StreamHandle*>(handle)->stream.load(std::memory_order_acquire);
}

}  // namespace nitinol::vgpu
