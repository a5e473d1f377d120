// Needs no GPU, as call_watch_test.cc, in which pinned memory becomes plain memory.
#include "executor/cuda/late_ranks.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

namespace nitinol::cuda {
namespace {

using namespace std::chrono_literals;

/// Rank 0 of two, which has called an all-reduce; nobody answers for the other.
class LateRanksOfTwo : public ::testing::Test {
 protected:
  LateRanksOfTwo() {
    CollectiveWork work;
    work.count = 4;
    work.type = work.stated = DataType::kInt32;
    note_calls(*board_, 0, Launch{.collectives = {work}, .messages = {}}, false);
    wait_.for_data.add(1);
  }
  ~LateRanksOfTwo() override { domain_.close(); }

  static ExecutorSetup setup(std::chrono::milliseconds warn_after) {
    ExecutorSetup setup;
    setup.peers.resize(2);
    setup.identity = {9, 9};
    setup.warn_after = warn_after;
    return setup;
  }
  std::string warning(LateRanks& ranks, std::chrono::milliseconds waited) const {
    return ranks.take_warning(*board_, wait_, waited).value_or("");
  }
  /// By when the other would have answered.
  std::string warning_in_time(LateRanks& ranks, std::chrono::milliseconds waited) const {
    std::string found = warning(ranks, waited);
    if (!found.empty()) return found;
    std::this_thread::sleep_for(kPatienceWithAnswers);
    return warning(ranks, waited);
  }

  Domain domain_{setup(2s), Layouts{}};
  const CallBoard* board_ = domain_.reach_board();
  LateRanks ranks_{domain_};
  KernelWait wait_;
};

TEST_F(LateRanksOfTwo, AreWarnedOfOnceForEachWaitThatIsLong) {
  EXPECT_EQ(warning_in_time(ranks_, 1999ms), "");
  EXPECT_EQ(warning_in_time(ranks_, 2000ms),
            "rank 0: AllReduce number 1 (count 4, type int32, op sum) makes no progress for 2000 ms (NITINOL_TIMEOUT "
            "ends such waits); not arrived: rank 1 (host , pid 0, device -1): its process is alive; it has not begun "
            "any collective");
  EXPECT_EQ(warning_in_time(ranks_, 9000ms), "") << "it is the same wait";
  EXPECT_EQ(warning(ranks_, 0ms), "");
  EXPECT_NE(warning_in_time(ranks_, 2500ms), "") << "it is another one";
}

TEST_F(LateRanksOfTwo, AreWarnedOfOnlyOnceTheyHaveHadTimeToAnswer) {
  EXPECT_EQ(warning(ranks_, 3000ms), "");
  EXPECT_EQ(warning(ranks_, 0ms), "");
  EXPECT_EQ(warning(ranks_, 3000ms), "") << "they are asked again";
}

TEST_F(LateRanksOfTwo, AreNotWarnedOfIfNobodyWantsIt) {
  Domain quiet(setup(0s), Layouts{});
  LateRanks ranks(quiet);
  EXPECT_EQ(warning_in_time(ranks, 100h), "");
  quiet.close();
}

}  // namespace
}  // namespace nitinol::cuda
