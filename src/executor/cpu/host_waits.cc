#include "executor/cpu/host_waits.h"

#include <vgpu.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>

namespace nitinol::cpu {
namespace {

/// Threads that run nothing of the program, and start none that does.
constexpr std::array<const char*, 4> kOurThreads{"nitinol-net", "nitinol-ras", "vgpu-worker", "vgpu-ticker"};

bool is_ours(const std::filesystem::path& thread) {
  std::string name;
  std::getline(std::ifstream(thread / "comm"), name);
  for (const char* const ours : kOurThreads) {
    if (name == ours) return true;
  }
  return false;
}

}  // namespace

std::optional<int> only_thread_if_it_waits_for(const StreamName& stream) {
  if (!stream.known() || vgpuRunsFunctionsOfProgram() != 0) return std::nullopt;
  std::optional<int> found;
  std::error_code error;
  auto threads = std::filesystem::directory_iterator("/proc/self/task", error);
  for (; !error && threads != std::filesystem::directory_iterator(); threads.increment(error)) {
    const std::string number = threads->path().filename().string();
    int thread = 0;
    std::from_chars(number.data(), number.data() + number.size(), thread);
    if (is_ours(threads->path())) continue;
    if (found || vgpuThreadWaitsFor(thread, stream.id) == 0) return std::nullopt;
    found = thread;
  }
  return error ? std::nullopt : found;
}

}  // namespace nitinol::cpu
