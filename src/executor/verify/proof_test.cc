// The proof: every algorithm of the table, for all rank counts up to 64 and a few beyond.
#include <gtest/gtest.h>

#include <set>

#include "executor/verify/verifier.h"

namespace nitinol::verify {
namespace {

using algorithm::Program;
using algorithm::Task;

struct Case {
  Collective what = Collective::kAllReduce;
  int ranks = 2;
  int root = 0;
  size_t count = 0;
  size_t chunk = 32;
  int channels = 1;
};

/// Whether every rank has something for every other.
bool sends_n_times_n(Collective what) {
  return what == Collective::kAllGather || what == Collective::kReduceScatter || what == Collective::kAllToAll;
}

std::set<int> roots_of(Collective what, int ranks) {
  if (!rooted(what)) return {0};
  return {0, 1, ranks / 2, ranks - 1};
}

std::string text_of(const Case& test, Algorithm algorithm) {
  return std::string(name_of(test.what)) + " " + name_of(algorithm) + ", " + std::to_string(test.ranks) +
         " ranks, root " + std::to_string(test.root) + ", " + std::to_string(test.count) + " elements in chunks of " +
         std::to_string(test.chunk) + " on " + std::to_string(test.channels) + " channels";
}

/// Calls visit(Entry) for each row of the collective.
template <class Visit>
void for_each_row(Collective what, Visit&& visit) {
  algorithm::Table::for_each([&](auto entry) {
    if (decltype(entry)::row.what == what) visit(entry);
  });
}

/// Verifies what one channel does, out of place and in place.
template <class Entry>
void prove(Entry, const Case& test, const Share& share, const Options& wish = {}) {
  if (share.begin >= share.end) return;
  const Program program = algorithm::record<Entry>(Task{test.what, test.ranks, test.root, share});
  for (const bool in_place : {false, true}) {
    Options options = wish;
    options.canonical = Entry::row.canonical;
    options.in_place = in_place;
    const Report report = verify(program, options);
    EXPECT_TRUE(report.right()) << text_of(test, Entry::row.algorithm) << (in_place ? ", in place" : "") << ", turn "
                                << share.turn << ", " << options.slots << " slots\n"
                                << report.text();
  }
}

/// The same for all channels.
template <class Entry>
void prove(Entry entry, const Case& test, const Options& wish = {}) {
  for (int channel = 0; channel < test.channels; ++channel) {
    Share share = share_of(test.count, test.chunk, channel, test.channels, 16);
    share.turn = algorithm::turn_of(channel, test.ranks);
    prove(entry, test, share, wish);
  }
}

/// Whether it cuts a rank's data into one block per rank.
bool cuts_blocks(const algorithm::Row& row) {
  return row.algorithm == Algorithm::kTwoShot ||
         (row.algorithm == Algorithm::kRing && row.what == Collective::kAllReduce);
}

/// Sizes in which something may go wrong: next to nothing, fewer elements than ranks, one chunk, a few, and, if blocks
/// are cut, several rounds with a rest.
std::set<size_t> counts_of(const algorithm::Row& row, int ranks, size_t chunk) {
  std::set<size_t> counts{1, static_cast<size_t>(ranks) - 1, chunk, 2 * chunk + 7};
  if (cuts_blocks(row)) counts.insert({chunk * ranks, chunk * ranks * 2 + 7});
  return counts;
}

class Proof : public testing::TestWithParam<Collective> {};

TEST_P(Proof, HoldsForUpTo64Ranks) {
  const Collective what = GetParam();
  for_each_row(what, [&](auto entry) {
    for (int ranks = 2; ranks <= 64; ++ranks) {
      for (const int root : roots_of(what, ranks)) {
        for (const size_t count : counts_of(entry.row, ranks, 32)) {
          prove(entry, {.what = what, .ranks = ranks, .root = root, .count = count});
        }
      }
    }
  });
}

TEST_P(Proof, HoldsForEveryRootChunkAndChannelSplitOfFewRanks) {
  const Collective what = GetParam();
  for_each_row(what, [&](auto entry) {
    for (int ranks = 2; ranks <= 9; ++ranks) {
      for (int root = 0; root < (rooted(what) ? ranks : 1); ++root) {
        for (const size_t chunk : {1, 5, 16, 48}) {
          for (const size_t count : counts_of(entry.row, ranks, chunk)) {
            prove(entry, {what, ranks, root, count, chunk, 3});
          }
        }
      }
    }
  });
}

/// Channels differ in the peer that comes first.
TEST_P(Proof, HoldsWhicheverPeerComesFirst) {
  const Collective what = GetParam();
  for_each_row(what, [&](auto entry) {
    for (const int ranks : {3, 4, 5, 8, 13}) {
      const size_t count = size_t{32} * (cuts_blocks(entry.row) ? ranks : 1) * 3 + 7;
      const Case test{.what = what, .ranks = ranks, .root = ranks / 2, .count = count};
      for (int turn = 1; turn < ranks - 1; ++turn) {
        Share share = share_of(test.count, test.chunk, 0, 1, 16);
        share.turn = turn;
        prove(entry, test, share);
        prove(entry, test, share, {.seed = 1});
      }
    }
  });
}

TEST_P(Proof, HoldsForAnyInterleavingAndMoreSlots) {
  const Collective what = GetParam();
  for_each_row(what, [&](auto entry) {
    for (const int ranks : {2, 3, 4, 5, 8, 13}) {
      const Case test{.what = what, .ranks = ranks, .root = ranks / 2, .count = size_t{32} * ranks * 3 + 7};
      for (const int slots : {algorithm::kLeastSlots, 3, 5, 64}) {
        for (const uint64_t seed : {1, 2, 3}) prove(entry, test, {.slots = slots, .seed = seed});
      }
    }
  });
}

TEST_P(Proof, HoldsForManyRanks) {
  const Collective what = GetParam();
  for_each_row(what, [&](auto entry) {
    for (const int ranks : {100, 128, 257, 1000}) {
      // The programs of algorithms that cut blocks grow with the square of the ranks: few blocks, then.
      if (ranks == 1000 && sends_n_times_n(what)) continue;
      const size_t count = size_t{16} * (ranks <= 128 ? ranks : 20) + 7;
      prove(entry, {.what = what, .ranks = ranks, .root = ranks / 2, .count = cuts_blocks(entry.row) ? count : 3});
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Of, Proof,
                         testing::Values(Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce,
                                         Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll,
                                         Collective::kGather, Collective::kScatter),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace nitinol::verify
