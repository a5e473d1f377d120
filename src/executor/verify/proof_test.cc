// The proof: every algorithm of the table, for all rank counts up to 64 and a few beyond, in parts where the table
// allows it.
#include <gtest/gtest.h>

#include <set>

#include "algorithm/parts.h"
#include "executor/verify/verifier.h"

namespace nitinol::verify {
namespace {

using algorithm::Division;
using algorithm::Program;
using algorithm::Task;

// Every rank count up to this one. Under sanitizers the verifier, which has but one thread, takes ten times as long,
// and what they could find shows with few ranks.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kEachUpTo = 18;
#else
constexpr int kEachUpTo = 64;
#endif

struct Case {
  Collective what = Collective::kAllReduce;
  int ranks = 2;
  int root = 0;
  size_t count = 0;
  size_t chunk = 32;
  int channels = 1;
  bool any_order = false;
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

/// Verifies a program of a row, out of place and in place.
void prove(const Program& program, const algorithm::Row& row, const Case& test, const Options& wish) {
  for (const bool in_place : {false, true}) {
    Options options = wish;
    options.canonical = algorithm::canonical(row.what, row.algorithm, DataType::kFloat32, test.root, test.ranks);
    options.in_steps = row.canonical_to_ends;
    EXPECT_TRUE(options.canonical || !row.canonical_to_ends || (test.root > 1 && test.root < test.ranks - 1));
    if (test.any_order) options.canonical = false;
    options.in_place = in_place;
    const Report report = verify(program, options);
    EXPECT_TRUE(report.right()) << text_of(test, row.algorithm) << (in_place ? ", in place" : "") << ", turn "
                                << program.task.share.turn << ", " << options.slots << " slots, " << program.parts
                                << " parts\n"
                                << report.text();
  }
}

template <class Entry>
Program program_of(const Case& test, const Share& share) {
  return algorithm::record<Entry>(Task{test.what, test.ranks, test.root, share, test.any_order});
}

Share share_in(const Case& test, int channel = 0) {
  Share share = share_of(test.count, test.chunk, channel, test.channels, 16);
  share.turn = algorithm::turn_of(channel, test.ranks);
  return share;
}

/// The ways in which a row that may run in parts may be divided.
std::vector<Division> divisions_of(Collective what) {
  if (reduces(what)) return {Division::kByRole, Division::kByPeer};
  return {Division::kByPeer};
}

/// Verifies what one channel does, also in parts where the row says that this may be done (there may be as many as
/// twice the ranks).
template <class Entry>
void prove(Entry, const Case& test, const Share& share, const Options& wish = {}) {
  if (share.begin >= share.end) return;
  const Program program = program_of<Entry>(test, share);
  prove(program, Entry::row, test, wish);
  if (!Entry::row.apart || test.ranks > 128) return;
  for (const Division division : divisions_of(test.what)) {
    prove(algorithm::divide(program, division), Entry::row, test, wish);
  }
}

/// The same for all channels.
template <class Entry>
void prove(Entry entry, const Case& test, const Options& wish = {}) {
  for (int channel = 0; channel < test.channels; ++channel) prove(entry, test, share_in(test, channel), wish);
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
  if (row.canonical_to_ends) counts.insert((2 * static_cast<size_t>(ranks) + 3) * chunk + 7);  // not all under way
  if (cuts_blocks(row)) counts.insert({chunk * ranks, chunk * ranks + 7, chunk * ranks * 2 + 7});
  return counts;
}

class Proof : public testing::TestWithParam<Collective> {};

TEST_P(Proof, HoldsForEveryRankCount) {
  const Collective what = GetParam();
  for_each_row(what, [&](auto entry) {
    for (int ranks = 2; ranks <= kEachUpTo; ++ranks) {
      for (const int root : roots_of(what, ranks)) {
        for (const size_t count : counts_of(entry.row, ranks, 32)) {
          const Case test{.what = what, .ranks = ranks, .root = root, .count = count};
          prove(program_of<decltype(entry)>(test, share_in(test)), entry.row, test, {});
        }
      }
    }
  });
}

/// Interleavings in which parts get far ahead of each other, with as few slots as are allowed: in any order, with one
/// kind of work done only when there is no other, and with one rank behind all others.
std::vector<Options> interleavings_of(Division division, int ranks) {
  const int parts = algorithm::parts_of(division, ranks);
  const int sends = (parts - 1) / 2;
  std::vector<Options> all{{}, {.seed = 1}};
  all.push_back({.starved = {.first_part = 0, .parts = 1}});
  all.push_back({.starved = {.first_part = 1, .parts = sends}});
  all.push_back({.starved = {.first_part = 1 + sends, .parts = sends}});
  all.push_back({.starved = {.rank = 0, .parts = parts}});
  all.push_back({.seed = 2, .starved = {.rank = ranks / 2, .parts = parts}});
  all.push_back({.seed = 3, .starved = {.first_part = parts - 1, .parts = 1}});
  return all;
}

/// One interleaving stands for all, as the verifier checks; for few ranks it is shown. So larger counts take turns.
TEST_P(Proof, HoldsInPartsForEveryRankCountInAnyInterleaving) {
  const Collective what = GetParam();
  for_each_row(what, [&](auto entry) {
    if (!entry.row.apart) return;
    for (int ranks = 2; ranks <= kEachUpTo; ++ranks) {
      for (const Division division : divisions_of(what)) {
        std::vector<Options> interleavings = interleavings_of(division, ranks);
        if (ranks > 16 && ranks < kEachUpTo) interleavings = {interleavings[ranks % interleavings.size()]};
        for (const size_t count : {size_t{1}, size_t{32} * ranks + 7, *counts_of(entry.row, ranks, 32).rbegin()}) {
          const Case test{.what = what, .ranks = ranks, .root = ranks / 2, .count = count};
          const Program divided = algorithm::divide(program_of<decltype(entry)>(test, share_in(test)), division);
          for (const Options& options : interleavings) prove(divided, entry.row, test, options);
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

/// Channels differ in the peer that comes first, and go another way where there are many of them.
TEST_P(Proof, HoldsWhicheverPeerComesFirst) {
  const Collective what = GetParam();
  for_each_row(what, [&](auto entry) {
    for (const int ranks : {3, 4, 5, 8, 13}) {
      const size_t count = size_t{32} * (cuts_blocks(entry.row) ? ranks : 1) * 3 + 7;
      const Case test{.what = what, .ranks = ranks, .root = ranks / 2, .count = count};
      for (int turn = 1; turn < ranks - 1; ++turn) {
        Share share = share_of(test.count, test.chunk, 0, 1, 16);
        share.turn = turn;
        for (const int channels : {1, 64}) {
          share.channels = channels;
          prove(entry, test, share);
          prove(entry, test, share, {.seed = 1});
        }
      }
    }
  });
}

TEST_P(Proof, HoldsForAnyInterleavingAndMoreSlots) {
  const Collective what = GetParam();
  for_each_row(what, [&](auto entry) {
    for (const int ranks : {2, 3, 4, 5, 8, 13}) {
      const int root = entry.row.canonical_to_ends ? ranks % 2 : ranks / 2;
      const Case test{.what = what, .ranks = ranks, .root = root, .count = size_t{32} * ranks * 3 + 7};
      for (const int slots : {algorithm::kLeastSlots, 3, 5, 64}) {
        for (const uint64_t seed : {1, 2, 3}) prove(entry, test, {.slots = slots, .seed = seed});
      }
    }
  });
}

/// Where order does not matter a chain ends with the root, whichever rank that is: it sends nothing.
TEST(ProofOfReduceRing, NeverComesBackInAnyOrder) {
  for (int ranks = 2; ranks <= 16; ++ranks) {
    for (int root = 0; root < ranks; ++root) {
      const Case test{.what = Collective::kReduce,
                      .ranks = ranks,
                      .root = root,
                      .count = size_t{32} * ranks * 3 + 7,
                      .any_order = true};
      prove(algorithm::ReduceRing{}, test);
      const Program program = program_of<algorithm::ReduceRing>(test, share_in(test));
      for (const algorithm::Step& step : program.traces[static_cast<size_t>(root)]) {
        EXPECT_EQ(step.flow.to, algorithm::Peers::kNone) << ranks << " ranks, root " << root;
      }
    }
  }
}

/// As by LL128, where transfers begin with what has arrived of a chunk: some rows order them in another way.
TEST_P(Proof, HoldsWhereChunksNeedNotBeWhole) {
  const Collective what = GetParam();
  for_each_row(what, [&](auto entry) {
    using Entry = decltype(entry);
    using Notes = algorithm::BasicRecorder<false, false>;
    for (int ranks = 2; ranks <= 16; ++ranks) {
      for (const int root : {0, 1, ranks / 2, ranks - 1}) {
        for (const size_t rounds : {3, 8}) {
          const Case test{.what = what, .ranks = ranks, .root = root, .count = size_t{32} * ranks * rounds + 7};
          const Task task{what, ranks, root, share_in(test)};
          prove(algorithm::record<Entry, Notes>(task), Entry::row, test, {});
        }
      }
    }
  });
}

/// A launch has as many channels as any of its operations, and ranks may put others into one.
TEST(ProofOfReduceTwoShot, HoldsWhereRanksDoNotHaveAsManyChannels) {
  for (int ranks = 3; ranks <= 9; ++ranks) {
    const Case test{.what = Collective::kReduce, .ranks = ranks, .root = 1, .count = size_t{32} * ranks * 5 + 7};
    Share share = share_in(test);
    share.channels = 64;
    Program program = program_of<algorithm::ReduceTwoShot>(test, share);
    const Program others = program_of<algorithm::ReduceTwoShot>(test, share_in(test));
    for (size_t rank = 0; rank < program.traces.size(); rank += 2) program.traces[rank] = others.traces[rank];
    for (const uint64_t seed : {0, 1, 2}) prove(program, algorithm::ReduceTwoShot::row, test, {.seed = seed});
  }
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

/// What the verifier finds, for few ranks, if a row is run in parts: each kind of fault once.
template <class Entry>
std::set<Fault> faults_in_parts(Entry) {
  const Collective what = Entry::row.what;
  std::set<Fault> faults;
  for (int ranks = 2; ranks <= 9; ++ranks) {
    const Case test{.what = what, .ranks = ranks, .root = ranks / 2, .count = size_t{32} * ranks * 3 + 7};
    const Program divided = algorithm::divide(program_of<Entry>(test, share_in(test)));
    for (Options options : interleavings_of(algorithm::division_of(reduces(what)), ranks)) {
      for (const bool in_place : {false, true}) {
        options.in_place = in_place;
        for (const Finding& finding : verify(divided, options).findings) faults.insert(finding.fault);
      }
    }
  }
  return faults;
}

/// That a row may be run in parts is no matter of course: this is what would happen to the others.
TEST(ProofInParts, FailsInPartsForTheRowsThatNeedTheirOrder) {
  // Their parts would be right too, but have nothing to do for each other: a rank only sends, or only receives.
  const std::set<std::pair<Collective, Algorithm>> harmless{{Collective::kBroadcast, Algorithm::kOneShot},
                                                            {Collective::kBroadcast, Algorithm::kRing},
                                                            {Collective::kReduce, Algorithm::kOneShot},
                                                            {Collective::kGather, Algorithm::kOneShot},
                                                            {Collective::kScatter, Algorithm::kOneShot}};
  algorithm::Table::for_each([&](auto entry) {
    const algorithm::Row& row = entry.row;
    const std::set<Fault> faults = faults_in_parts(entry);
    const std::string name = std::string(name_of(row.what)) + " " + name_of(row.algorithm);
    EXPECT_EQ(faults.empty(), row.apart || harmless.count({row.what, row.algorithm}) > 0) << name;
  });
}

INSTANTIATE_TEST_SUITE_P(Of, Proof,
                         testing::Values(Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce,
                                         Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll,
                                         Collective::kGather, Collective::kScatter),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace nitinol::verify
