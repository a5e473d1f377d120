// Shared by the tests of the virtual GPUs.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "vgpu.h"

#define EXPECT_CUDA(call) EXPECT_STREQ(cudaGetErrorName(call), "cudaSuccess")
#define ASSERT_CUDA(call) ASSERT_STREQ(cudaGetErrorName(call), "cudaSuccess")
#define EXPECT_CUDA_ERROR(call, error) EXPECT_STREQ(cudaGetErrorName(call), #error)

namespace nitinol::vgpu::test {

// A gate that work in streams waits at until a test opens it.
class Gate {
 public:
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// Host functions in streams, from lambdas.
inline void enqueue(cudaStream_t stream, std::function<void()> function) {
  auto* state = new std::function<void()>(std::move(function));
  const VgpuKernel kernel{[](void* p) { (*static_cast<std::function<void()>*>(p))(); }, state,
                          [](void* p) { delete static_cast<std::function<void()>*>(p); }};
  ASSERT_CUDA(vgpuLaunchKernel(stream, &kernel));
}

inline void enqueue_gate(cudaStream_t stream, Gate& gate) {
  ASSERT_CUDA(cudaLaunchHostFunc(
      stream, [](void* p) { static_cast<Gate*>(p)->wait(); }, &gate));
}

struct StreamOwner {
  explicit StreamOwner(unsigned flags = cudaStreamNonBlocking) {
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, flags));
  }
  StreamOwner(const StreamOwner&) = delete;
  StreamOwner& operator=(const StreamOwner&) = delete;
  ~StreamOwner() { EXPECT_CUDA(cudaStreamDestroy(stream)); }
  operator cudaStream_t() const { return stream; }  // NOLINT(google-explicit-constructor): stands for its stream
  cudaStream_t stream = nullptr;
};

struct EventOwner {
  explicit EventOwner(unsigned flags = cudaEventDisableTiming) { EXPECT_CUDA(cudaEventCreateWithFlags(&event, flags)); }
  EventOwner(const EventOwner&) = delete;
  EventOwner& operator=(const EventOwner&) = delete;
  ~EventOwner() { EXPECT_CUDA(cudaEventDestroy(event)); }
  operator cudaEvent_t() const { return event; }  // NOLINT(google-explicit-constructor): stands for its event
  cudaEvent_t event = nullptr;
};

// An array in device memory, with its values as the host sees them through copies.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) { EXPECT_CUDA(cudaMalloc(&data_, count * sizeof(T))); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { EXPECT_CUDA(cudaFree(data_)); }

  T* get() const { return data_; }
  size_t bytes() const { return count_ * sizeof(T); }
  void set(const std::vector<T>& values) {
    EXPECT_CUDA(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
  }
  std::vector<T> values() const {
    std::vector<T> result(count_);
    EXPECT_CUDA(cudaMemcpy(result.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return result;
  }

 private:
  size_t count_;
  T* data_ = nullptr;
};

}  // namespace nitinol::vgpu::test
