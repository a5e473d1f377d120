// For tests: what a program does that closes descriptors which are not its own.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

namespace nitinol::testing {

/// But the one that this takes itself.
inline std::set<int> open_descriptors() {
  std::set<int> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    std::error_code closed_already;
    const auto target = std::filesystem::read_symlink(entry.path(), closed_already);
    if (!closed_already && !target.string().starts_with("/proc/")) all.insert(fd);
  }
  return all;
}

/// Closes those that are of the kind ("anon_inode:[timerfd]", "socket:") and were not there before, behind sanitizers'
/// backs. Returns how many.
inline int close_new_descriptors(const std::set<int>& before, const std::string& kind) {
  int closed = 0;
  for (const int fd : open_descriptors()) {
    std::error_code none;
    const auto target = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), none);
    if (before.contains(fd) || none || !target.string().starts_with(kind)) continue;
    syscall(SYS_close, fd);
    ++closed;
  }
  return closed;
}

}  // namespace nitinol::testing
