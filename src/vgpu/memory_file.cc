// See memory_file.h.
#include "vgpu/memory_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ctime>

namespace nitinol::vgpu {

int make_memory_file(const char* name) { return beyond_standard_streams(memfd_create(name, MFD_CLOEXEC)); }

int beyond_standard_streams(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int beyond = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(fd);
  return beyond;
}

bool set_size(int fd, size_t size) {
  sigset_t too_large;
  sigset_t before;
  sigemptyset(&too_large);
  sigaddset(&too_large, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &too_large, &before);
  const bool done = ftruncate(fd, static_cast<off_t>(size)) == 0;
  const timespec at_once{};
  if (!done && sigismember(&before, SIGXFSZ) == 0) sigtimedwait(&too_large, nullptr, &at_once);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return done;
}

}  // namespace nitinol::vgpu
