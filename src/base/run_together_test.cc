// All at once or none.
#include "base/run_together.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <string>
#include <thread>

#include "base/error.h"
#include "failing_allocation.h"

namespace nitinol {
namespace {

TEST(RunTogether, AllPartsMayWaitForEachOther) {
  std::atomic<int> there{0};
  run_together(5, [&](std::size_t) {
    ++there;
    while (there < 5) std::this_thread::yield();
  });
  EXPECT_EQ(there, 5);
  run_together(0, [&](std::size_t) { ++there; });
  run_together(1, [&](std::size_t i) { there += 10 + static_cast<int>(i); });
  EXPECT_EQ(there, 15);
}

TEST(RunTogether, WithTooFewThreadsNothingRuns) {
  // Stacks larger than the address space: the system has no room for a thread.
  pthread_attr_t usual;
  pthread_attr_t huge;
  pthread_getattr_default_np(&usual);
  pthread_attr_init(&huge);
  pthread_attr_setstacksize(&huge, std::size_t{1} << 50);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  std::atomic<int> calls{0};
  std::string sentence;
  try {
    run_together(3, [&](std::size_t) { ++calls; });
  } catch (const Error& error) {
    sentence = error.what();
  }
  pthread_setattr_default_np(&usual);
  EXPECT_EQ(calls, 0);
  EXPECT_NE(sentence.find("2 threads are needed"), std::string::npos) << sentence;
}

TEST(RunTogether, WithoutMemoryForOneOfSeveralThreadsNothingRuns) {
  std::atomic<int> runs{0};
  for (int nth = 0, failed = 1; failed != 0; ++nth) {
    const testing::FailingAllocation failing(nth, testing::FailsIn::kThisThread, testing::Fails::kAllFromThere);
    const int before = runs;
    try {
      run_together(4, [&](std::size_t) { ++runs; });
    } catch (const std::exception&) {
    }
    failed = failing.has_failed() ? 1 : 0;
    EXPECT_EQ(runs - before, failed != 0 ? 0 : 4);
  }
}

}  // namespace
}  // namespace nitinol
