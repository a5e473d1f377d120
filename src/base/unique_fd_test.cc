#include "base/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

namespace nitinol {
namespace {

/// In a child, as the streams are the test's.
template <class Body>
bool holds_without_standard_streams(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) ::close(fd);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(UniqueFd, TakesNoPlaceOfAStandardStream) {
  EXPECT_TRUE(holds_without_standard_streams([] {
    const UniqueFd fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
    const bool streams_are_free = ::fcntl(STDIN_FILENO, F_GETFD) < 0;
    return fd.get() > STDERR_FILENO && streams_are_free && (::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0;
  }));
  EXPECT_TRUE(holds_without_standard_streams([] {
    const UniqueFd fd(::open("/dev/null", O_RDWR));
    return fd.get() > STDERR_FILENO && (::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) == 0;
  }));
}

TEST(UniqueFd, LeavesOthersAsTheyAre) {
  const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ASSERT_GT(fd, STDERR_FILENO);
  EXPECT_EQ(UniqueFd(fd).get(), fd);
  EXPECT_FALSE(UniqueFd(-1));
}

}  // namespace
}  // namespace nitinol
