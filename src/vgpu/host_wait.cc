// See host_wait.h.
#include "vgpu/host_wait.h"

#include <unistd.h>

#include <mutex>
#include <vector>

#include "vgpu.h"
#include "vgpu/runtime.h"

namespace nitinol::vgpu {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<const HostWait>> all;
};

Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

}  // namespace

std::shared_ptr<HostWait> make_host_wait() {
  auto made = std::make_shared<HostWait>(gettid());
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().all, [](const auto& other) { return other.expired(); });
  registry().all.push_back(made);
  return made;
}

}  // namespace nitinol::vgpu

#pragma GCC visibility push(default)
extern "C" {

int vgpuThreadWaitsFor(int thread, unsigned long long stream) {
  using namespace nitinol::vgpu;
  const std::lock_guard lock(registry().mutex);
  for (const auto& weak : registry().all) {
    const auto wait = weak.lock();
    if (!wait || wait->thread() != thread) continue;
    const Point point = wait->get();
    // If it is still for this stream, the number is of this wait, or of one that has just begun.
    const bool there = point.stream != nullptr && point.stream->id == stream && wait->get().stream == point.stream;
    if (there && !point.reached()) return 1;
  }
  return 0;
}

unsigned long long vgpuRunningStream(void) {
  return nitinol::vgpu::t_state != nullptr ? nitinol::vgpu::t_state->running_stream : 0;
}

int vgpuRunsFunctionsOfProgram(void) { return nitinol::vgpu::g_runs_functions_of_program.load() ? 1 : 0; }

void vgpuKernelIsInnocent(void (*run)(void* state)) { nitinol::vgpu::g_innocent_kernel.store(run); }

}  // extern "C"
#pragma GCC visibility pop
