// What tests look at from outside: a command's output, a folder's entries, a process.
#pragma once

#include <dirent.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

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

}  // namespace nitinol::testing
