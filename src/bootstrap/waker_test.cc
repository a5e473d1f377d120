#include "bootstrap/waker.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

namespace nitinol {
namespace {

bool is_readable(int fd, int milliseconds) {
  pollfd waiting{fd, POLLIN, 0};
  return poll(&waiting, 1, milliseconds) == 1;
}

constexpr int kLong = 60'000;

TEST(Waker, IsReadableFromACallUntilItIsCalmed) {
  const Waker waker;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(is_readable(waker.fd(), 0));
    waker.wake();
    waker.wake();
    EXPECT_TRUE(is_readable(waker.fd(), kLong));
    EXPECT_TRUE(is_readable(waker.fd(), 0));
    waker.calm();
  }
}

/// The number that a program has closed by mistake goes to a socket of its own.
TEST(Waker, WritesNothingToAFileThatHasItsNumber) {
  const Waker waker;
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd mine(ends[0]);
  UniqueFd theirs(ends[1]);
  ASSERT_EQ(dup3(mine.get(), waker.fd(), O_CLOEXEC), waker.fd());
  waker.wake();
  EXPECT_FALSE(is_readable(theirs.get(), 0));
  theirs.reset();
  waker.wake();  // to nobody: that raised SIGPIPE
  ASSERT_EQ(::send(mine.get(), "x", 1, MSG_NOSIGNAL), -1);
  EXPECT_EQ(errno, EPIPE);
}

TEST(Waker, ReadsNothingFromAFileThatHasItsNumber) {
  const Waker waker;
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd mine(ends[0]);
  const UniqueFd theirs(ends[1]);
  ASSERT_EQ(dup3(mine.get(), waker.fd(), O_CLOEXEC), waker.fd());
  ASSERT_EQ(::send(theirs.get(), "12345678", 8, MSG_NOSIGNAL), 8);
  waker.calm();
  EXPECT_TRUE(is_readable(mine.get(), 0));
}

}  // namespace
}  // namespace nitinol
