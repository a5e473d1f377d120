// What brief operations of GPUs rely on (executor/cuda/brief_connections.h): programs for shares that are no longer
// than a chunk.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "algorithm/trace.h"

namespace nitinol::algorithm {
namespace {

template <class Entry, class Each>
void for_tasks(Entry entry, Each& each) {
  for (const int ranks : {2, 3, 4, 7, 8, 13, 64}) {
    for (const int root : {0, ranks - 1}) {
      for (const Share& share : {Share{0, 1, 100, 1}, Share{32, 132, 100, 300, ranks - 2}}) {
        each(entry, Task{entry.row.what, ranks, root, share});
      }
    }
  }
}

template <class Each>
void for_one_shots(Each each) {
  Table::for_each([&](auto entry) {
    if constexpr (decltype(entry)::row.algorithm == Algorithm::kOneShot) for_tasks(entry, each);
  });
}

/// Those that may be brief.
template <class Each>
void for_two_shots(Each each) {
  Table::for_each([&](auto entry) {
    constexpr Row row = decltype(entry)::row;
    constexpr bool brief = suits_two_brief_shots(row.what, row.algorithm, Protocol::kLL128, DataType::kFloat32);
    if constexpr (brief) for_tasks(entry, each);
  });
}

template <class Each>
void for_one_and_two_shots(Each each) {
  for_one_shots(each);
  for_two_shots(each);
}

bool same(const Step& one, const Step& other) {
  return one.flow.own == other.flow.own && one.flow.from == other.flow.from && one.flow.into == other.flow.into &&
         one.flow.to == other.flow.to && one.flow.finish == other.flow.finish && one.own_side == other.own_side &&
         one.uneven == other.uneven && one.from == other.from && one.to == other.to && one.own == other.own &&
         one.into == other.into && one.count == other.count;
}

/// Without transfers of nothing.
Program record_once(auto entry, const Task& task) {
  Program program = record<decltype(entry), BasicRecorder<true>>(task);
  for (Trace& trace : program.traces) {
    std::erase_if(trace, [](const Step& step) { return step.count == 0; });
  }
  return program;
}

TEST(OneChunk, LoopsOverChunksAreLeftOutAndNothingElse) {
  for_one_and_two_shots([](auto entry, const Task& task) {
    using Entry = decltype(entry);
    const Program loops = record<Entry>(task);
    const Program once = record_once(entry, task);
    ASSERT_EQ(once.traces.size(), loops.traces.size());
    for (size_t rank = 0; rank < loops.traces.size(); ++rank) {
      EXPECT_TRUE(std::equal(once.traces[rank].begin(), once.traces[rank].end(), loops.traces[rank].begin(),
                             loops.traces[rank].end(), same))
          << name_of(task.what) << ", rank " << rank << " of " << task.ranks << ", root " << task.root;
    }
  });
}

TEST(OneChunk, EachConnectionOfAOneShotCarriesOneStepAtMostAndWithoutARootJustOne) {
  for_one_shots([](auto entry, const Task& task) {
    const Program program = record<decltype(entry), BasicRecorder<true>>(task);
    std::map<std::pair<int, int>, int> steps;
    for (int rank = 0; rank < task.ranks; ++rank) {
      for (const Step& step : program.traces[rank]) {
        for (int i = 0; i < peers_in(step.flow.to, task.ranks); ++i) {
          ++steps[{rank, outgoing_peer(step, rank, task.ranks, i)}];
        }
      }
    }
    const auto all = static_cast<size_t>(task.ranks) * static_cast<size_t>(task.ranks - 1);
    if (!rooted(task.what)) {
      EXPECT_EQ(steps.size(), all) << name_of(task.what) << " of " << task.ranks;
    }
    for (const auto& [pair, count] : steps) {
      EXPECT_EQ(count, 1) << name_of(task.what) << " of " << task.ranks << ": from " << pair.first << " to "
                          << pair.second;
    }
  });
}

bool sends(const Step& step) { return step.flow.from == Peers::kNone && step.flow.to == Peers::kOne; }
bool reduces(const Step& step) { return step.flow.from == Peers::kAll; }
bool receives(const Step& step) { return step.flow.from == Peers::kOne && step.flow.to == Peers::kNone; }

TEST(OneChunk, EachRankOfTwoShotsReducesOnceWhateverItsBlockBehindAllItSendsAndBeforeAllItReceives) {
  for_two_shots([](auto entry, const Task& task) {
    const Program program = record<decltype(entry), BasicRecorder<true>>(task);
    for (const Trace& trace : program.traces) {
      const auto it = std::find_if(trace.begin(), trace.end(), reduces);
      ASSERT_NE(it, trace.end()) << name_of(task.what) << " of " << task.ranks;
      EXPECT_TRUE(std::all_of(trace.begin(), it, sends)) << name_of(task.what) << " of " << task.ranks;
      EXPECT_TRUE(std::all_of(it + 1, trace.end(), receives)) << name_of(task.what) << " of " << task.ranks;
    }
  });
}

TEST(OneChunk, WithABlockForEachEveryRankOfTwoShotsTakesFromAllOthersAtFirst) {
  for_two_shots([](auto entry, Task task) {
    task.share = Share{0, kGrain * static_cast<size_t>(task.ranks), 2 * kGrain};
    const Program program = record<decltype(entry), BasicRecorder<true>>(task);
    for (const Trace& trace : program.traces) {
      const auto it = std::find_if(trace.begin(), trace.end(), reduces);
      ASSERT_NE(it, trace.end()) << name_of(task.what) << " of " << task.ranks;
      EXPECT_EQ(it->count, kGrain) << name_of(task.what) << " of " << task.ranks;
    }
  });
}

}  // namespace
}  // namespace nitinol::algorithm
