// Streams while the system has no thread for the engine. (A thread that an earlier test has left may serve here: in a
// process of its own, each of these tests begins without any.)
#include <pthread.h>
#include <unistd.h>

#include <system_error>
#include <thread>

#include "vgpu/test_support.h"

namespace nitinol::vgpu::test {
namespace {

// Until it goes: no thread can be started, as no address space holds the stack it would get.
class NoThreads {
 public:
  NoThreads() {
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    pthread_attr_t huge;
    EXPECT_EQ(pthread_attr_init(&huge), 0);
    EXPECT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 60), 0);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
    pthread_attr_destroy(&huge);
    EXPECT_THROW(std::thread([] {}).join(), std::system_error);
  }
  ~NoThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

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

[[noreturn]] void poll_without_threads() {
  begin();
  const NoThreads none;
  StreamOwner stream;
  enqueue(stream, [] {});
  for (int i = 0; i < 3; ++i) ask_for(stream);
  _exit(0);
}

TEST(NoThreads, WhoPollsIsToldOnce) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(poll_without_threads(), ::testing::ExitedWithCode(0), "^vgpu: the system has no thread.*\n$");
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
