// See runtime.h.
#include "vgpu/runtime.h"

#include <cxxabi.h>
#include <pthread.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <new>

#include "vgpu/engine.h"

// Stands for this library: it stays loaded while threads have to end what is theirs.
extern "C" __attribute__((visibility("hidden"))) void* __dso_handle;

namespace nitinol::vgpu {
namespace {

std::atomic<Runtime*> g_runtime{nullptr};
std::once_flag g_runtime_once;

void end_thread_state(void*) {
  for (Stream* stream : t_state->per_thread_streams) {
    const bool is_of_parent = g_forked.load(std::memory_order_acquire);  // whose threads may have had its locks
    if (stream != nullptr && !is_of_parent) destroy_stream(*stream);
  }
  delete t_state;
  t_state = nullptr;
}

void after_fork_in_child() {
  if (g_runtime.load(std::memory_order_acquire) != nullptr) g_forked.store(true, std::memory_order_release);
}

__attribute__((destructor)) void at_unload() { stop_engine(); }

}  // namespace

int device_count() {
  static const int count = [] {
    constexpr int kStandard = 8;
    constexpr long kMost = 1024;
    const char* const text = std::getenv("NITINOL_VGPUS");
    if (text == nullptr || std::isdigit(static_cast<unsigned char>(*text)) == 0) return kStandard;
    const bool hexadecimal = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    char* end = nullptr;
    const long value = std::strtol(text, &end, hexadecimal ? 16 : 10);
    return *end == '\0' && value >= 1 && value <= kMost ? static_cast<int>(value) : kStandard;
  }();
  return count;
}

Runtime& runtime() {
  Runtime* found = g_runtime.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  std::call_once(g_runtime_once, [] {
    pthread_atfork(nullptr, nullptr, after_fork_in_child);
    g_runtime.store(new Runtime(device_count()), std::memory_order_release);
  });
  return *g_runtime.load(std::memory_order_acquire);
}

constinit thread_local ThreadState* t_state = nullptr;

ThreadState& make_thread_state() {
  static std::atomic<uint64_t> next_id{1};
  t_state = new ThreadState;
  // A thread that has ended its state may still call, out of another object's destructor, and starts a new one. An
  // owner in a thread_local would not be made again for that.
  abi::__cxa_thread_atexit(end_thread_state, nullptr, &__dso_handle);
  t_state->id = next_id.fetch_add(1);
  return *t_state;
}

void keep_last_error(cudaError_t error) noexcept {
  try {
    thread_state().last_error = error;
  } catch (const std::bad_alloc&) {
  }
}

void synchronize_device(int device) {
  std::vector<Point> ends;
  {
    Device& d = device_at(device);
    std::lock_guard lock(d.mutex);
    for (Stream* stream : d.streams) {
      if (!stream->idle()) ends.push_back(stream->end());
    }
  }
  for (const Point& end : ends) wait_for(end);
}

}  // namespace nitinol::vgpu
