// What others are told who ask a rank about its meetings.
#include "bootstrap/regroup_desk.h"

#include <gtest/gtest.h>

#include <chrono>
#include <new>
#include <thread>

#include "bootstrap/testing.h"
#include "failing_allocation.h"

namespace nitinol {
namespace {

constexpr std::chrono::milliseconds kUntilTheFirstLook{350};

std::vector<std::shared_ptr<RegroupDesk>> desks_of(const std::vector<std::unique_ptr<Bootstrap>>& all) {
  std::vector<MeetingPoint> points;
  for (const auto& one : all) points.push_back(one->meeting_point());
  std::vector<std::shared_ptr<RegroupDesk>> desks;
  for (const auto& one : all) {
    desks.push_back(one->open_desk(points, [](int rank) { return formatted("rank {}", rank); }));
  }
  return desks;
}

TEST(RegroupDesk, NobodyHearsOfAMeetingThatThereWasNoMemoryToBegin) {
  const auto all = testing::join_all(3);
  const auto desks = desks_of(all);
  const std::vector<int> first{2};
  const std::vector<int> more{0, 2};
  desks[1]->begin(first, 1, {}, false);
  desks[1]->end();
  {
    const testing::FailingAllocation failing(0);
    EXPECT_THROW(desks[1]->begin(more, 7, {}, false), std::bad_alloc);
  }
  desks[0]->begin(first, 1, {}, false);
  std::this_thread::sleep_for(kUntilTheFirstLook);
  desks[0]->look([] {});
  EXPECT_EQ(desks[0]->highest_number(), 0);
  for (const auto& desk : desks) desk->leave();
}

}  // namespace
}  // namespace nitinol
