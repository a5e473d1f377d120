#include "bootstrap/reactor.h"

#include <gtest/gtest.h>

#include <thread>

#include "bootstrap/closed_descriptors_testing.h"

namespace nitinol {
namespace {

class ReactorWithout : public ::testing::TestWithParam<const char*> {};

/// Nothing is woken by a descriptor that is closed, nor does who waits for it notice.
TEST_P(ReactorWithout, ItsDescriptorsStillRunsWhatIsPostedAndStops) {
  const auto before = testing::open_descriptors();
  Reactor reactor;
  std::thread thread([&] { reactor.run(); });
  std::atomic<int> ran{0};
  reactor.post([&] { ran = 1; });
  while (ran < 1) std::this_thread::yield();
  ASSERT_EQ(1, testing::close_new_descriptors(before, GetParam()));
  reactor.post([&] { ran = 2; });
  while (ran < 2) std::this_thread::yield();
  reactor.stop();
  thread.join();
}

INSTANTIATE_TEST_SUITE_P(Some, ReactorWithout, ::testing::Values("anon_inode:[eventfd]", "anon_inode:[eventpoll]"));

}  // namespace
}  // namespace nitinol
