// Reduce in two steps: each rank reduces one block of each round and sends the sum to the root, so that the work is
// shared.
//
// Where there are many rounds the root has no block: contributions and sums are on their way at the same time, and so
// every link carries the data about once, while contributions to a block of the root's would come in on its link
// besides. With few rounds the two steps follow each other mostly, and with blocks for all ranks each is shorter.
#pragma once

#include "algorithm/two_shot.h"

namespace nitinol::algorithm {

struct ReduceTwoShot {
  static constexpr Row row{
      .what = Collective::kReduce, .algorithm = Algorithm::kTwoShot, .canonical = true, .apart = true};

  template <class P>
  static NITINOL_HOST_DEVICE void run(P& p, const Share& share) {
    if constexpr (P::kOneChunk) {
      const Round round = round_of(share, 0, p.ranks());
      scatter_blocks(p, round, share.turn);
      reduce_block(p, block_of(round, p.rank()));
      if (p.rank() == p.root()) gather_blocks(p, round);
    } else {
      run_in_rounds(p, share, rounds_in(share, p.ranks()) > kFewRounds);
    }
  }

 private:
  /// Between 4 GPUs reduce of 4 MB, one round, took 0.84 of the time, of 8 MB 0.91, and of 16 MB, three rounds, 1.04.
  static constexpr size_t kFewRounds = 2;
  /// With fewer a rank that waits for contributions leaves the link idle: between 4 GPUs reduce of bfloat16 of 128 and
  /// 256 MB took 0.96 and 0.97 of the time with 128 channels, 1.03 and 1.04 with 48.
  static constexpr int kManyChannels = 64;

  template <class P>
  static NITINOL_HOST_DEVICE void reduce_block(P& p, const Run& mine) {
    if (p.rank() == p.root()) {
      p.reduce_from_all(input(mine.offset, mine.count), output(mine.offset, mine.count));
    } else {
      p.reduce_from_all_and_send(input(mine.offset, mine.count), p.root());
    }
  }

  /// Each round's blocks are sent before the sums of the round before are awaited, or meanwhile. With a block of the
  /// root's, whoever sends to it a contribution and a sum by the same connection reduces first before it sends on.
  template <class P>
  static NITINOL_HOST_DEVICE void run_in_rounds(P& p, const Share& whole, bool beside_root) {
    const int blocks = p.ranks() - (beside_root ? 1 : 0);
    const Share share = even_chunks(whole, blocks);
    Round now{};
    Round next = round_of(share, 0, blocks);
    for (size_t k = 1; now.begin < now.end || next.begin < next.end; ++k) {
      const Run mine = block(p, beside_root ? now : next, p.rank(), beside_root);
      const auto theirs = [&](int rank) { return block(p, next, rank, beside_root); };
      const auto gather = [&] {
        if (p.rank() == p.root()) gather_each(p, [&](int rank) { return block(p, now, rank, beside_root); });
      };
      if constexpr (P::kWholeChunks) {
        run_in_turns(p, share.turn, beside_root && share.channels >= kManyChannels, mine, theirs, gather);
      } else {  // it takes longer in turn
        scatter_each(p, share.turn, theirs);
        gather();
        if (mine.count > 0) reduce_block(p, mine);
      }
      now = next;
      next = round_of(share, k, blocks);
    }
  }

  /// A round, in which the sum goes to the root behind all blocks, or `in_turn`, in place of one: so no two ranks send
  /// to it at once. Each transfer stands in one place, as kernels have its code as often.
  template <class P, class BlockOfRank, class Gather>
  static NITINOL_HOST_DEVICE void run_in_turns(P& p, int turn, bool in_turn, const Run& mine, const BlockOfRank& theirs,
                                               const Gather& gather) {
    for (int i = 1; i <= p.ranks(); ++i) {
      const bool behind_all = i == p.ranks();
      if (behind_all) gather();
      const int peer = behind_all ? p.root() : rank_after(p.rank(), distance_at(i, turn, p.ranks()), p.ranks());
      if (in_turn ? !behind_all && peer == p.root() : behind_all) {
        if (mine.count > 0) reduce_block(p, mine);
      } else if (!behind_all) {
        const Run run = theirs(peer);
        if (run.count > 0) p.send(peer, input(run.offset, run.count));
      }
    }
  }

  /// Empty if the rank has none.
  template <class P>
  static NITINOL_HOST_DEVICE Run block(const P& p, const Round& round, int rank, bool beside_root) {
    if (!beside_root) return block_of(round, rank);
    return rank == p.root() ? Run{} : block_beside_root(p, round, rank);
  }
};

}  // namespace nitinol::algorithm
