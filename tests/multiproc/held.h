// What a process holds of the system: descriptors, threads, memory, and files that the library might leave.
#pragma once

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "observe.h"
#include "scarcity.h"

namespace nitinol::testing {

struct Held {
  long descriptors = 0;
  long threads = 0;
  long memfd_mappings = 0;
  long memfd_kilobytes = 0;  ///< of address space in them
  long resident_kilobytes = 0;
  long private_kilobytes = 0;  ///< that nobody else has and that were written
};

/// Kilobytes behind the name in a file of /proc.
inline long kilobytes_in(const char* file, const std::string& name) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(name + ":")) return std::stol(line.substr(name.size() + 1));
  }
  return 0;
}

inline Held held_now() {
  Held held;
  held.descriptors = entries_of("/proc/self/fd");
  held.threads = entries_of("/proc/self/task");
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:") == std::string::npos) continue;
    size_t end_of_begin = 0;
    const unsigned long begin = std::stoul(line, &end_of_begin, 16);
    ++held.memfd_mappings;
    held.memfd_kilobytes += static_cast<long>((std::stoul(line.substr(end_of_begin + 1), nullptr, 16) - begin) / 1024);
  }
  held.resident_kilobytes = kilobytes_in("/proc/self/status", "VmRSS");
  held.private_kilobytes = kilobytes_in("/proc/self/smaps_rollup", "Private_Dirty");
  return held;
}

/// The least of each in a few seconds: service threads close connections some time after they have served, and threads
/// of virtual GPUs end when they have had nothing to do for two seconds.
inline Held held_in_quiet() {
  Held least = held_now();
  for (int i = 0; i < 80; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const Held now = held_now();
    least.descriptors = std::min(least.descriptors, now.descriptors);
    least.threads = std::min(least.threads, now.threads);
    least.memfd_mappings = std::min(least.memfd_mappings, now.memfd_mappings);
    least.memfd_kilobytes = std::min(least.memfd_kilobytes, now.memfd_kilobytes);
    least.resident_kilobytes = std::min(least.resident_kilobytes, now.resident_kilobytes);
    least.private_kilobytes = std::min(least.private_kilobytes, now.private_kilobytes);
  }
  return least;
}

/// What there is more of; "" if nothing. Memory may be in other pieces: up to so many kilobytes are no more. Sanitizers
/// keep what was freed.
constexpr long kPieces = 2048;
inline std::string more_than(const Held& before, const Held& now) {
  std::string text;
  const auto compare = [&text](const char* what, long was, long is, long tolerance) {
    if (is > was + tolerance)
      text += std::string(what) + ": " + std::to_string(was) + ", then " + std::to_string(is) + "; ";
  };
  compare("descriptors", before.descriptors, now.descriptors, 0);
  compare("threads", before.threads, now.threads, 0);
  compare("mappings of memfds", before.memfd_mappings, now.memfd_mappings, 0);
  compare("kilobytes of memfds", before.memfd_kilobytes, now.memfd_kilobytes, 0);
  if (!kMemoryCanBeLimited) return text;
  compare("resident kilobytes", before.resident_kilobytes, now.resident_kilobytes, kPieces);
  compare("private kilobytes", before.private_kilobytes, now.private_kilobytes, kPieces);
  return text;
}

/// The same once what still ends has had time to.
inline std::string grown_since(const Held& before) {
  std::string grown = more_than(before, held_now());
  for (int i = 0; i < 400 && !grown.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    grown = more_than(before, held_now());
  }
  return grown;
}

/// Files whose names tell that they are of the library, where such would lie: there are to be none. Folders are those
/// of other tests.
inline std::set<std::string> files_of_the_library() {
  std::set<std::string> found;
  for (const char* folder : {"/dev/shm", "/tmp"}) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().filename();
      const bool ours = name.starts_with("nccl") || name.starts_with("nitinol") || name.starts_with("vgpu");
      if (ours && !entry.is_directory(ignored)) found.insert(entry.path().string());
    }
  }
  return found;
}

}  // namespace nitinol::testing
