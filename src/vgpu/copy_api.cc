// The API's functions that copy and fill memory.
#include <cstring>
#include <memory>

#include "cuda_runtime_api.h"
#include "vgpu/capture.h"
#include "vgpu/engine.h"
#include "vgpu/memory.h"
#include "vgpu/runtime.h"

namespace nitinol::vgpu {
namespace {

struct Copy {
  void* destination;
  size_t destination_pitch;
  const void* source;
  size_t source_pitch;
  size_t width;
  size_t height;

  bool empty() const { return width == 0 || height == 0; }

  void operator()() const {
    if (width == destination_pitch && width == source_pitch) {
      std::memmove(destination, source, width * height);
      return;
    }
    for (size_t row = 0; row < height; ++row) {
      std::memmove(static_cast<char*>(destination) + row * destination_pitch,
                   static_cast<const char*>(source) + row * source_pitch, width);
    }
  }
};

Copy flat_copy(void* destination, const void* source, size_t count) {
  return {destination, count, source, count, count, 1};
}

struct Fill {
  void* destination;
  size_t pitch;
  int value;
  size_t width;
  size_t height;

  bool empty() const { return width == 0 || height == 0; }

  void operator()() const {
    for (size_t row = 0; row < height; ++row) {
      std::memset(static_cast<char*>(destination) + row * pitch, value, width);
    }
  }
};

// What the runtime knows about one side of a copy.
enum class Side { kPageable, kHost, kDevice };

// An error if the memory is known but smaller than the range.
cudaError_t look_up(const void* pointer, size_t size, Side* side) {
  if (pointer == nullptr) return cudaErrorInvalidValue;
  *side = Side::kPageable;
  const std::optional<Allocation> allocation = find_allocation(pointer);
  if (!allocation) return cudaSuccess;
  *side = allocation->type == cudaMemoryTypeHost ? Side::kHost : Side::kDevice;
  return allocation->contains(pointer, size) ? cudaSuccess : cudaErrorInvalidValue;
}

struct Sides {
  Side destination;
  Side source;
  bool touches_device() const { return destination == Side::kDevice || source == Side::kDevice; }
  bool only_device() const { return destination == Side::kDevice && source == Side::kDevice; }
  bool from_pageable_to_device() const { return source == Side::kPageable && destination == Side::kDevice; }
};

cudaError_t check(const Copy& copy, cudaMemcpyKind kind, Sides* sides) {
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (copy.width > copy.destination_pitch || copy.width > copy.source_pitch) return cudaErrorInvalidPitchValue;
  const size_t rows = copy.height - 1;
  if (cudaError_t error = look_up(copy.destination, rows * copy.destination_pitch + copy.width, &sides->destination)) {
    return error;
  }
  if (cudaError_t error = look_up(copy.source, rows * copy.source_pitch + copy.width, &sides->source)) return error;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (to_device && sides->destination == Side::kPageable) return cudaErrorInvalidValue;
  if (from_device && sides->source == Side::kPageable) return cudaErrorInvalidValue;
  return cudaSuccess;
}

// Pageable memory may be changed by its owner as soon as the call returns: copies now if nothing is before it in the
// stream, or else takes a copy of the source to copy from later.
cudaError_t copy_from_pageable(const Copy& copy, Stream& stream) {
  if (cudaError_t error = check_legacy(stream)) return error;
  Point done;
  {
    Submission submission(stream);
    const bool first = submission.end().reached();
    if (first) {
      submission.run(Task(copy));
      done = submission.end();
    } else {
      std::shared_ptr<char[]> staged(new char[copy.width * copy.height]);
      const Copy in{staged.get(), copy.width, copy.source, copy.source_pitch, copy.width, copy.height};
      in();
      const Copy out{copy.destination, copy.destination_pitch, staged.get(), copy.width, copy.width, copy.height};
      submission.run(Task([out, staged] { out(); }));
    }
  }
  wait_for(done);
  return cudaSuccess;
}

cudaError_t copy_async(const Copy& copy, cudaMemcpyKind kind, cudaStream_t handle) {
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (copy.empty()) return cudaSuccess;
  Sides sides{};
  if (cudaError_t error = check(copy, kind, &sides)) return error;
  const bool captured = capturing(*stream);
  if (!captured && sides.from_pageable_to_device()) return copy_from_pageable(copy, *stream);
  if (cudaError_t error = submit(*stream, cudaGraphNodeTypeMemcpy, copy)) return error;
  // As CUDA: such a copy is done when the call returns.
  const bool waits = sides.destination == Side::kPageable || !sides.touches_device();
  if (captured || !waits) return cudaSuccess;
  wait_for(stream->end());
  return usable();
}

// Checks of calls that work in the legacy stream and may wait for it.
cudaError_t check_synchronous_call(Stream& legacy) {
  if (cudaError_t error = check_legacy(legacy)) return error;
  return check_unsafe_call();
}

// The legacy streams of other devices than the current one whose memory a copy or fill touches: it comes between what
// these have before and after.
class OtherDevices {
 public:
  cudaError_t add(const void* pointer) {
    const std::optional<Allocation> allocation = find_allocation(pointer);
    if (!allocation || allocation->type == cudaMemoryTypeHost) return cudaSuccess;
    if (allocation->device == thread_state().device) return cudaSuccess;
    Stream& legacy = legacy_stream(allocation->device);
    streams_[count_++] = &legacy;
    return check_legacy(legacy);
  }
  void let_begin_before(Stream& current) const {
    for (Stream* const* other = streams_; other != streams_ + count_; ++other) wait_in(current, point_in(**other));
  }
  void let_go_on_after(Stream& current) const {
    for (Stream* const* other = streams_; other != streams_ + count_; ++other) wait_in(**other, point_in(current));
  }

 private:
  // Behind all that it and the blocking streams beside it have.
  static Point point_in(Stream& stream) {
    Submission submission(stream);
    submission.run(Task([] {}));
    return submission.end();
  }
  static void wait_in(Stream& stream, Point point) { Submission(stream).wait(point); }

  Stream* streams_[2]{};
  int count_ = 0;
};

// In the legacy stream. Returns when the copy is done, unless it is among devices.
cudaError_t copy_now(const Copy& copy, cudaMemcpyKind kind) {
  if (copy.empty()) return cudaSuccess;
  Sides sides{};
  if (cudaError_t error = check(copy, kind, &sides)) return error;
  Stream& legacy = legacy_stream(thread_state().device);
  if (cudaError_t error = check_synchronous_call(legacy)) return error;
  OtherDevices others;
  if (cudaError_t error = others.add(copy.source)) return error;
  if (cudaError_t error = others.add(copy.destination)) return error;
  others.let_begin_before(legacy);
  if (cudaError_t error = submit(legacy, cudaGraphNodeTypeMemcpy, copy)) return error;
  others.let_go_on_after(legacy);
  if (!sides.only_device()) wait_for(legacy.end());
  return usable();
}

cudaError_t check(const Fill& fill, Side* side) {
  if (fill.width > fill.pitch) return cudaErrorInvalidPitchValue;
  if (cudaError_t error = look_up(fill.destination, (fill.height - 1) * fill.pitch + fill.width, side)) return error;
  return *side == Side::kPageable ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t fill_async(const Fill& fill, cudaStream_t handle) {
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (fill.empty()) return cudaSuccess;
  Side side{};
  if (cudaError_t error = check(fill, &side)) return error;
  return submit(*stream, cudaGraphNodeTypeMemset, fill);
}

cudaError_t fill_now(const Fill& fill) {
  if (fill.empty()) return cudaSuccess;
  Side side{};
  if (cudaError_t error = check(fill, &side)) return error;
  Stream& legacy = legacy_stream(thread_state().device);
  if (cudaError_t error = check_synchronous_call(legacy)) return error;
  OtherDevices others;
  if (cudaError_t error = others.add(fill.destination)) return error;
  others.let_begin_before(legacy);
  if (cudaError_t error = submit(legacy, cudaGraphNodeTypeMemset, fill)) return error;
  others.let_go_on_after(legacy);
  if (side != Side::kDevice) wait_for(legacy.end());
  return usable();
}

bool valid_device(int device) { return device >= 0 && device < device_count(); }

}  // namespace
// What is declared in the global namespace: functions with C linkage are the same in any namespace.
#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  return guarded([&] { return copy_now(flat_copy(dst, src, count), kind); });
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind, cudaStream_t stream) {
  return guarded([&] { return copy_async(flat_copy(dst, src, count), kind, stream); });
}

cudaError_t cudaMemcpyPeer(void* dst, int dst_device, const void* src, int src_device, size_t count) {
  return guarded([&] {
    if (!valid_device(dst_device) || !valid_device(src_device)) return cudaErrorInvalidDevice;
    return copy_now(flat_copy(dst, src, count), cudaMemcpyDeviceToDevice);
  });
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device, size_t count,
                                cudaStream_t stream) {
  return guarded([&] {
    if (!valid_device(dst_device) || !valid_device(src_device)) return cudaErrorInvalidDevice;
    return copy_async(flat_copy(dst, src, count), cudaMemcpyDeviceToDevice, stream);
  });
}

cudaError_t cudaMemcpy2D(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                         cudaMemcpyKind kind) {
  return guarded([&] { return copy_now({dst, dpitch, src, spitch, width, height}, kind); });
}

cudaError_t cudaMemcpy2DAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return guarded([&] { return copy_async({dst, dpitch, src, spitch, width, height}, kind, stream); });
}

cudaError_t cudaMemset(void* pointer, int value, size_t count) {
  return guarded([&] { return fill_now({pointer, count, value, count, 1}); });
}

cudaError_t cudaMemsetAsync(void* pointer, int value, size_t count, cudaStream_t stream) {
  return guarded([&] { return fill_async({pointer, count, value, count, 1}, stream); });
}

cudaError_t cudaMemset2D(void* pointer, size_t pitch, int value, size_t width, size_t height) {
  return guarded([&] { return fill_now({pointer, pitch, value, width, height}); });
}

cudaError_t cudaMemset2DAsync(void* pointer, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  return guarded([&] { return fill_async({pointer, pitch, value, width, height}, stream); });
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace nitinol::vgpu
