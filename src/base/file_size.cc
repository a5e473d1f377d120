#include "base/file_size.h"

#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/signals_of_files.h"

namespace nitinol {

namespace {

/// 0, or why not.
int try_size(int fd, std::size_t bytes) {
  const SignalsOfFiles signals;
  return ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : signals.take(errno);
}

}  // namespace

void set_file_size(int fd, std::size_t bytes, const char* what) {
  const int error = try_size(fd, bytes);
  if (error == 0) return;
  fail_errno(error, formatted("making {} bytes of {} failed{}", bytes, what,
                              error == EFBIG ? " (is the size of files limited, by ulimit -f?)" : ""));
}

}  // namespace nitinol
