#include "executor/cuda/late_watch.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <new>
#include <thread>
#include <vector>

#include "scarcity.h"

namespace nitinol::cuda {
namespace {

void wait_for(const std::atomic<int>& looks, int least) {
  while (looks < least) std::this_thread::yield();
}

TEST(LateWatch, LooksUntilWatchingEndsAndNotAfterwards) {
  std::atomic<int> looks{0};
  const uint64_t id = start_watching([&] { ++looks; });
  wait_for(looks, 2);
  stop_watching(id);
  const int last = looks;
  std::atomic<int> others{0};
  const uint64_t other = start_watching([&] { ++others; });
  wait_for(others, 3);
  stop_watching(other);
  EXPECT_EQ(looks, last);
}

TEST(LateWatch, ManyAreWatchedAndGoFromAnyThread) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] {
      for (int round = 0; round < 3; ++round) {
        std::atomic<int> looks{0};
        const uint64_t id = start_watching([&] { ++looks; });
        wait_for(looks, 1);
        stop_watching(id);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(LateWatch, LooksSoonIfItIsAskedTo) {
  std::atomic<int> looks{0};
  const uint64_t id = start_watching([&] { ++looks; });
  for (int i = 0; i < 100; ++i) {
    const int before = looks;
    look_soon();
    wait_for(looks, before + 1);
  }
  stop_watching(id);
}

TEST(LateWatch, GoesOnThoughALookThrows) {
  std::atomic<int> failures{0};
  std::atomic<int> looks{0};
  const uint64_t failing = start_watching([&] {
    ++failures;
    throw std::bad_alloc();
  });
  const uint64_t other = start_watching([&] { ++looks; });
  wait_for(failures, 3);
  wait_for(looks, 3);
  stop_watching(failing);
  stop_watching(other);
}

TEST(LateWatch, LooksAgainAfterThereWasNoThreadForIt) {
  std::atomic<int> looks{0};
  const auto fails_to_start = [&] {
    const testing::NoThreads none;
    try {
      stop_watching(start_watching([] {}));  // the thread of an earlier one is there still
      return false;
    } catch (const std::exception&) {
      return true;
    }
  };
  while (!fails_to_start()) std::this_thread::yield();
  const uint64_t id = start_watching([&] { ++looks; });
  wait_for(looks, 2);
  stop_watching(id);
}

TEST(LateWatch, EndsThoughAnotherLookIsHeldUp) {
  std::atomic<int> looks{0};
  std::atomic<bool> held_up{false};
  std::atomic<bool> over{false};
  const uint64_t first = start_watching([&] { ++looks; });
  const uint64_t second = start_watching([&] {
    held_up = true;
    while (!over) std::this_thread::yield();
  });
  while (!held_up) std::this_thread::yield();
  stop_watching(first);
  over = true;
  stop_watching(second);
  EXPECT_GT(looks, 0);
}

std::atomic<int> looks_at_the_end{0};

TEST(LateWatchDeathTest, NothingIsLookedAtOnceTheProcessEnds) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto end_while_watching = [] {
    std::atexit([] {  // as CUDA would have done, earlier
      const int then = looks_at_the_end;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      if (looks_at_the_end != then) _exit(1);
    });
    start_watching([] { ++looks_at_the_end; });
    wait_for(looks_at_the_end, 2);
    std::exit(0);
  };
  EXPECT_EXIT(end_while_watching(), ::testing::ExitedWithCode(0), "");
}

TEST(LateWatch, EndingTwiceIsFine) {
  const uint64_t id = start_watching([] {});
  stop_watching(id);
  stop_watching(id);
}

}  // namespace
}  // namespace nitinol::cuda
