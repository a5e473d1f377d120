// Streams while the system has no thread for the engine. (One that is there already may serve: of an earlier test, or
// for the work that a test begins with, if that stood still for a moment.)
#include <unistd.h>

#include <thread>

#include "scarcity.h"
#include "vgpu/test_support.h"

namespace nitinol::vgpu::test {
namespace {

using testing::NoThreads;

// So that there is the thread that gives work away.
void begin() {
  StreamOwner stream;
  enqueue(stream, [] {});
  ASSERT_CUDA(cudaStreamSynchronize(stream));
}

// Gives the stream away, as far as that is possible.
void ask_for(cudaStream_t stream) {
  static_cast<void>(cudaStreamQuery(stream));
  cudaGetLastError();
}

// A thread that is there already is kept by the first stream.
[[noreturn]] void poll_without_threads() {
  begin();
  const NoThreads none;
  Gate gate;
  StreamOwner first;
  StreamOwner second;
  enqueue_gate(first, gate);
  enqueue_gate(second, gate);
  for (int i = 0; i < 3; ++i) {
    ask_for(first);
    ask_for(second);
  }
  _exit(0);
}

TEST(NoThreads, WhoPollsIsToldOnce) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(poll_without_threads(), ::testing::ExitedWithCode(0), "^vgpu: the system has no thread[^\n]*\n$");
}

TEST(NoThreads, WhoWaitsForAStreamExecutesIt) {
  begin();
  const NoThreads none;
  StreamOwner stream;
  int ran = 0;
  for (int i = 0; i < 100; ++i) {
    enqueue(stream, [&] { ++ran; });
    ask_for(stream);
    ASSERT_CUDA(cudaStreamSynchronize(stream));
  }
  EXPECT_EQ(ran, 100);
}

TEST(NoThreads, WhoWaitsForAStreamExecutesWhatItWaitsFor) {
  begin();
  const NoThreads none;
  StreamOwner first;
  StreamOwner second;
  EventOwner event;
  int ran = 0;
  enqueue(first, [&] { ran = 1; });
  ASSERT_CUDA(cudaEventRecord(event, first));
  ASSERT_CUDA(cudaStreamWaitEvent(second, event, 0));
  enqueue(second, [&] { ran *= 2; });
  ask_for(first);
  ask_for(second);
  ASSERT_CUDA(cudaStreamSynchronize(second));
  EXPECT_EQ(ran, 2);
}

TEST(NoThreads, WorkThatNobodyWaitsForRunsOnceThereAreThreads) {
  begin();
  StreamOwner stream;
  Gate ran;
  {
    const NoThreads none;
    enqueue(stream, [&] { ran.open(); });
    ask_for(stream);
  }
  ran.wait();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
}

TEST(NoThreads, WorkIsWatchedThoughTheFirstCouldNotBe) {
  StreamOwner stream;
  Gate ran;
  {
    const NoThreads none;
    enqueue(stream, [] {});
    ask_for(stream);
  }
  enqueue(stream, [&] { ran.open(); });
  ran.wait();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
}

}  // namespace
}  // namespace nitinol::vgpu::test
