// What the others hear of a rank that does not get ready.
#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "bootstrap/testing.h"
#include "comm/communicator.h"

namespace nitinol {
namespace {

using ::testing::HasSubstr;

TEST(SetUp, ARankThatIsAbortedAsSoonAsItHasJoinedTellsTheOthersSo) {
  auto joined = testing::join_all(2);
  const auto communicator = std::make_shared<Communicator>(0, Config{});
  communicator->place(1, 2);
  communicator->abort();
  const Error error = testing::error_of([&] { communicator->set_up(std::move(joined[1])); });
  EXPECT_THAT(error.what(), HasSubstr("aborted meanwhile"));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!joined[0]->failure() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  ASSERT_TRUE(joined[0]->failure());
  EXPECT_EQ(joined[0]->failure()->rank, 1);
  EXPECT_THAT(joined[0]->failure()->sentence, HasSubstr("aborted its communicator"));
}

}  // namespace
}  // namespace nitinol
