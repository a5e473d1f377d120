#include "base/fork_safe.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "failing_allocation.h"

namespace nitinol {
namespace {

TEST(ForkSafe, AChildFindsTheMutexFreeThoughAnotherThreadWasAtIt) {
  static auto* const mutex = new std::mutex;
  keep_free_across_forks(*mutex);
  std::atomic<bool> over{false};
  std::thread busy([&] {
    while (!over) const std::lock_guard lock(*mutex);
  });
  for (int i = 0; i < 200; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(mutex->try_lock() ? 0 : 1);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(WEXITSTATUS(status), 0) << i;
  }
  over = true;
  busy.join();
  EXPECT_TRUE(mutex->try_lock()) << "in the parent";
  mutex->unlock();
}

/// Where it is the first of its process: forks would take the same locks twice, and wait for ever.
TEST(ForkSafe, ForksGoOnThoughThereWasNoMemoryForTheFirstMutex) {
  static auto* const mutex = new std::mutex;
  testing::fail_each_allocation_of([] { keep_free_across_forks(*mutex); });
  const pid_t child = fork();
  if (child == 0) _exit(0);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace nitinol
