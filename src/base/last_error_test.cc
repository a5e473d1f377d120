#include "base/last_error.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace nitinol {
namespace {

TEST(LastError, IsTheLatestSentence) {
  set_last_error("first");
  set_last_error("second");
  EXPECT_STREQ(last_error(), "second");
  set_last_error("first");
  EXPECT_STREQ(last_error(), "first");
}

TEST(LastError, PointerStaysValidThroughAThousandNewErrors) {
  set_last_error("kept");
  const char* const kept = last_error();
  for (int i = 0; i < 1000; ++i) set_last_error("error " + std::to_string(i));
  EXPECT_STREQ(kept, "kept");
}

TEST(LastError, RepeatsPushNothingOut) {
  set_last_error("kept through repeats");
  const char* const kept = last_error();
  for (int i = 0; i < 5000; ++i) set_last_error("again");
  EXPECT_STREQ(kept, "kept through repeats");
}

TEST(LastError, ThreadsSetAndReadAtTheSameTime) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int j = 0; j < 100; ++j) {
        set_last_error("thread " + std::to_string(i) + " error " + std::to_string(j));
        EXPECT_EQ(std::string(last_error()).substr(0, 7), "thread ");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace nitinol
