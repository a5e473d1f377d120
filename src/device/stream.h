// A CUDA stream that is owned, and what can be asked of any stream.
#pragma once

#include <utility>

#include "device/check.h"

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

/// Whether work put into the stream is being captured into a graph, and into which capture (0: none).
inline unsigned long long capture_id(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  cuda_check(cudaStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr),
             "cudaStreamGetCaptureInfo");
  if (status == cudaStreamCaptureStatusInvalidated) {
    fail(ncclInvalidUsage, "the stream's capture has been invalidated by an earlier call");
  }
  return status == cudaStreamCaptureStatusActive ? id : 0;
}

}  // namespace nitinol
