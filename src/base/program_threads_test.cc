#include "base/program_threads.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace nitinol {
namespace {

/// Whether a thread of this name counts as one of the program's.
bool counts(const char* name) {
  std::atomic<int> id{0};
  std::atomic<bool> over{false};
  std::thread thread([&] {
    pthread_setname_np(pthread_self(), name);
    id = gettid();
    while (!over) std::this_thread::yield();
  });
  while (id == 0) std::this_thread::yield();
  const std::vector<int> found = threads_of_program();
  over = true;
  thread.join();
  EXPECT_TRUE(std::is_sorted(found.begin(), found.end()));
  EXPECT_TRUE(std::binary_search(found.begin(), found.end(), gettid()));
  return std::binary_search(found.begin(), found.end(), id.load());
}

TEST(ProgramThreads, AreAllButTheLibrarysAndThoseOfCuda) {
  for (const char* other : {"loader", "nitinol", "cuda", "cuda1", "cuda-worker", "cuda0000140000x"}) {
    EXPECT_TRUE(counts(other)) << other;
  }
  for (const char* none : {"nitinol-net", "nitinol-ras", "nitinol-strict", "nitinol-watch", "vgpu-worker",
                           "vgpu-ticker", "cuda-EvtHandlr", "cuda00002c0000c"}) {
    EXPECT_FALSE(counts(none)) << none;
  }
}

}  // namespace
}  // namespace nitinol
