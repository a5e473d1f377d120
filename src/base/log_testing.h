// For tests: a log in a file of its own.
#pragma once

#include <string>

#include "base/log.h"
#include "base/settings_testing.h"
#include "base/temporary_folder_testing.h"

namespace nitinol {

class LogInFile {
 public:
  explicit LogInFile(const char* level) : level_("NCCL_DEBUG", level) {}
  /// All of it so far.
  std::string text() const { return folder_.read("log"); }

 private:
  struct FreshLog {
    FreshLog() { reset_log(); }
    ~FreshLog() { reset_log(); }
    FreshLog(const FreshLog&) = delete;
    FreshLog& operator=(const FreshLog&) = delete;
  };

  FreshLog log_;  // first and last
  TemporaryFolder folder_;
  ScopedVariable level_;
  ScopedVariable file_{"NCCL_DEBUG_FILE", folder_.file("log").c_str()};
};

}  // namespace nitinol
