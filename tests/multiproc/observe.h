// What tests look at from outside: a command's output, a folder's entries, a process, a communicator that is going to
// fail.
#pragma once

#include <dirent.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "cluster.h"
#include "nccl.h"

namespace nitinol::testing {

/// The status that a shell command exits with, and what it prints.
inline std::pair<int, std::string> run_command(const std::string& command) {
  std::string text;
  FILE* const pipe = popen(command.c_str(), "r");
  std::array<char, 512> line{};
  while (fgets(line.data(), line.size(), pipe) != nullptr) text += line.data();
  return {WEXITSTATUS(pclose(pipe)), text};
}

inline int entries_of(const char* path) {
  int entries = 0;
  DIR* const directory = opendir(path);
  while (readdir(directory) != nullptr) ++entries;
  closedir(directory);
  return entries;
}

inline bool is_stopped(pid_t process) {
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(process) + "/stat"), line);
  return line.find(") T ") != std::string::npos;
}

/// Returns the state in which the communicator ends up.
inline ncclResult_t wait_for_failure(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess) {
    EXPECT_CALL(ncclCommGetAsyncError(comm, &state));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return state;
}

}  // namespace nitinol::testing
