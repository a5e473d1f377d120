// The failure watch and proper leaving.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <future>
#include <string>

#include "bootstrap/testing.h"
#include "failing_allocation.h"

namespace nitinol {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::join_all;
using testing::quick_options;
using testing::run_threads;
using ::testing::StrEq;

/// Notes the failure of each rank.
class Watchers {
 public:
  explicit Watchers(const std::vector<std::unique_ptr<Bootstrap>>& all) : promises_(all.size()) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i]) all[i]->watch([this, i](const Failure& failure) { promises_[i].set_value(failure); });
    }
  }
  Failure wait(std::size_t rank) { return promises_[rank].get_future().get(); }

 private:
  std::vector<std::promise<Failure>> promises_;
};

TEST(Watch, ALostRankIsNamedOnEveryOther) {
  auto all = join_all(9);
  Watchers watchers(all);
  all[6].reset();  // without a goodbye
  for (const std::size_t rank : {0, 1, 2, 3, 4, 5, 7, 8}) {
    const Failure failure = watchers.wait(rank);
    EXPECT_EQ(failure.rank, 6);
    EXPECT_EQ(failure.result, ncclRemoteError);
    EXPECT_THAT(failure.sentence, AllOf(HasSubstr("rank 6 (host "), HasSubstr("exited or closed its connection")));
  }
  EXPECT_EQ(error_of([&] { all[0]->barrier(); }).code(), ncclRemoteError);
}

TEST(Watch, AnOwnFailureTravelsWithItsSentence) {
  auto all = join_all(7);
  Watchers watchers(all);
  all[4]->report_failure({4, ncclUnhandledCudaError, "rank 4: an illegal memory access"});
  all[4]->report_failure({4, ncclInternalError, "a later one, which does not count"});
  for (std::size_t rank = 0; rank < 7; ++rank) {
    const Failure failure = watchers.wait(rank);
    EXPECT_EQ(failure.rank, 4);
    EXPECT_EQ(failure.result, ncclUnhandledCudaError);
    EXPECT_EQ(failure.sentence, "rank 4: an illegal memory access");
  }
}

/// All have heard of it.
void await_failure(const std::vector<std::unique_ptr<Bootstrap>>& all) {
  for (const auto& one : all) {
    while (!one->failure()) std::this_thread::yield();
  }
}

TEST(Watch, OfARankThatHasDepartedIsToldLater) {
  BootstrapOptions options = quick_options();
  options.grace_of_gone = std::chrono::milliseconds(1);
  auto all = join_all(5, options);
  Watchers watchers(all);
  all[3]->report_failure({3, ncclRemoteError, "rank 3 aborted its communicator", Parting::kDeparted});
  for (std::size_t rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(watchers.wait(rank).sentence, "rank 3 aborted its communicator");
  }
}

TEST(Watch, ARankThatHasDepartedEndsWhatWaitsForAllAtOnce) {
  BootstrapOptions options = quick_options();
  options.grace_of_gone = std::chrono::hours(1);
  auto all = join_all(5, options);
  std::atomic<int> told{0};
  for (const auto& one : all) one->watch([&](const Failure&) { ++told; });
  all[3]->report_failure({3, ncclRemoteError, "rank 3 aborted its communicator", Parting::kDeparted});
  all[3].reset();
  all.erase(all.begin() + 3);
  await_failure(all);
  for (const auto& one : all) {
    EXPECT_THAT(error_of([&] { one->barrier(); }).what(), HasSubstr("rank 3 aborted its communicator"));
  }
  EXPECT_EQ(told, 0);
  for (const auto& one : all) one->watch(nullptr);
}

TEST(Watch, OfARankThatHasDepartedBeforeItIsToldLaterToo) {
  BootstrapOptions options = quick_options();
  options.grace_of_gone = std::chrono::milliseconds(1);
  auto all = join_all(2, options);
  all[0]->report_failure({0, ncclRemoteError, "rank 0 aborted its communicator", Parting::kDeparted});
  await_failure(all);
  std::promise<std::thread::id> told;
  all[1]->watch([&](const Failure&) { told.set_value(std::this_thread::get_id()); });
  EXPECT_NE(told.get_future().get(), std::this_thread::get_id()) << "at once";
  all[1]->watch(nullptr);
}

TEST(Watch, OfARankThatHasDepartedIsToldOnceItIsNeeded) {
  BootstrapOptions options = quick_options();
  options.grace_of_gone = std::chrono::milliseconds(1);
  auto all = join_all(2, options);
  std::atomic<int> asked{0};
  std::atomic<bool> needed{false};
  std::promise<bool> told;
  all[1]->watch([&](const Failure&) { told.set_value(needed); },
                [&](std::span<const Failure> gone) { return ++asked, needed ? gone.data() : nullptr; });
  all[0]->report_failure({0, ncclRemoteError, "rank 0 aborted its communicator", Parting::kDeparted});
  while (asked < 3) std::this_thread::yield();
  needed = true;
  EXPECT_TRUE(told.get_future().get());
  all[1]->watch(nullptr);
}

TEST(Watch, OfALostRankIsToldOnceItIsNeeded) {
  BootstrapOptions options = quick_options();
  options.grace_of_gone = std::chrono::milliseconds(1);
  auto all = join_all(2, options);
  std::atomic<int> asked{0};
  std::promise<Parting> told;
  all[1]->watch([&](const Failure& failure) { told.set_value(failure.parting); },
                [&](std::span<const Failure> gone) { return ++asked == 3 ? gone.data() : nullptr; });
  all[0].reset();  // without a goodbye
  EXPECT_EQ(told.get_future().get(), Parting::kLost);
}

TEST(Watch, ARankThatIsNeededIsToldThoughItWasNotTheFirstToGo) {
  BootstrapOptions options = quick_options();
  options.grace_of_gone = std::chrono::milliseconds(1);
  auto all = join_all(9, options);  // a tree of several levels
  std::promise<std::string> told;
  all[8]->watch([&](const Failure& failure) { told.set_value(failure.sentence); },
                [](std::span<const Failure> gone) {
                  const auto found = std::find_if(gone.begin(), gone.end(), [](auto& each) { return each.rank == 5; });
                  return found != gone.end() ? &*found : nullptr;
                });
  all[7]->report_failure({7, ncclRemoteError, "rank 7 aborted its communicator", Parting::kDeparted});
  await_failure(all);
  all[7]->report_failure({7, ncclRemoteError, "rank 7 exited", Parting::kDeparted});
  all[5]->report_failure({5, ncclRemoteError, "rank 5 aborted its communicator", Parting::kDeparted});
  EXPECT_EQ(told.get_future().get(), "rank 5 aborted its communicator");
  EXPECT_EQ(all[8]->failure()->rank, 7) << "which is no failure to the others";
  all[8]->watch(nullptr);
}

TEST(Watch, AFailureIsToldThoughSomebodyHasGoneBefore) {
  auto all = join_all(9);
  std::promise<std::string> told;
  all[8]->watch([&](const Failure& failure) { told.set_value(failure.sentence); },
                [](std::span<const Failure>) { return nullptr; });
  all[7]->report_failure({7, ncclRemoteError, "rank 7 aborted its communicator", Parting::kDeparted});
  await_failure(all);
  all[5]->report_failure({5, ncclUnhandledCudaError, "rank 5: an illegal memory access"});
  all[5]->report_failure({5, ncclUnhandledCudaError, "rank 5: a later one, which does not count"});
  EXPECT_EQ(told.get_future().get(), "rank 5: an illegal memory access");
  EXPECT_EQ(all[8]->failure()->rank, 5);
  EXPECT_EQ(error_of([&] { all[8]->barrier(); }).code(), ncclUnhandledCudaError);
}

TEST(Watch, WhatOthersSayOfARankThatIsKnownToBeGoneIsNoFailure) {
  auto all = join_all(9);
  all[8]->watch([](const Failure& failure) { ADD_FAILURE() << failure.sentence; },
                [](std::span<const Failure>) { return nullptr; });
  all[7]->report_failure({7, ncclRemoteError, "rank 7 aborted its communicator", Parting::kDeparted});
  await_failure(all);
  all[5]->report_failure({7, ncclRemoteError, "rank 7 does not answer"});
  all[5]->report_failure({5, ncclRemoteError, "rank 5 aborted its communicator", Parting::kDeparted});
  while (all[8]->gone().size() < 2) std::this_thread::yield();
  EXPECT_EQ(all[8]->failure()->sentence, "rank 7 aborted its communicator");
  all[8]->watch(nullptr);
}

TEST(Watch, OfARankThatSaysWhatIsWrongIsToldThoughItIsNotNeeded) {
  auto all = join_all(2);
  std::promise<std::string> told;
  all[1]->watch([&](const Failure& failure) { told.set_value(failure.sentence); },
                [](std::span<const Failure>) { return nullptr; });
  all[0]->report_failure({0, ncclUnhandledCudaError, "rank 0: an illegal memory access"});
  EXPECT_EQ(told.get_future().get(), "rank 0: an illegal memory access");
}

TEST(Watch, ARankThatIsGoneIsNoFailureToWhoMayLeaveWithoutIt) {
  auto all = join_all(3);
  all[0]->report_failure({0, ncclRemoteError, "rank 0 aborted its communicator", Parting::kDeparted});
  await_failure(all);
  EXPECT_FALSE(all[1]->last_barrier(false, [] { return false; }));
  EXPECT_TRUE(all[1]->has_gone_rank());
  EXPECT_FALSE(all[0]->has_gone_rank()) << "that is itself";
  EXPECT_THAT(error_of([&] { all[2]->last_barrier(false, {}); }).what(), HasSubstr("rank 0 aborted its communicator"));
}

TEST(Watch, OfARankThatHasDepartedIsToldThoughThereIsNoMemoryToWait) {
  BootstrapOptions options = quick_options();
  options.grace_of_gone = std::chrono::milliseconds(1);
  const Failure departed{0, ncclRemoteError, "rank 0 aborted its communicator", Parting::kDeparted};
  for (int nth = 0; nth < 40; ++nth) {
    auto all = join_all(2, options);
    std::atomic<bool> told{false};
    all[0]->watch([&](const Failure&) { told = true; });
    {
      const testing::FailingAllocation failing(nth, testing::FailsIn::kEveryThread);
      all[0]->report_failure(departed);
      while (!told) std::this_thread::yield();
    }
    all[0]->watch(nullptr);
  }
}

TEST(Watch, WhoIsToldMayReportWithoutMemoryForIt) {
  BootstrapOptions options = quick_options();
  options.grace_of_gone = std::chrono::milliseconds(1);
  for (int nth = 0; nth < 40; ++nth) {
    auto all = join_all(3, options);
    std::atomic<bool> told{false};
    all[1]->watch([&](const Failure&) {
      const testing::FailingAllocation failing(nth);
      try {
        all[1]->report_failure({1, ncclInternalError, "a sentence that is too long to be copied without memory"});
      } catch (const std::bad_alloc&) {
        all[1]->report_lack_of_memory();
      }
      told = true;
    });
    all[0]->report_failure({0, ncclRemoteError, "rank 0 aborted its communicator", Parting::kDeparted});
    while (!told) std::this_thread::yield();
    all[1]->watch(nullptr);
  }
}

TEST(Watch, KnowsWhoseWordsLeadOverARankThatIsGone) {
  auto all = join_all(9);  // rank 1 has the children 5 to 8
  EXPECT_TRUE(all[8]->hears_of(0));
  all[1]->report_failure({1, ncclRemoteError, "rank 1 aborted its communicator", Parting::kDeparted});
  await_failure(all);
  for (const int rank : {0, 2, 5}) EXPECT_FALSE(all[8]->hears_of(rank)) << rank;
  for (const int rank : {1, 8}) EXPECT_TRUE(all[8]->hears_of(rank)) << rank;
  EXPECT_FALSE(all[0]->hears_of(8));
  for (const int rank : {0, 1, 4}) EXPECT_TRUE(all[2]->hears_of(rank)) << rank;
  EXPECT_EQ(all[2]->gone().size(), 1U);
}

TEST(Watch, ARankThatHasFailedGoesWithoutMemory) {
  auto all = join_all(3);
  all[0]->report_failure({0, ncclInternalError, "a sentence that is too long to be copied without memory"});
  const testing::FailingAllocation failing(0);
  all[0].reset();
}

TEST(Watch, HearsWhatTheOthersAreToldThoughThereWasNoMemoryForMore) {
  bool failed = true;
  for (int nth = 0; failed; ++nth) {
    auto all = join_all(3);
    const std::string sentence = "a sentence that is too long to be copied without memory";
    const Failure failure{0, ncclInternalError, sentence};
    std::array<char, 1024> told{};
    all[0]->watch([&](const Failure& first) { first.sentence.copy(told.data(), told.size() - 1); });
    {
      const testing::FailingAllocation failing(nth);
      all[0]->report_failure(failure);
      failed = failing.has_failed();
    }
    EXPECT_EQ(told.data(), all[0]->failure()->sentence) << nth;
    EXPECT_THAT(told.data(), AnyOf(HasSubstr("out of memory"), StrEq(sentence))) << nth;
  }
}

TEST(Watch, ARankShutsDownWithoutMemory) {
  for (int nth = 0; nth < 3; ++nth) {
    auto all = join_all(3);
    try {
      const testing::FailingAllocation failing(nth);
      all[0]->shutdown();
    } catch (const std::bad_alloc&) {
    }
  }
}

TEST(Watch, AFailureBeforeTheWatchIsToldAtOnce) {
  auto all = join_all(2);
  all[0]->report_failure({0, ncclInternalError, "early"});
  std::string told;
  all[0]->watch([&](const Failure& failure) { told = failure.sentence; });
  EXPECT_EQ(told, "early");
  EXPECT_EQ(all[0]->failure()->sentence, "early");
}

TEST(Watch, AGoodbyeIsNoFailure) {
  auto all = join_all(5);
  std::atomic<int> failures{0};
  for (auto& one : all) one->watch([&](const Failure&) { ++failures; });
  for (const std::size_t rank : {1, 4, 0}) {
    all[rank]->shutdown();
    all[rank].reset();
  }
  // Whoever still wants something from a rank that has left is told so.
  EXPECT_THAT(error_of([&] { all[2]->barrier(); }).what(), HasSubstr("rank 0 (host "));
  EXPECT_THAT(error_of([&] { all[3]->barrier(); }).what(), HasSubstr("has left the communicator"));
  EXPECT_EQ(failures, 2);
}

TEST(Watch, NothingIsToldAfterTheShutdown) {
  auto all = join_all(3);
  all[0]->watch([](const Failure&) { ADD_FAILURE(); });
  all[0]->shutdown();
  all[1].reset();
  all[2].reset();
  EXPECT_EQ(error_of([&] { all[0]->barrier(); }).code(), ncclInvalidUsage);
  all[0]->shutdown();
}

TEST(Watch, OperationsWorkWhileWatched) {
  auto all = join_all(6);
  for (auto& one : all) one->watch([](const Failure& failure) { ADD_FAILURE() << failure.sentence; });
  run_threads(6, [&](int rank) {
    for (int i = 0; i < 50; ++i) {
      const auto values = all[static_cast<std::size_t>(rank)]->all_gather_value(rank * i);
      EXPECT_EQ(values[5], 5 * i);
    }
    all[static_cast<std::size_t>(rank)]->shutdown();
  });
}

TEST(Operations, DifferentOnesAreAnErrorOnEveryRank) {
  auto all = join_all(5);
  run_threads(5, [&](int rank) {
    Bootstrap& mine = *all[static_cast<std::size_t>(rank)];
    const Error error = error_of([&] {
      if (rank == 3) {
        mine.all_gather_value(1);
      } else {
        mine.barrier();
      }
      mine.barrier();
    });
    EXPECT_EQ(error.code(), ncclInvalidUsage);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 3 in all_gather"), HasSubstr("rank 0 is in barrier")));
  });
}

TEST(Operations, DifferentSizesAreAnErrorOnEveryRank) {
  auto all = join_all(6);
  run_threads(6, [&](int rank) {
    std::vector<std::byte> mine(rank == 5 ? 9 : 8);
    std::vector<std::byte> everything(6 * mine.size());
    const Error error =
        error_of([&] { all[static_cast<std::size_t>(rank)]->all_gather(mine.data(), everything.data(), mine.size()); });
    EXPECT_EQ(error.code(), ncclInvalidUsage);
    EXPECT_THAT(error.what(), HasSubstr("rank 5 gives 9 bytes to all_gather"));
  });
}

TEST(Operations, AnAbsentRankIsNamedWhenTheTimeIsOver) {
  BootstrapOptions options = quick_options();
  options.operation_timeout = std::chrono::milliseconds(200);
  auto all = join_all(3, options);
  run_threads(2, [&](int rank) {
    const Error error = error_of([&] { all[static_cast<std::size_t>(rank)]->barrier(); });
    EXPECT_EQ(error.code(), ncclRemoteError);
    // Rank 1 can only say that rank 0 does not answer, if it is first.
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr(" ms for rank"), HasSubstr("in barrier"), HasSubstr("; its process is alive")));
  });
}

TEST(Operations, LargeBlocksPass) {
  auto all = join_all(6);
  run_threads(6, [&](int rank) {
    std::vector<int> mine(1 << 18, rank);
    std::vector<int> everything(6 << 18);
    all[static_cast<std::size_t>(rank)]->all_gather(mine.data(), everything.data(), mine.size() * sizeof(int));
    for (int i = 0; i < 6; ++i) EXPECT_EQ(everything[static_cast<std::size_t>((i + 1) << 18) - 1], i);
  });
}

}  // namespace
}  // namespace nitinol
