#include "executor/run_check.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "executor/call_board.h"

namespace nitinol {
namespace {

/// Two ranks' kernels, and what their hosts have taken over of their notes.
class RunCheck : public testing::Test {
 protected:
  static constexpr int kRanks = 3;
  using Marks = DifferentRun::Marks;

  /// As a kernel does.
  void run(int rank, int line, uint32_t mark) {
    const auto place = static_cast<size_t>(rank * RunLines::count(kRanks) + line);
    counts_[place] = counts_[place].and_then(mark);
    RunNotes& notes = notes_[place];
    const RunNote note = RunNote::of(counts_[place], mark);
    notes.note[RunNotes::place(note.number)] = note;
    const uint32_t sparse = RunNotes::sparse_place(note.number);
    if (sparse != RunNotes::kNotes) notes.note[sparse] = note;
  }
  /// So many on the first two ranks.
  void run_both(int line, int times, uint32_t mark = 7) {
    for (int i = 0; i < times; ++i) {
      for (const int rank : {0, 1}) run(rank, line, mark);
    }
  }
  void start_at(int line, uint32_t number) {
    for (const int rank : {0, 1}) counts_[static_cast<size_t>(rank * RunLines::count(kRanks) + line)].number = number;
  }
  void take_over(int rank) {
    for (int line = 0; line < RunLines::count(kRanks); ++line) {
      board_.runs(rank, line).take_over(notes_[static_cast<size_t>(rank * RunLines::count(kRanks) + line)]);
    }
  }
  std::optional<DifferentRun> look(int rank) {
    for (int each = 0; each < kRanks; ++each) take_over(each);
    return find_different_run(board_, rank);
  }

  CallBoard board_{SharedMemory::create(CallBoard::bytes_for(kRanks), false), kRanks};
  std::vector<RunCount> counts_{static_cast<size_t>(kRanks * RunLines::count(kRanks))};
  std::vector<RunNotes> notes_{counts_.size()};
};

TEST_F(RunCheck, FindsNothingWhereTheSameHasRunHoweverFarRanksAreApart) {
  EXPECT_FALSE(look(0));
  for (int line = 0; line < RunLines::kCollectives; ++line) {
    for (int i = 0; i < 1000; ++i) run(0, line, static_cast<uint32_t>(i) << 8);
    EXPECT_FALSE(look(0));
    for (int i = 0; i < 3000; ++i) run(1, line, static_cast<uint32_t>(i) << 8);
    EXPECT_FALSE(look(0));
    EXPECT_FALSE(look(1));
  }
}

class RunCheckOfCollectives : public RunCheck, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Lines, RunCheckOfCollectives, testing::Range(0, RunLines::kCollectives));

TEST_P(RunCheckOfCollectives, TellsTheCallsThatDiffer) {
  run_both(GetParam(), 100);
  run(0, GetParam(), 0x100);
  run(1, GetParam(), 0x200);
  run_both(GetParam(), 5);
  const auto found = look(0);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->peer, 1);
  EXPECT_EQ(found->marks, (Marks{0x100, 0x200}));
  EXPECT_EQ(look(1)->marks, (Marks{0x200, 0x100}));
  EXPECT_FALSE(look(2));
}

TEST_F(RunCheck, FindsAnotherOrder) {
  for (const uint32_t mark : {0x100, 0x200}) run(0, 0, mark);
  EXPECT_FALSE(look(0));
  for (const uint32_t mark : {0x200, 0x100}) run(1, 0, mark);
  EXPECT_EQ(look(0)->marks, (Marks{0x100, 0x200}));
}

/// Of ranks that are always thousands of calls apart when they are looked at nothing recent is the same.
TEST_F(RunCheck, FindsBetweenRanksFarApartThatSomethingDiffered) {
  run(0, 0, 0x100);
  run(1, 0, 0x200);
  for (int i = 0; i < 1000; ++i) run(0, 0, 7);
  for (int i = 0; i < 9000; ++i) run(1, 0, 7);
  const auto found = look(0);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->marks);
}

TEST_F(RunCheck, GoesOnWhereCountsComeRound) {
  start_at(0, 0xffffffc0U);
  run_both(0, 100);
  EXPECT_FALSE(look(0));
  run(0, 0, 0x100);
  run(1, 0, 0x200);
  EXPECT_EQ(look(0)->marks, (Marks{0x100, 0x200}));
}

TEST_F(RunCheck, ComparesBothEndsOfMessages) {
  const int sends = RunLines::of_messages(1, true);
  const int receives = RunLines::of_messages(0, false);
  run(0, sends, 0x100);
  run(1, receives, 0x100);
  run(0, RunLines::of_messages(1, false), 0x700);  // the other direction, which has not come yet
  EXPECT_FALSE(look(0));
  run(0, sends, 0x300);
  run(1, receives, 0x400);
  const auto found = look(0);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->sends);
  EXPECT_EQ(found->marks, (Marks{0x300, 0x400}));
  EXPECT_FALSE(look(1)->sends);
  EXPECT_EQ(look(1)->marks, (Marks{0x400, 0x300}));
}

TEST_F(RunCheck, BelievesNoNoteThatIsHalfWritten) {
  run_both(0, 3);
  RunNote torn = RunNote::of({4, 99}, 0x100);
  torn.check ^= 1;
  notes_[0].note[RunNotes::place(4)] = torn;
  run(1, 0, 7);
  EXPECT_FALSE(look(0));
}

}  // namespace
}  // namespace nitinol
