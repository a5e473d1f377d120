// What changes per-thread settings of the CUDA runtime: scopes that put them back, and for threads of the library's
// own.
#pragma once

#include "base/log.h"
#include "device/check.h"
#include "device/primary_context.h"

namespace nitinol {

/// Makes `device` current for the scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    cuda_check(cudaGetDevice(&previous_), "cudaGetDevice");
    if (previous_ != device) {
      if (!context_.push(device)) cuda_check(cudaSetDevice(device), "cudaSetDevice");
      changed_ = true;
    }
    note_device_of_thread(device);
  }
  ~DeviceGuard() {
    if (!changed_) return;
    if (!context_.pop()) static_cast<void>(cudaSetDevice(previous_));
    note_device_of_thread(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  PrimaryContext context_;
  int previous_ = 0;
  bool changed_ = false;
};

/// Makes the device's primary context current for the scope, whatever context the thread has.
class PrimaryContextGuard {
 public:
  explicit PrimaryContextGuard(int device) { static_cast<void>(context_.push_in_any_case(device)); }
  ~PrimaryContextGuard() { static_cast<void>(context_.pop()); }
  PrimaryContextGuard(const PrimaryContextGuard&) = delete;
  PrimaryContextGuard& operator=(const PrimaryContextGuard&) = delete;

 private:
  PrimaryContext context_;
};

/// Makes `device` current for a thread of the library's own, without putting back what was. Such threads begin on
/// device 0: whatever they call of CUDA would make a context on that GPU, which takes a tenth of a second and hundreds
/// of megabytes for each process. If it cannot be, calls that need it will say so: much of what such threads do goes
/// without CUDA.
inline void settle_on(int device) {
  int now = -1;
  const bool is_there = cudaGetDevice(&now) == cudaSuccess && now == device;
  if (!is_there && cudaSetDevice(device) != cudaSuccess) static_cast<void>(cudaGetLastError());
  note_device_of_thread(device);
}

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
