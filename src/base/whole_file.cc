#include "base/whole_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "base/open_for_writing.h"
#include "base/unique_fd.h"
#include "base/write_all.h"

namespace nitinol {
namespace {

int write_at(const std::string& path, std::string_view text) {
  UniqueFd fd = open_for_writing(path);
  if (!fd) return errno;
  if (const int error = write_all(fd.get(), text)) return error;
  return ::close(fd.release()) == 0 ? 0 : errno;  // some file systems only tell here
}

/// Under another name first, which nobody else of this PID namespace uses meanwhile.
int write_aside(const std::string& path, std::string_view text) {
  const std::string aside = formatted("{}.{}.part", path, ::gettid());
  int error = write_at(aside, text);
  if (error == 0 && std::rename(aside.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) ::unlink(aside.c_str());
  return error;
}

}  // namespace

int write_whole_file(const std::string& path, std::string_view text) {
  struct stat there {};
  const bool replaceable = ::lstat(path.c_str(), &there) != 0 || S_ISREG(there.st_mode);
  const int error = replaceable ? write_aside(path, text) : EPERM;
  const bool only_the_file = error == EPERM || error == EACCES || error == ENAMETOOLONG;
  return only_the_file ? write_at(path, text) : error;
}

}  // namespace nitinol
