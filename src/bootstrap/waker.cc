#include "bootstrap/waker.h"

#include <sys/timerfd.h>
#include <time.h>

#include <cerrno>

#include "base/error.h"

namespace nitinol {

Waker::Waker() : fd_(UniqueFd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK))) {
  if (!fd_) fail_errno(errno, "timerfd_create, to wake a thread");
}

void Waker::wake() const {
  itimerspec at_once{};
  at_once.it_value.tv_nsec = 1;
  timerfd_settime(fd(), 0, &at_once, nullptr);
}

void Waker::calm(int fd) {
  const itimerspec never{};
  timerfd_settime(fd, 0, &never, nullptr);
}

}  // namespace nitinol
