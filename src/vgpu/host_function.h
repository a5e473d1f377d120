// Host functions: what the program puts into streams and graphs to be called in their order.
#pragma once

#include <utility>

#include "vgpu/runtime.h"

namespace nitinol::vgpu {

// Surrounds the call of a host function, from which CUDA permits no calls of the runtime: they might wait for the very
// stream. With CUDA that is on a thread of its own; here it may be one that waits for the stream, and finds its last
// error as it was.
class InHostFunction {
 public:
  InHostFunction() : last_error_(std::exchange(thread_.last_error, cudaSuccess)) { thread_.in_host_function = true; }
  ~InHostFunction() {
    thread_.in_host_function = false;
    thread_.last_error = last_error_;
  }
  InHostFunction(const InHostFunction&) = delete;
  InHostFunction& operator=(const InHostFunction&) = delete;

 private:
  ThreadState& thread_ = thread_state();
  cudaError_t last_error_;
};

}  // namespace nitinol::vgpu
