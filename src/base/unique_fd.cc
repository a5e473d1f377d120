#include "base/unique_fd.h"

#include <fcntl.h>

#include <cerrno>

namespace nitinol {

int UniqueFd::beyond_standard_streams(int fd) {
  const int before = errno;
  const bool stays_open_on_exec = (::fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0;
  const int beyond = ::fcntl(fd, stays_open_on_exec ? F_DUPFD : F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (beyond >= 0) ::close(fd);
  errno = before;
  return beyond >= 0 ? beyond : fd;
}

}  // namespace nitinol
