// The pure helpers that cut data: nothing may be lost, done twice or too long.
#include <gtest/gtest.h>

#include <set>

#include "algorithm/primitives.h"
#include "algorithm/tree.h"

namespace nitinol::algorithm {
namespace {

/// Calls visit(share) for shares around everything that could matter.
template <class Visit>
void for_each_share(Visit&& visit) {
  for (const size_t begin : {0, 16, 7}) {
    for (const size_t chunk : {1, 5, 16, 31, 32, 48}) {
      for (size_t count = 1; count <= 300; ++count) visit(Share{begin, begin + count, chunk, begin + count + 3});
    }
  }
}

TEST(ShareOf, ChannelsCoverEverythingOnceAndStartAligned) {
  for (const size_t grain : {1, 4, 16}) {
    for (int channels = 1; channels <= 9; ++channels) {
      for (size_t count = 0; count <= 300; ++count) {
        size_t next = 0;
        for (int channel = 0; channel < channels; ++channel) {
          const Share share = share_of(count, 8, channel, channels, grain);
          ASSERT_EQ(share.begin, next);
          ASSERT_LE(share.begin, share.end);
          ASSERT_TRUE(share.begin % grain == 0 || share.begin == count);
          ASSERT_EQ(share.chunk, 8u);
          ASSERT_EQ(share.stride, count);
          next = share.end;
        }
        ASSERT_EQ(next, count);
      }
    }
  }
}

TEST(ChunkOf, ChunksCoverTheShareOnceInOrder) {
  for_each_share([](const Share& share) {
    size_t next = share.begin;
    const size_t chunks = chunks_in(share);
    for (size_t k = 0; k < chunks; ++k) {
      const auto chunk = chunk_of(share, k);
      ASSERT_EQ(chunk.offset, next);
      ASSERT_GT(chunk.count, 0u);
      ASSERT_LE(chunk.count, share.chunk);
      next += chunk.count;
    }
    ASSERT_EQ(next, share.end);
    ASSERT_EQ(chunk_of(share, chunks).count, 0u);
    ASSERT_EQ(chunk_of(share, chunks + 1).count, 0u);
  });
}

TEST(BlockOf, RoundsAndBlocksCoverTheShareOnceInOrder) {
  for_each_share([](const Share& share) {
    for (int ranks = 2; ranks <= 9; ++ranks) {
      size_t next = share.begin;
      const size_t rounds = rounds_in(share, ranks);
      for (size_t k = 0; k < rounds; ++k) {
        const Round round = round_of(share, k, ranks);
        ASSERT_EQ(round.begin, next);
        for (int index = 0; index < ranks; ++index) {
          const auto block = block_of(round, index);
          ASSERT_LE(block.count, share.chunk);
          ASSERT_EQ(block.offset, next);
          next += block.count;
        }
        ASSERT_EQ(round.end, next);
        ASSERT_GT(round.end, round.begin);
      }
      ASSERT_EQ(next, share.end);
      for (int index = 0; index < ranks; ++index) {
        ASSERT_EQ(block_of(round_of(share, rounds, ranks), index).count, 0u);
      }
    }
  });
}

TEST(BlockOf, BlocksOfARoundAreEvenAndAligned) {
  const Share share{32, 32 + 1000, 256, 2000};
  const Round round = round_of(share, 0, 8);
  EXPECT_EQ(round.block, 128u);  // 125 rounded up
  for (int index = 0; index < 7; ++index) EXPECT_EQ(block_of(round, index).offset % kGrain, 0u);
  EXPECT_EQ(block_of(round, 7).count, 1000u - 7 * 128);
  EXPECT_EQ(round_of(share, 1, 8).begin, share.end);
}

TEST(EvenChunks, NeverMoreRoundsNorLongerChunksAndAboutEven) {
  for_each_share([](const Share& share) {
    for (int blocks = 1; blocks <= 9; ++blocks) {
      const Share even = even_chunks(share, blocks);
      ASSERT_GT(even.chunk, 0u);
      ASSERT_LE(even.chunk, share.chunk);
      ASSERT_EQ(rounds_in(even, blocks), rounds_in(share, blocks));
      ASSERT_EQ(even.begin, share.begin);
      ASSERT_EQ(even.end, share.end);
      ASSERT_EQ(even.stride, share.stride);
      ASSERT_TRUE(even.chunk == share.chunk || even.chunk % kGrain == 0);
    }
  });
  EXPECT_EQ(even_chunks(Share{0, 1100, 1000, 1100}, 1).chunk, 560u);
  EXPECT_EQ(even_chunks(Share{0, 8800, 1000, 8800}, 8).chunk, 560u);
  EXPECT_EQ(even_chunks(Share{0, 1000, 1000, 1000}, 1).chunk, 1000u);
  EXPECT_EQ(even_chunks(Share{0, 10, 1000, 10}, 1).chunk, 1000u);
  EXPECT_EQ(even_chunks(Share{0, 40000, 8192, 40000}, 1).chunk, 8192u) << "8000 would leave half a batch";
}

TEST(RankAfter, GoesAround) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (int distance = 0; distance <= ranks; ++distance) {
        EXPECT_EQ(rank_after(rank, distance, ranks), (rank + distance) % ranks);
        EXPECT_EQ(rank_before(rank_after(rank, distance, ranks), distance, ranks), rank);
      }
    }
  }
}

TEST(DistanceAt, EveryTurnVisitsAllOthersOnceAndBeginsWithAnother) {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    for (int turn = 0; turn < ranks - 1; ++turn) {
      EXPECT_EQ(distance_at(1, turn, ranks), 1 + turn);
      std::set<int> distances;
      for (int index = 1; index < ranks; ++index) distances.insert(distance_at(index, turn, ranks));
      EXPECT_EQ(distances.size(), static_cast<size_t>(ranks) - 1);
      EXPECT_EQ(*distances.begin(), 1);
      EXPECT_EQ(*distances.rbegin(), ranks - 1);
    }
  }
}

TEST(TurnOf, ChannelsTakeAllTurnsOneAfterTheOther) {
  for (int ranks = 2; ranks <= 9; ++ranks) {
    for (int channel = 0; channel < 64; ++channel) EXPECT_EQ(turn_of(channel, ranks), channel % (ranks - 1));
  }
}

TEST(TreePlace, EveryRankHangsBelowItsParentAndTheRootOnTop) {
  for (int ranks = 1; ranks <= 40; ++ranks) {
    for (int root = 0; root < ranks; ++root) {
      for (int rank = 0; rank < ranks; ++rank) {
        const TreePlace place = tree_place(rank, root, ranks);
        EXPECT_EQ(place.parent < 0, rank == root);
        EXPECT_EQ(place.level == 0, rank == root);
        EXPECT_TRUE(place.child[1] < 0 || place.child[0] >= 0);
        if (place.parent < 0) continue;
        const TreePlace above = tree_place(place.parent, root, ranks);
        EXPECT_TRUE(above.child[0] == rank || above.child[1] == rank);
        EXPECT_EQ(place.level, above.level + 1);
      }
    }
  }
}

}  // namespace
}  // namespace nitinol::algorithm
