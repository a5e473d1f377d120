// The process's listening sockets, and what it buries.
#include "bootstrap/network.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "bootstrap/loopback_testing.h"
#include "bootstrap/testing.h"

namespace nitinol {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// The network thread has something to bury when a root ends; and whoever waits for a port may wait for that thread to
/// close a socket.
TEST(Network, BuriesWhileSomebodyWaitsForAPort) {
  Network& network = Network::instance();
  const UniqueFd holder(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress taken = bind_to_loopback(holder.get());
  ASSERT_EQ(::listen(holder.get(), 1), 0);
  std::promise<void> begins;
  Clock::time_point ended{};
  std::thread waiting([&] {
    begins.set_value();
    EXPECT_EQ(testing::error_of([&] { static_cast<void>(network.listen(taken)); }).code(), ncclSystemError);
    ended = Clock::now();
  });
  begins.get_future().wait();
  std::this_thread::sleep_for(100ms);
  network.bury(std::make_shared<int>());
  const auto buried = Clock::now();
  waiting.join();
  EXPECT_LT(buried, ended - 1s) << "it has waited as long as the other";
}

}  // namespace
}  // namespace nitinol
