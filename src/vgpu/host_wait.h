// Which threads wait on the host, and for what: for those who look for circles of waiting.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>

#include "vgpu/stream.h"

namespace nitinol::vgpu {

// For what one thread waits. Written by that thread alone.
class HostWait {
 public:
  explicit HostWait(pid_t thread) : thread_(thread) {}

  pid_t thread() const { return thread_; }
  void set(const Point& point) {
    stream_.store(nullptr, std::memory_order_release);
    sequence_.store(point.sequence, std::memory_order_release);
    stream_.store(point.stream, std::memory_order_release);
  }
  Point get() const { return {stream_.load(std::memory_order_acquire), sequence_.load(std::memory_order_acquire)}; }

 private:
  const pid_t thread_;
  std::atomic<Stream*> stream_{nullptr};
  std::atomic<uint64_t> sequence_{0};
};

// The calling thread's, which others can find as long as it is kept.
std::shared_ptr<HostWait> make_host_wait();

// A program whose own functions streams run may go on without any of its threads.
inline constinit std::atomic<bool> g_runs_functions_of_program{false};
inline void note_function_of_program() {
  if (!g_runs_functions_of_program.load(std::memory_order_relaxed)) g_runs_functions_of_program.store(true);
}
// What may be run by kernels without being the program's.
inline constinit std::atomic<void (*)(void*)> g_innocent_kernel{nullptr};

}  // namespace nitinol::vgpu
