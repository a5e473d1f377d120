// What is made of a peer that does not hand over its memory.
#include "comm/handle_exchange.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/process_state.h"

namespace nitinol {
namespace {

/// Rank 0 beside a rank of its process, so one that lives, that offers nothing.
class Refusal : public ::testing::Test {
 public:
  Refusal() {
    Peer peer;
    peer.pid = getpid();
    peer.pid_namespace = pid_namespace();
    const FdServerName server = exchange_.server_name();
    std::copy(server.text.begin(), server.text.end(), peer.handle_server.begin());
    exchange_.set_peers({peer, peer});
  }

 protected:
  bool turns_out_gone(std::function<bool(int)> is_gone) {
    exchange_.ask_for_gone(std::move(is_gone));
    return exchange_.turns_out_gone(1);
  }

  std::atomic<bool> aborted_{false};
  SocketHandleExchange exchange_{random_secret(), 0, std::chrono::seconds(60), &aborted_};
};

TEST_F(Refusal, IsARemoteError) {
  try {
    static_cast<void>(exchange_.fetch(1, 77));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ncclRemoteError);
  }
}

TEST_F(Refusal, OfOneThatIsHeardToBeGoneAMomentLaterIsItsEnd) {
  int looks = 0;
  EXPECT_TRUE(turns_out_gone([&](int peer) {
    EXPECT_EQ(peer, 1);
    return ++looks == 3;
  }));
}

TEST_F(Refusal, OfOneThatLivesIsNot) {
  EXPECT_FALSE(turns_out_gone([](int) { return false; }));
}

TEST_F(Refusal, IsNotLookedIntoByWhoAborts) {
  int looks = 0;
  EXPECT_FALSE(turns_out_gone([&](int) {
    aborted_ = true;
    return ++looks > 1;
  }));
}

}  // namespace
}  // namespace nitinol
