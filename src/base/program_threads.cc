#include "base/program_threads.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>

namespace nitinol {
namespace {

constexpr std::array<const char*, 5> kOurThreads{"nitinol-net", "nitinol-ras", "nitinol-strict", "vgpu-worker",
                                                 "vgpu-ticker"};

bool is_ours(const std::filesystem::path& thread) {
  std::string name;
  std::getline(std::ifstream(thread / "comm"), name);
  return std::find(kOurThreads.begin(), kOurThreads.end(), name) != kOurThreads.end();
}

}  // namespace

std::vector<int> threads_of_program() {
  std::vector<int> found;
  std::error_code error;
  auto threads = std::filesystem::directory_iterator("/proc/self/task", error);
  for (; !error && threads != std::filesystem::directory_iterator(); threads.increment(error)) {
    if (is_ours(threads->path())) continue;
    const std::string number = threads->path().filename().string();
    std::from_chars(number.data(), number.data() + number.size(), found.emplace_back());
  }
  if (error) return {};
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace nitinol
