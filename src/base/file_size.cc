#include "base/file_size.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "base/error.h"

namespace nitinol {

namespace {

/// 0, or why not.
int try_size(int fd, std::size_t bytes) {
  sigset_t too_large;
  sigset_t before;
  sigemptyset(&too_large);
  sigaddset(&too_large, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &too_large, &before);
  const int error = ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  const timespec at_once{};
  if (error == EFBIG && sigismember(&before, SIGXFSZ) == 0) sigtimedwait(&too_large, nullptr, &at_once);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

}  // namespace

void set_file_size(int fd, std::size_t bytes, const char* what) {
  const int error = try_size(fd, bytes);
  if (error == 0) return;
  fail_errno(error, formatted("making {} bytes of {} failed{}", bytes, what,
                              error == EFBIG ? " (is the size of files limited, by ulimit -f?)" : ""));
}

}  // namespace nitinol
