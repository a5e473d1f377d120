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

TEST(ProgramThreads, AreAllButTheLibrarys) {
  EXPECT_TRUE(counts("loader"));
  EXPECT_TRUE(counts("nitinol"));
  for (const char* ours : {"nitinol-net", "nitinol-ras", "nitinol-strict", "vgpu-worker", "vgpu-ticker"}) {
    EXPECT_FALSE(counts(ours)) << ours;
  }
}

}  // namespace
}  // namespace nitinol
