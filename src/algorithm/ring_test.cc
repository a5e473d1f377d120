// From whom ranks take in a ring.
#include <gtest/gtest.h>

#include <algorithm>

#include "algorithm/trace.h"

namespace nitinol::algorithm {
namespace {

/// In a program of a channel, whether each rank takes from none but the one before it.
bool takes_along_line(const Program& program) {
  const int ranks = program.task.ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    const Trace& trace = program.traces[static_cast<size_t>(rank)];
    const auto fits = [&](const Step& step) {
      return step.flow.from == Peers::kNone ||
             (step.flow.from == Peers::kOne && step.from == rank_before(rank, 1, ranks));
    };
    if (!std::all_of(trace.begin(), trace.end(), fits)) return false;
  }
  return true;
}

/// Such have slots for one other rank alone.
TEST(Ring, GoesAlongALineWhereTheTableSaysSo) {
  const Share share{.begin = 0, .end = 1000, .chunk = 32, .stride = 1000};
  for (int ranks = 2; ranks <= 72; ++ranks) {
    for (int root = 0; root < ranks; ++root) {
      for (const bool any_order : {false, true}) {
        const Task reduce{Collective::kReduce, ranks, root, share, any_order};
        EXPECT_EQ(takes_along_line(record<ReduceRing>(reduce)),
                  goes_along_line(Collective::kReduce, Algorithm::kRing, ranks, root, any_order))
            << ranks << " ranks, root " << root << ", any order " << any_order;
      }
      EXPECT_TRUE(takes_along_line(record<BroadcastRing>({Collective::kBroadcast, ranks, root, share})));
    }
  }
}

}  // namespace
}  // namespace nitinol::algorithm
