// How long one rank waits for its neighbour in the tree before it blames it.
#include "bootstrap/tree.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <span>
#include <string_view>

#include "base/log_testing.h"
#include "bootstrap/exchange.h"
#include "bootstrap/testing.h"
#include "failing_allocation.h"

namespace nitinol {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::ends;
using testing::error_of;
using ::testing::HasSubstr;

/// Rank 0 of six, alone. Rank 5 is below rank 1.
std::shared_ptr<Tree> alone() {
  TreeArguments arguments;
  arguments.shape = TreeShape(6, 1);
  arguments.options = testing::quick_options();
  return Tree::start(arguments);
}

/// What a rank sees that has stood still for longer than it was to wait.
Deadline long_over() { return Clock::now() - 100s; }

TEST(Tree, WhoWaitsThroughOthersGivesThemTimeFromNowOn) {
  const auto tree = alone();
  const Deadline deadline = long_over();
  const auto begin = Clock::now();
  const Error error = error_of([&] { tree->receive(1, tree->next_step(Operation::kBarrier), deadline); });
  EXPECT_EQ(error.code(), ncclRemoteError);
  EXPECT_THAT(error.what(), HasSubstr("for rank 1 in barrier"));
  EXPECT_GE(Clock::now() - begin, 250ms);  // rank 1 may wait for rank 5
}

TEST(Tree, ANeighbourThatHasFailedHasTimeToSayWhy) {
  const auto tree = alone();
  tree->ask_for_doings([](int) { return DoingsOfRank{"stopped", true}; });
  const Deadline deadline = long_over();
  const auto begin = Clock::now();
  const Error error = error_of([&] { tree->receive(1, tree->next_step(Operation::kBarrier), deadline); });
  EXPECT_THAT(error.what(), HasSubstr("; stopped: does every rank"));
  EXPECT_GE(Clock::now() - begin, 1s);
}

TEST(Tree, WhatANeighbourSaysOfItsFailureIsTheFirstCause) {
  const auto tree = alone();
  std::atomic<bool> asked{false};
  tree->ask_for_doings([&](int) {
    asked = true;
    return DoingsOfRank{"stopped", true};
  });
  std::thread network([&] {
    while (!asked) std::this_thread::yield();
    tree->report({5, ncclRemoteError, "rank 5 has no memory"});
  });
  const Error error = error_of([&] { tree->receive(1, tree->next_step(Operation::kBarrier), long_over()); });
  network.join();
  EXPECT_STREQ(error.what(), "rank 5 has no memory");
}

/// A proven connection to this rank, as its children have.
UniqueFd connect_to(const Tree& tree) {
  const auto options = testing::quick_options();
  return connect_to_peer({tree.listener_address(),
                          rank_key(tree.secret(), tree.rank(), tree.contact()),
                          "rank 0",
                          options,
                          Clock::now() + 60s,
                          {}});
}

std::vector<std::byte> frame_of(FrameType type, std::vector<std::byte> payload) {
  return encode_frame(control_frame(type, std::move(payload)));
}

void send_frame(int fd, FrameType type, std::vector<std::byte> payload) {
  const auto bytes = frame_of(type, std::move(payload));
  ASSERT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

TEST(Tree, AChildThatSaysWhoItIsToARankThatHasGoneSeesItsEnd) {
  auto tree = alone();
  const UniqueFd child = connect_to(*tree);
  const UniqueFd other = connect_to(*tree);
  send_frame(other.get(), FrameType::kGoodbye, {});  // what no child begins with
  EXPECT_TRUE(ends(other.get()));                    // so the earlier one has been accepted
  tree.reset();
  send_frame(child.get(), FrameType::kHello, encode(Hello{1, this_process()}));
  EXPECT_TRUE(ends(child.get()));
}

/// Rank 0 of two, alone.
std::shared_ptr<Tree> parent_of_one() {
  TreeArguments arguments;
  arguments.shape = TreeShape(2, 1);
  arguments.options = testing::quick_options();
  return Tree::start(arguments);
}

TEST(Tree, AConnectionThatBeginsWithAnythingButAHelloIsNoChild) {
  const auto tree = parent_of_one();
  const UniqueFd wrong = connect_to(*tree);
  auto bytes = frame_of(FrameType::kFail, encode(Failure{1, ncclRemoteError, "rank 1 failed"}));
  const auto hello = frame_of(FrameType::kHello, encode(Hello{1, this_process()}));
  bytes.insert(bytes.end(), hello.begin(), hello.end());  // both are there when it reads
  ASSERT_EQ(::send(wrong.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  EXPECT_TRUE(ends(wrong.get()));
  EXPECT_FALSE(tree->is_connected_to(1));
  const UniqueFd child = connect_to(*tree);
  send_frame(child.get(), FrameType::kHello, encode(Hello{1, this_process()}));
  tree->wait_for_children(Clock::now() + 60s, {});
}

TEST(Tree, AChildThatSaysOnceMoreWhoItIsIsLost) {
  const auto tree = parent_of_one();
  const UniqueFd child = connect_to(*tree);
  for (int i = 0; i < 2; ++i) send_frame(child.get(), FrameType::kHello, encode(Hello{1, this_process()}));
  const Error error = error_of([&] { tree->receive(1, tree->next_step(Operation::kBarrier), Clock::now() + 60s); });
  EXPECT_THAT(error.what(), HasSubstr("closed its connection (it said once more who it is)"));
  EXPECT_TRUE(ends(child.get()));
}

/// What comes until the connection ends, as far as there is room; without memory.
std::string_view hear_out(int fd, std::span<char> room) {
  std::size_t filled = 0;
  pollfd entry{fd, POLLIN, 0};
  while (filled < room.size() && ::poll(&entry, 1, 20'000) == 1) {
    const auto got = ::recv(fd, room.data() + filled, room.size() - filled, MSG_DONTWAIT);
    if (got <= 0) break;
    filled += static_cast<std::size_t>(got);
  }
  return {room.data(), filled};
}

TEST(Tree, ARankThatHasNoMemoryToHearAnotherTellsItSo) {
  const auto tree = parent_of_one();
  const UniqueFd child = connect_to(*tree);
  send_frame(child.get(), FrameType::kHello, encode(Hello{1, this_process()}));
  tree->wait_for_children(Clock::now() + 60s, {});
  Frame frame;
  frame.payload.resize(1000);
  const auto bytes = encode_frame(frame);
  std::array<char, 4096> room{};
  std::string_view heard;
  {
    const testing::FailingAllocation failing(0, testing::FailsIn::kEveryThread);
    ASSERT_EQ(::send(child.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    heard = hear_out(child.get(), room);
  }
  EXPECT_THAT(std::string(heard), HasSubstr("failed: out of memory"));
}

/// Rank 0 of two, which tells of what it waits for after 20 ms.
class LongWait : public ::testing::Test {
 protected:
  LongWait() {
    TreeArguments arguments;
    arguments.shape = TreeShape(2, 1);
    arguments.options = testing::quick_options();
    arguments.options.warn_after = 20ms;
    tree_ = Tree::start(arguments);
  }

  std::string log() const { return warnings_.text(); }
  void await(const char* warning) const {
    while (log().find(warning) == std::string::npos) std::this_thread::sleep_for(1ms);
  }
  UniqueFd child() const {
    UniqueFd fd = connect_to(*tree_);
    send_frame(fd.get(), FrameType::kHello, encode(Hello{1, this_process()}));
    return fd;
  }
  /// What the child has to send in the first barrier.
  static void send_its_part(const UniqueFd& child) {
    Frame frame;
    frame.operation = Operation::kBarrier;
    frame.sequence = 1;
    const auto bytes = encode_frame(frame);
    ASSERT_EQ(::send(child.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }

  static constexpr const char* kOfAnOperation =
      " NCCL WARN still waiting (NITINOL_TIMEOUT ends such waits): rank 0 waited ";
  LogInFile warnings_{"WARN"};
  std::shared_ptr<Tree> tree_;
};

TEST_F(LongWait, IsToldOfOnceAndGoesOn) {
  const UniqueFd connection = child();
  tree_->wait_for_children(Clock::now() + 60s, {});
  tree_->set_operation_timeout(50s);
  std::thread late([&] {
    await(kOfAnOperation);
    std::this_thread::sleep_for(200ms);  // in which it could be told again
    send_its_part(connection);
  });
  tree_->receive(1, tree_->next_step(Operation::kBarrier), Clock::now() + 60s);
  late.join();
  EXPECT_THAT(log(), HasSubstr(" ms for rank 1 (host "));
  EXPECT_EQ(log().find(kOfAnOperation), log().rfind(kOfAnOperation));
}

TEST_F(LongWait, ForAChildIsToldOfAsWell) {
  UniqueFd connection;
  std::thread late([&] {
    await("still waiting (NITINOL_INIT_TIMEOUT ends such waits): rank 1 ");
    connection = child();
  });
  tree_->wait_for_children(Clock::now() + 60s, {});
  late.join();
  EXPECT_THAT(log(), HasSubstr(" did not arrive: it did not connect to rank 0 within "));
}

TEST_F(LongWait, GoesOnWithoutMemoryToTellOfIt) {
  const UniqueFd connection = child();
  tree_->wait_for_children(Clock::now() + 60s, {});
  std::atomic<bool> is_over{false};
  std::thread late([&] {
    while (!is_over) std::this_thread::sleep_for(1ms);
    send_its_part(connection);
  });
  const OperationStep step = tree_->next_step(Operation::kBarrier);
  const auto begin = Clock::now();
  {
    const testing::FailingAllocation failing(0, testing::FailsIn::kThisThread, testing::Fails::kAllFromThere);
    tree_->receive(1, step, begin + 60s, [&] { is_over = failing.has_failed(); });
  }
  late.join();
  EXPECT_EQ(log().find("rank 0 waited"), std::string::npos) << log();
}

TEST(Tree, WhoEntersItIsToldWhatIsKnownElsewhere) {
  const auto tree = alone();
  const Error error = error_of([&] { enter_together(*tree, [] { fail(ncclRemoteError, "rank 4 has given up"); }); });
  EXPECT_STREQ(error.what(), "rank 4 has given up");
}

}  // namespace
}  // namespace nitinol
