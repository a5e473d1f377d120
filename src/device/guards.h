// Scopes that change a per-thread setting of the CUDA runtime and put it back.
#pragma once

#include "base/log.h"
#include "device/check.h"

namespace nitinol {

/// Makes `device` current for the scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    cuda_check(cudaGetDevice(&previous_), "cudaGetDevice");
    if (previous_ != device) {
      cuda_check(cudaSetDevice(device), "cudaSetDevice");
      changed_ = true;
    }
    note_device_of_thread(device);
  }
  ~DeviceGuard() {
    if (!changed_) return;
    static_cast<void>(cudaSetDevice(previous_));
    note_device_of_thread(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

/// Lets the scope make calls that a capture going on in this or another thread would forbid.
class RelaxedCaptureGuard {
 public:
  RelaxedCaptureGuard() {
    cuda_check(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
  }
  ~RelaxedCaptureGuard() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  RelaxedCaptureGuard(const RelaxedCaptureGuard&) = delete;
  RelaxedCaptureGuard& operator=(const RelaxedCaptureGuard&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace nitinol
