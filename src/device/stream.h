// A CUDA stream that is owned, and what can be asked of any stream.
#pragma once

#include <limits>
#include <string>
#include <utility>

#include "device/guards.h"

namespace nitinol {

class Stream {
 public:
  /// On the current device, independent of the legacy default stream.
  static Stream create() {
    Stream stream;
    cuda_check(cudaStreamCreateWithFlags(&stream.stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return stream;
  }
  /// The same of the highest priority: its work need not stand in line behind the kernels of other streams.
  static Stream create_urgent() {
    int lowest = 0;
    int highest = 0;
    cuda_check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    Stream stream;
    cuda_check(cudaStreamCreateWithPriority(&stream.stream_, cudaStreamNonBlocking, highest),
               "cudaStreamCreateWithPriority");
    return stream;
  }
  Stream() = default;
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Stream() {
    if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
  }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// No stream has it.
inline constexpr unsigned long long kNoStreamId = std::numeric_limits<unsigned long long>::max();

/// Names a stream for the life of the program. Its handle does not: it may come to name another one once the stream is
/// destroyed, though work is still in it, and cudaStreamPerThread is another one on each thread. kNoStreamId if it is
/// not known. Not to be asked of a stream that is being captured, as that would end the capture; of others it may be
/// asked meanwhile.
inline unsigned long long stream_id(cudaStream_t stream) {
  unsigned long long id = 0;
  if (cudaStreamGetId(stream, &id) == cudaSuccess) return id;
  static_cast<void>(cudaGetLastError());
  return kNoStreamId;
}

/// Why work for `device` cannot go into the stream; "" if that is not the stream's fault.
inline std::string objection_to(cudaStream_t stream, int device) {
  int of_stream = device;
  const cudaError_t status = cudaStreamGetDevice(stream, &of_stream);
  if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
  if (status == cudaErrorInvalidResourceHandle) {
    return formatted("CUDA knows no stream {}: has it been destroyed?", static_cast<const void*>(stream));
  }
  if (status != cudaSuccess || of_stream == device) return "";
  return formatted("stream {} is of device {}, the communicator of device {}", static_cast<const void*>(stream),
                   of_stream, device);
}

/// Whether the stream is being captured into a graph, be it in vain. One that CUDA does not know is not: whoever puts
/// work into it is told.
inline bool is_being_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
  const cudaError_t status = cudaStreamIsCapturing(stream, &captured);
  if (status == cudaErrorInvalidResourceHandle) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  cuda_check(status, "cudaStreamIsCapturing");
  return captured != cudaStreamCaptureStatusNone;
}

struct CaptureState {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
};
inline CaptureState capture_of(cudaStream_t stream) {
  CaptureState found;
  cuda_check(cudaStreamGetCaptureInfo(stream, &found.status, &found.id, nullptr, nullptr, nullptr, nullptr),
             "cudaStreamGetCaptureInfo");
  return found;
}

/// Whether work put into the stream is being captured into a graph, and into which capture (0: none).
inline unsigned long long capture_id(cudaStream_t stream) {
  const CaptureState found = capture_of(stream);
  if (found.status == cudaStreamCaptureStatusInvalidated) {
    fail(ncclInvalidUsage, "the stream's capture has been invalidated by an earlier call");
  }
  return found.status == cudaStreamCaptureStatusActive ? found.id : 0;
}

}  // namespace nitinol
