#include "executor/cuda/hardware_queues.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <optional>
#include <thread>
#include <vector>

namespace nitinol::cuda {
namespace {

using namespace std::chrono_literals;

TEST(LaunchTurns, OfAGpuFollowEachOther) {
  constexpr int kThreads = 4;
  constexpr int kTimes = 2000;
  std::vector<std::unique_ptr<LaunchTurns>> turns;
  for (int i = 0; i < kThreads; ++i) turns.push_back(std::make_unique<LaunchTurns>(0, 1h));
  int inside = 0;
  std::atomic<int> ready{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      ready.fetch_add(1);
      while (ready.load() < kThreads) std::this_thread::yield();
      for (int k = 0; k < kTimes; ++k) {
        const LaunchTurns::Turn turn(*turns[static_cast<size_t>(i)]);
        ++inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(inside, kThreads * kTimes);
}

TEST(LaunchTurns, OfDifferentGpusAndOfOneCommunicatorAloneHoldNobodyUp) {
  LaunchTurns first(0, 1h);
  LaunchTurns other(1, 1h);
  const LaunchTurns::Turn of_first(first);
  const LaunchTurns::Turn of_other(other);
  const LaunchTurns::Turn again(first);
}

TEST(LaunchTurns, ThatTakeLongHoldNobodyUp) {
  LaunchTurns stuck(0, 1ms);
  LaunchTurns others(0, 1ms);
  const LaunchTurns::Turn long_one(stuck);
  std::async(std::launch::async, [&] {
    for (int i = 0; i < 3; ++i) const LaunchTurns::Turn turn(others);
  }).get();
}

TEST(LaunchTurns, AreTakenOnceTheOneBeforeEnds) {
  LaunchTurns first(0, 1h);
  LaunchTurns second(0, 1h);
  auto before = std::make_optional<LaunchTurns::Turn>(first);
  bool ended = false;
  auto after = std::async(std::launch::async, [&] {
    const LaunchTurns::Turn turn(second);
    return ended;
  });
  std::this_thread::sleep_for(5ms);
  ended = true;
  before.reset();
  EXPECT_TRUE(after.get());
}

}  // namespace
}  // namespace nitinol::cuda
