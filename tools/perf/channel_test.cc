// The star of sockets between processes, here with threads at its points.
#include "channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "library.h"

namespace nitinol::perf {
namespace {

struct Ends {
  std::vector<Socket> hub;
  std::vector<Socket> leaf;
};

Ends connect_star(int processes) {
  Ends ends;
  for (int i = 1; i < processes; ++i) {
    int pair[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    ends.hub.emplace_back(pair[0]);
    ends.leaf.emplace_back(pair[1]);
  }
  return ends;
}

TEST(Channel, GathersInTheOrderOfProcessesAndMerges) {
  Ends ends = connect_star(3);
  const auto talk = [](int process, std::vector<Socket> sockets) {
    Channel channel(process, 3, std::move(sockets));
    EXPECT_EQ(channel.all_gather(std::string(1, static_cast<char>('a' + process))),
              (std::vector<std::string>{"a", "b", "c"}));
    EXPECT_EQ(channel.sum({1.0 * process, 1}), (std::vector<double>{3, 3}));
    EXPECT_EQ(channel.max({1.0 * process, -1.0 * process}), (std::vector<double>{2, 0}));
  };
  std::vector<std::thread> threads;
  for (int process = 1; process < 3; ++process) {
    threads.emplace_back([&, process] {
      std::vector<Socket> sockets;
      sockets.push_back(std::move(ends.leaf[static_cast<size_t>(process - 1)]));
      talk(process, std::move(sockets));
    });
  }
  talk(0, std::move(ends.hub));
  for (std::thread& thread : threads) thread.join();
}

TEST(Channel, AProcessThatIsGoneIsAnError) {
  Ends ends = connect_star(2);
  ends.leaf.clear();
  Channel channel(0, 2, std::move(ends.hub));
  EXPECT_THROW(channel.all_gather("anyone?"), PerfError);
}

TEST(Channel, AloneItGathersItself) {
  Channel channel;
  EXPECT_EQ(channel.all_gather("me"), (std::vector<std::string>{"me"}));
}

TEST(Channel, DifferentAmountsOfNumbersAreAnError) {
  Ends ends = connect_star(2);
  std::thread other([&] {
    Channel channel(1, 2, std::move(ends.leaf));
    EXPECT_THROW(channel.sum({1, 2}), PerfError);
  });
  Channel channel(0, 2, std::move(ends.hub));
  EXPECT_THROW(channel.sum({1}), PerfError);
  other.join();
}

}  // namespace
}  // namespace nitinol::perf
