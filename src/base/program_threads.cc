#include "base/program_threads.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace nitinol {
namespace {

constexpr std::array<const char*, 6> kOurThreads{"nitinol-net",   "nitinol-ras", "nitinol-strict",
                                                 "nitinol-watch", "vgpu-worker", "vgpu-ticker"};

/// "cuda-EvtHandlr", "cuda00002c0000c": as CUDA's driver names its threads.
bool is_of_cuda(std::string_view name) {
  constexpr std::string_view kBegin = "cuda";
  if (name == "cuda-EvtHandlr") return true;
  if (!name.starts_with(kBegin) || name.size() < kBegin.size() + 8) return false;
  return name.find_first_not_of("0123456789abcdef", kBegin.size()) == std::string_view::npos;
}

bool is_of_program(const std::filesystem::path& thread) {
  std::string name;
  std::getline(std::ifstream(thread / "comm"), name);
  return !is_of_cuda(name) && std::find(kOurThreads.begin(), kOurThreads.end(), name) == kOurThreads.end();
}

}  // namespace

std::vector<int> threads_of_program() {
  std::vector<int> found;
  std::error_code error;
  auto threads = std::filesystem::directory_iterator("/proc/self/task", error);
  for (; !error && threads != std::filesystem::directory_iterator(); threads.increment(error)) {
    if (!is_of_program(threads->path())) continue;
    const std::string number = threads->path().filename().string();
    std::from_chars(number.data(), number.data() + number.size(), found.emplace_back());
  }
  if (error) return {};
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace nitinol
