// What the process and each thread keep for the runtime API: devices, the current device, the last error; and the frame
// that every API function runs in.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <vector>

#include "driver_types.h"
#include "vgpu/engine.h"
#include "vgpu/host_wait.h"
#include "vgpu/stream.h"

namespace nitinol::vgpu {

constexpr int kGreatestPriority = -5;  // streams have priorities from 0 down to this

struct Device {
  std::mutex mutex;
  std::vector<Stream*> streams;  // all of the device's streams that may have work, but for those inside graphs
  std::set<int> peers;           // whose memory this device may access
  std::atomic<Stream*> legacy{nullptr};
  std::atomic<int> capturing{0};  // how many of its blocking streams are being captured
  std::atomic<size_t> allocated{0};
};

struct Runtime {
  explicit Runtime(int count) : devices(static_cast<size_t>(count)) {}
  std::vector<Device> devices;
};

// Created by the first call that needs it, never destroyed (threads may outlive main).
Runtime& runtime();
int device_count();
inline Device& device_at(int index) { return runtime().devices[static_cast<size_t>(index)]; }

struct ThreadState {
  uint64_t id = 0;  // unique in the process's life
  int device = 0;
  unsigned device_flags = 0;
  cudaError_t last_error = cudaSuccess;
  std::vector<Stream*> own_work;            // streams this thread was the last to queue work in
  std::vector<Stream*> released;            // streams that operations executed here have unparked
  std::vector<Stream*> per_thread_streams;  // by device
  std::shared_ptr<HostWait> host_wait;      // null: it has not waited yet
  unsigned long long running_stream = 0;    // whose work it executes; 0: none
  bool is_worker = false;
  bool in_host_function = false;
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
  std::vector<cudaGraphNode_t> capture_dependencies;  // what cudaStreamGetCaptureInfo handed out
};
extern constinit thread_local ThreadState* t_state;  // null: the thread has none yet
ThreadState& make_thread_state();
inline ThreadState& thread_state() { return t_state != nullptr ? *t_state : make_thread_state(); }

// For cudaGetLastError; not where there is no memory for the thread's state.
void keep_last_error(cudaError_t error) noexcept;

// Whether the process was forked from one that had used the runtime.
inline constinit std::atomic<bool> g_forked{false};

// Success, or why no call can work: the process is ending, or was forked, or it is a host function that calls.
inline cudaError_t usable() {
  if (engine_stopped()) return cudaErrorCudartUnloading;
  if (g_forked.load(std::memory_order_acquire)) return cudaErrorInitializationError;
  return t_state != nullptr && t_state->in_host_function ? cudaErrorNotPermitted : cudaSuccess;
}

template <typename Body>
cudaError_t guarded(Body body) noexcept {
  cudaError_t error = usable();
  if (error == cudaSuccess) {
    try {
      error = body();
    } catch (const std::bad_alloc&) {
      error = cudaErrorMemoryAllocation;
    } catch (...) {
      error = cudaErrorOperatingSystem;
    }
  }
  if (error != cudaSuccess) keep_last_error(error);
  return error;
}

// Waits for everything queued on a device.
void synchronize_device(int device);

}  // namespace nitinol::vgpu
