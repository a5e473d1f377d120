// A folder of a test's own.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace nitinol::testing {

/// Goes with all that is in it.
class Folder {
 public:
  Folder() {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp");
  }
  ~Folder() {
    if (std::system(("rm -r " + path_).c_str()) != 0) std::perror("rm");
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/nitinol-test-XXXXXX";
};

}  // namespace nitinol::testing
