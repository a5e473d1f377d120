// Work in streams that takes until somebody lets it go.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "gpus.h"

namespace nitinol::gpu_testing {

/// Holds streams until it is opened.
class Gate {
 public:
  void hold(cudaStream_t stream) {
    const auto wait = [](void* open) {
      while (!*static_cast<std::atomic<bool>*>(open)) std::this_thread::sleep_for(std::chrono::microseconds(100));
    };
    CUDA_OK(cudaLaunchHostFunc(stream, wait, &open_));
  }
  void open() { open_ = true; }

 private:
  std::atomic<bool> open_{false};
};

}  // namespace nitinol::gpu_testing
