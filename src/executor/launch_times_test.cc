#include "executor/launch_times.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace nitinol {
namespace {

using namespace std::chrono_literals;

int64_t nanoseconds_now() { return std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

/// Work that takes until it is opened.
class Gate {
 public:
  void put_into(cudaStream_t stream) {
    const auto wait = [](void* open) {
      while (!*static_cast<std::atomic<bool>*>(open)) std::this_thread::yield();
    };
    cuda_check(cudaLaunchHostFunc(stream, wait, &open_), "cudaLaunchHostFunc");
  }
  void open() { open_ = true; }

 private:
  std::atomic<bool> open_{false};
};

TEST(LaunchTimes, AreThoseOfTheDevice) {
  LaunchTimes times;
  const Stream stream = Stream::create();
  EXPECT_TRUE(times.read(1000ms).empty());
  Gate first;
  Gate second;
  const int64_t start = nanoseconds_now();
  for (Gate* gate : {&first, &second}) {
    times.begin(stream.get());
    gate->put_into(stream.get());
    times.end(stream.get());
  }
  std::vector<LaunchRun> runs;
  while (runs.empty()) runs = times.read(1000ms);
  ASSERT_EQ(runs.size(), 1U) << "the second is behind the first";
  EXPECT_EQ(runs[0].launch, 1U);
  EXPECT_EQ(runs[0].ended, 0);
  const int64_t opened = nanoseconds_now();
  first.open();
  second.open();
  cuda_check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  const int64_t reading = nanoseconds_now();
  runs = times.read(1000ms);
  const int64_t end = nanoseconds_now();
  ASSERT_EQ(runs.size(), 2U);
  // Reading takes the device's time to be the host's in the middle of it.
  const int64_t error = (end - reading) / 2 + 1'000'000;
  EXPECT_GT(runs[0].begun, start - error);
  EXPECT_LT(runs[0].begun, opened + error);
  EXPECT_GT(runs[0].ended, opened - error);
  EXPECT_LE(runs[0].ended, runs[1].begun + 2000) << "the same moment, but for rounding";
  EXPECT_LE(runs[1].begun, runs[1].ended);
  EXPECT_LT(runs[1].ended, end + error);
}

TEST(LaunchTimes, OfTheLastAreKept) {
  LaunchTimes times;
  const Stream stream = Stream::create();
  for (size_t i = 0; i < LaunchTimes::kKept + 3; ++i) {
    times.begin(stream.get());
    times.end(stream.get());
  }
  cuda_check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  const auto runs = times.read(1000ms);
  ASSERT_EQ(runs.size(), LaunchTimes::kKept);
  EXPECT_EQ(runs.front().launch, 4U);
  EXPECT_EQ(runs.back().launch, LaunchTimes::kKept + 3);
}

TEST(LaunchTimes, OfOneThatIsBeingLaunchedHaveNoEnd) {
  LaunchTimes times;
  const Stream stream = Stream::create();
  for (size_t i = 0; i <= LaunchTimes::kKept; ++i) {
    times.begin(stream.get());
    cuda_check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
    if (i < LaunchTimes::kKept) times.end(stream.get());
  }
  const auto runs = times.read(1000ms);
  ASSERT_FALSE(runs.empty());
  EXPECT_EQ(runs.back().launch, LaunchTimes::kKept + 1);
  EXPECT_EQ(runs.back().ended, 0) << "not the one whose place it has taken";
}

}  // namespace
}  // namespace nitinol
