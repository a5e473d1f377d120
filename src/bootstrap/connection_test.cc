// What goes wrong on the network thread itself ends a connection with its cause.
#include "bootstrap/connection.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <new>
#include <span>
#include <thread>
#include <vector>

#include "bootstrap/acceptor.h"
#include "bootstrap/network.h"
#include "bootstrap/testing.h"
#include "failing_allocation.h"

namespace nitinol {
namespace {

using testing::ends;
using ::testing::HasSubstr;

/// What no thread can wait for.
UniqueFd ordinary_file() { return UniqueFd(memfd_create("nitinol-test", MFD_CLOEXEC)); }

Connection::Events told_by(std::promise<Ending>& ended, std::function<void(Frame)> on_frame = {}) {
  return {std::move(on_frame), [&ended](const Ending& ending) { ended.set_value(ending); }};
}

TEST(Connection, EndsIfItCannotBeWatched) {
  std::promise<Ending> ended;
  const auto connection = Connection::start(ordinary_file(), Network::instance().reactor(), told_by(ended));
  const Ending ending = ended.get_future().get();
  EXPECT_TRUE(ending.closed_here);
  EXPECT_THAT(ending.reason, HasSubstr("epoll_ctl of the bootstrap's network thread: Operation not permitted"));
}

TEST(Connection, EndsIfThereIsNoMemoryForWhatComes) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  Reactor& reactor = Network::instance().reactor();
  std::promise<Ending> ended;
  const auto reader =
      Connection::start(UniqueFd(ends[0]), reactor, told_by(ended, [](const Frame&) { throw std::bad_alloc(); }));
  const auto writer = Connection::start(UniqueFd(ends[1]), reactor, {});
  writer->send(Frame());
  const Ending ending = ended.get_future().get();
  EXPECT_TRUE(ending.closed_here);
  EXPECT_THAT(ending.reason, HasSubstr("out of memory"));
  writer->close_now();
}

TEST(Connection, HearsNothingOnceItIsToClose) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd peer(pair[1]);
  std::promise<Connection*> itself;
  const std::shared_future<Connection*> reader_itself = itself.get_future().share();
  std::atomic<int> heard{0};
  const auto reader = Connection::start(UniqueFd(pair[0]), Network::instance().reactor(),
                                        {[&, reader_itself](const Frame&) {
                                           ++heard;
                                           reader_itself.get()->close_now();
                                         },
                                         {}});
  itself.set_value(reader.get());
  auto bytes = encode_frame(Frame());
  const auto second = encode_frame(Frame());
  bytes.insert(bytes.end(), second.begin(), second.end());
  ASSERT_EQ(::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  EXPECT_TRUE(ends(peer.get()));
  EXPECT_EQ(heard, 1);
}

/// How many whole frames come, before so many have or nothing does for long.
int frames_from(int fd, int most) {
  FrameReader reader;
  std::vector<std::byte> part(1 << 16);
  pollfd entry{fd, POLLIN, 0};
  int frames = 0;
  while (frames < most && ::poll(&entry, 1, 30'000) == 1) {
    const auto got = ::recv(fd, part.data(), part.size(), MSG_DONTWAIT);
    if (got <= 0 || !reader.feed(std::span(part).first(static_cast<std::size_t>(got)))) break;
    while (reader.take()) ++frames;
  }
  return frames;
}

/// A frame that has found no room in the socket, at each allocation that sending it takes, and one that comes behind.
TEST(Connection, SendsWhatItHasQueuedThoughThereWasNoMemoryToWaitForRoom) {
  bool failed = true;
  for (int nth = 0; failed; ++nth) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    const UniqueFd peer(pair[1]);
    const auto connection = Connection::start(UniqueFd(pair[0]), Network::instance().reactor(), {});
    Frame large;
    large.payload.resize(4 << 20);
    {
      const testing::FailingAllocation failing(nth);
      try {
        connection->send(large);
      } catch (const std::bad_alloc&) {
      }
      failed = failing.has_failed();
    }
    const bool is_queued = !connection->flushed();
    connection->send(Frame());
    const int all = is_queued ? 2 : 1;
    EXPECT_EQ(frames_from(peer.get(), all), all) << nth;
    connection->close_now();
  }
}

TEST(Acceptor, SaysWhyItLetsNobodyIn) {
  Network& network = Network::instance();
  const auto acceptor = Acceptor::start(ordinary_file(), network.reactor(), network.services());
  while (acceptor->error() == 0) std::this_thread::yield();
  EXPECT_EQ(acceptor->error(), EPERM);
  acceptor->stop();
}

}  // namespace
}  // namespace nitinol
