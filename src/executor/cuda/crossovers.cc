#include "executor/cuda/crossovers.h"

#include <algorithm>
#include <limits>

namespace nitinol::cuda {

namespace {

/// From where on parts with CTAs of their own are faster, in bytes of a block; measured with 4 H200. Small CTAs that do
/// all come first, between 2 to everything that may go in parts.
void set_crossovers_to_parts(const Machine& m, Limits& limits) {
  if (m.ranks == 2) return;
  const auto from = [&](Collective what, size_t mega) { limits.apart_bytes[static_cast<size_t>(what)] = mega << 20; };
  if (limits.apart_sums.channels > 0) {
    // All-reduce between more, not measured: small CTAs of few ranks do all (set_crossovers_to_small_ctas).
    if (m.ranks > 4) from(Collective::kAllReduce, 48);
    from(Collective::kReduceScatter, 12);
  }
  if (limits.apart_moves.channels > 0) {
    from(Collective::kAllGather, 8);
    from(Collective::kAllToAll, 4);
    from(Collective::kBroadcast, 16);
  }
}

/// From where on small CTAs are faster. Between 4 all-reduce of 16 MB took 92 us so and 97 by LL128, of 64 MB 316 and
/// 336 in parts; between 2 all-reduce of 32 MB 122 and 130 by LL128, reduce of 256 MB 744 and 764 by larger CTAs,
/// reduce-scatter of 64 MB 112 and 118 in parts, all-to-all 106 and 117, all-gather 104 and 109. All-reduce of 14
/// million bytes took 63 us so and 55 by LL128 in two shots, of 16.8 million 71 and 84 by Simple. Between 4
/// reduce-scatter of 32 and 64 MB took 97 and 169 us so, 97 by LL128 and 175 in parts, all-gather of 64 and 128 MB 166
/// and 311, in parts 168 and 318; all-to-all of 8, 16 and 64 MB 31, 50 and 166, 27 by LL128, 57 and 175 in parts; with
/// blocks between vectors all-gather of 196 million bytes 518 and 663. Between 3, such blocks: reduce-scatter of 48
/// million bytes 158 and 190, all-gather of 30 82 and 104, all-to-all of 18 and 30 76 and 76, 98 and 115. Gather and
/// scatter of 64 MB between 4 took 138 and 151 us so, 144 and 160 by Simple.
void set_crossovers_to_small_ctas(const Machine& m, Limits& limits) {
  const auto from = [&](Collective what, size_t bytes) { limits.small_bytes[static_cast<size_t>(what)] = bytes; };
  if (m.ranks <= 4) {
    from(Collective::kGather, 8 * kMega + 1);
    from(Collective::kScatter, 8 * kMega + 1);
  }
  if (m.ranks == 2) {
    from(Collective::kBroadcast, 16 * kMega + 1);
    from(Collective::kReduce, 8 * kMega + 1);
    from(Collective::kAllReduce, 16 * kMega + 1);
    from(Collective::kReduceScatter, 8 * kMega + 1);
    from(Collective::kAllToAll, 8 * kMega + 1);
    from(Collective::kAllGather, 8 * kMega + 1);
  } else {
    from(Collective::kBroadcast, (m.ranks <= 4 ? 32 : 256) * kMega);
    if (m.ranks > 4) return;
    from(Collective::kReduce, 128 * kMega);  // in two shots; in a ring: set_crossovers_to_reduce_ring
    from(Collective::kAllReduce, 12 * kMega);
    from(Collective::kReduceScatter, 10 * kMega + 1);
    from(Collective::kAllGather, 8 * kMega + 1);
    from(Collective::kAllToAll, m.ranks == 4 ? 5 * kMega / 2 : 6 * kMega);
  }
}

/// With 24 CTAs between 4 all-reduce of 12, 15, 32, 64 and 256 MB took 76, 89, 172, 322 and 1207 us so, 77, 96, 185,
/// 347 and 1317 by LL128, all-to-all 101, 177 and 636, 104, 197 and 767, reduce-scatter of 64, 128 and 256 MB 182, 347
/// and 670, 186, 363 and 711; with 32 all-reduce of 16, 32 and 256 MB 98, 169 and 1204, 93, 175 and 1255, all-to-all
/// 56, 93 and 619, 53, 99 and 651, reduce-scatter of 16, 32, 64, 128 and 256 MB 52, 97, 179, 340 and 659, 54, 101, 185,
/// 348 and 669. Of buffers that begin between vectors with 24 all-reduce of 16, 64 and 256 MB 135, 405 and 1501, by
/// LL128 107, 364 and 1362.
void set_crossovers_to_joined_parts(const Machine& m, Limits& limits) {
  if (limits.joined.channels == 0 || !has_few_ctas(m)) return;
  const bool fewest = m.max_channels < kCtasOfNccl;
  limits.joined_bytes[static_cast<size_t>(Collective::kAllReduce)] = (fewest ? 12 : 24) * kMega;
  limits.joined_bytes[static_cast<size_t>(Collective::kReduceScatter)] = (fewest ? 16 : 4) * kMega;  // blocks
  limits.joined_bytes[static_cast<size_t>(Collective::kAllToAll)] = 6 * kMega;
}

/// Broadcast between 4 in a ring took 3.3 us for 181 KB, in one shot 4.2 and in two 6.0; 1 MB 6.3 and in two shots 8.6,
/// 64 MB 198 and 225. By LL, which is what is shorter, a ring is slow: 128 KB took 6.5 us, in one shot 3.5. Between 2
/// it is the same as one shot, but of small CTAs. With more: not measured.
size_t least_of_ring(const Machine& m, const Limits& limits) {
  if (m.ranks == 2) return limits.small_bytes[static_cast<size_t>(Collective::kBroadcast)];
  return m.ranks <= 4 ? static_cast<size_t>(m.ranks) * limits.ll_bytes + 1 : size_t{256} << 20;
}

/// Between 4 reduce to rank 0 of 4, 16, 64 and 256 MB took 21.6, 63, 219 and 844 us so by LL128, 24, 83, 259 and 878
/// in two shots, 256 MB 806 by small CTAs (128 MB 445, by LL128 430); to the last rank 16.8, 57, 214 and 838, by small
/// CTAs 64 and 256 MB 200 and 754; of integers to any rank 1 MB 6.8, in one shot 11. With 24 CTAs to rank 0 22, 64, 232
/// and 898, in two shots 29, 117, 302 and 1031; with 32 22, 63, 214 and 820. With 24 of two channels each to the last
/// rank of 32, 64 and 256 MB 109, 205 and 779, by LL128 108, 211 and 818 (32 the same), to rank 0 of 128 and 256 MB 465
/// and 849, 444 and 880 (with 32 472 and 853, 416 and 823). Between 3 2 MB took 13.6 us so and 10.6 in two brief shots,
/// 8, 32 and 128 MB 35, 115 and 419 (in two shots 32 MB 145).
void set_crossovers_to_reduce_ring(const Machine& m, Limits& limits) {
  if (!has_three_or_four_ranks(m) || !m.lines_stay_whole) return;
  limits.reduce_ring.bytes = kMega;
  limits.reduce_ring_back.bytes = 1536 * kKi;
  if (m.ranks == 3 || (m.max_channels > 0 && !has_few_ctas(m))) return;
  limits.reduce_ring.small_bytes = (has_few_ctas(m) ? 48 : 32) * kMega;
  if (m.max_channels != kCtasOfNccl) limits.reduce_ring_back.small_bytes = 192 * kMega;
}

/// In two shots by LL128: between 4 reduce of bfloat16 of 8, 12, 16, 32, 64 and 256 MB took 47, 60, 78, 138, 244 and
/// 898 us with 64 channels, 45, 66, 83, 147, 267 and 993 with 96; in parts 64 and 256 MB 265 and 905, by small CTAs 64,
/// 128 and 256 MB 281, 483 and 887. Between 3 16, 64 and 256 MB 71, 238 and 891, in parts 260 and 937, by small CTAs
/// 79, 249 and 870.
void set_channels_of_long_reduces(const Machine& m, Limits& limits) {
  if (!has_three_or_four_ranks(m)) return;
  limits.long_reduce_bytes = 10 * kMega;
  limits.long_reduce_channels = 64;
}

/// A second shot saves nothing on the wire between 2: all-reduce of 1 MB took 8.0 us in one and 8.6 in two, of 4
/// MB 18.4 and 20.1, of 8 MB 33.1 and 34.3, but of 12 million bytes 65 and 48. With 32 CTAs 4 MB took 25.6 and 29.3, 8
/// MB 43 and 50 (with Simple 50), 16 MB 100 in two shots with LL128 and 80 with Simple, in one shot in clusters 67;
/// all-gather of 32 MB 65 with LL128 and 75 with Simple, of 16 MB 38 and 42.
void set_crossovers_of_pair(const Machine& m, Limits& limits) {
  limits.least_rounds = 2;
  limits.many_channels_bytes = 384 * kKi;  // 256 KB of all-reduce took 3.7 us with 32 channels, 4.4 with 96
  limits.one_shot_bytes = (has_few_ctas(m) ? 16 : 8) * kMega;
  if (!has_few_ctas(m)) return;
  limits.ll128_bytes.fill(16384 * kKi);
  limits.two_shot_ll128_bytes = 0;
  // With 24 CTAs reduce of 16 MB took 67 us with LL128 and 58 with Simple, reduce-scatter of 32 MB 98 and 94.
  if (m.max_channels == kCtasOfNccl) return;
  limits.ll128_bytes[static_cast<size_t>(Collective::kReduce)] = 8 * kMega;
  limits.ll128_bytes[static_cast<size_t>(Collective::kReduceScatter)] = 8 * kMega;
}

/// In clusters 32 CTAs do with LL128 what 96 without do not better: broadcast of 4 MB took 15.9 us both ways, of 16 MB
/// 54.1 and 57.3 with Simple; all-gather of 16 MB 32.7 and 32.6, of 64 MB 111.7 and 114.2 in parts. With no more CTAs
/// than that 128 MB of it took 215 us with LL128 and 223 with Simple; with 24 CTAs 279 with LL128, and less with
/// Simple. All-to-all of 64 MB took 140 us with 32 CTAs, with Simple 148, of 128 MB 274 and 269; with 24 178 and 164.
void set_crossovers_to_clusters(const Machine& m, Limits& limits) {
  constexpr auto kBroadcast = static_cast<size_t>(Collective::kBroadcast);
  constexpr auto kAllGather = static_cast<size_t>(Collective::kAllGather);
  const bool measured = m.max_channels == 0 || has_few_ctas(m);
  if (m.ranks != 2 || !m.has_clusters || !m.lines_stay_whole || !measured) return;
  limits.ll128_bytes[kBroadcast] = 16 * kMega;
  limits.compact_bytes[kBroadcast] = 4 * kMega;
  if (!has_few_ctas(m)) {
    limits.ll128_bytes[kAllGather] = 24 * kMega;
    limits.small_bytes[kAllGather] = 24 * kMega + 1;
  } else if (m.max_channels == kCtasOfNccl) {
    limits.ll128_bytes[kAllGather] = 64 * kMega;
    limits.ll128_bytes[static_cast<size_t>(Collective::kAllToAll)] = 32 * kMega;
  }
  limits.compact_bytes[kAllGather] = 8 * kMega;
}

/// A second shot adds a hop and saves nothing on the bus. All-reduce of 1 MB took 49 us in one shot in lines, 54 by
/// Simple and 56 in two shots; of 4, 16 and 64 MB 139, 460 and 1710, in parts 142, 477 and 1815. All-gather of 2 MB
/// took 49.5 us in lines, 54 by Simple; of 4 MB 83 with 8 channels and chunks of 64 KB, 88 with 16 and 32 KB, of 16 MB
/// 259 with 16 and 64 KB, 286 with 32 and 32 KB, 276 with 16 and 128 KB. Reduce of 4, 16 and 64 MB took 92.6, 353 and
/// 1363 us with 16 channels, 95.3, 346 and 1340 with 8.
void set_crossovers_of_pair_through_host(Limits& limits) {
  limits.one_shot_bytes = std::numeric_limits<size_t>::max();
  limits.least_chunk_bytes = 64 * kKi;
  limits.least_rounds = 64;  // so they are longer from 64 MB on alone
  limits.simple_bytes_per_channel = 4 * limits.least_chunk_bytes;
  limits.rooted_channels = 16;  // reduce of 4 MB took 94 us, with 32 channels 104
  limits.long_rooted_bytes = 8 * kMega + 1;
  for (const Collective both_ways :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll}) {
    limits.lines_bytes[static_cast<size_t>(both_ways)] = kMega;
  }
}

/// Between 4 broadcast of 128, 256, 512 KB and 1 MB took 12.3, 13.5, 25.5 and 46.5 us in a ring in lines, 13.4, 23.1,
/// 30.5 and 42.5 otherwise; between 3 128, 256 and 512 KB 7.2, 13.3 and 23.9, 8.9, 17.0 and 25.4. Reduce to the last
/// rank of 128, 256, 512 KB, 1, 4 and 16 MB took 14.3, 18.4, 27, 43, 123 and 433 us in a ring by Simple, 15, 26, 41,
/// 68, 188 and 558 otherwise. To rank 0 it has to come back: 256 KB 55 and 25, 4 MB 190 and 188, 16 MB 550 and 548.
void set_crossovers_to_rings_through_host(Limits& limits) {
  limits.broadcast_ring_bytes = 128 * kKi;
  limits.ring_lines_bytes = 640 * kKi;
  limits.reduce_ring.bytes = 128 * kKi;
  limits.reduce_ring.by_simple = true;
}

/// Measured with 2 H100, one shot of more with 4 H200. A message costs 8 us less with LL than with Simple, which fences
/// and counters take, but twice of what passes the bus of a GPU, or half as much again in lines. That bears 38 GB/s
/// each way if data goes both ways at once, 51 if one way.
void set_crossovers_through_host(const Machine& m, Limits& limits) {
  const auto peers = static_cast<size_t>(std::max(m.ranks - 1, 1));
  limits.one_shot_bytes = (m.ranks <= 4 ? 32 : 16) * kKi;
  // Between 4 broadcast of 128 KB took 13.0 us in one shot and 14.6 in two, of 256 KB 22.4 and 24.3, of 512 KB 38 and
  // 30; reduce of 512 KB 39 and 48, of 1 MB 70 and 67.
  limits.broadcast_one_shot_bytes = std::max(size_t{768} * kKi / peers, 2 * limits.one_shot_bytes);
  limits.reduce_one_shot_bytes = std::max(size_t{2304} * kKi / peers, limits.one_shot_bytes);
  limits.ll_bytes = std::clamp<size_t>(192 * kKi / peers, 16 * kKi, 128 * kKi);
  limits.lines_bytes.fill(std::clamp<size_t>(512 * kKi / peers, 16 * kKi, 512 * kKi));
  limits.bytes_per_channel = 2 * kKi;
  limits.least_chunk_bytes = kChunkThroughHost;  // 4 MB of all-gather took 84 us so, 115 with whole slots
  if (m.ranks == 2) {
    set_crossovers_of_pair_through_host(limits);
    return;
  }
  limits.least_rounds = size_t{1} << 20;  // chunks are as short as can be, however long the operation
  // Between 4 all-gather of 4 MB took 121 us with 24 channels and 130 with 32, reduce-scatter 120 and 132, all-to-all
  // 121 and 126; of 8 MB 230 and 226, 213 and 216, 231 and 225.
  limits.few_channels = 24;
  limits.many_channels_bytes = 1536 * kKi;
  // Broadcast of 1, 4, 16 and 32 MB took 47, 119, 419 and 781 us so, with 16 channels and whole slots 52, 126, 466 and
  // 917; reduce of 2, 8, 16 and 32 MB 112, 317, 544 and 1019, 107, 320, 572 and 1085.
  limits.passes_on_short_chunks = true;
  if (has_three_or_four_ranks(m)) set_crossovers_to_rings_through_host(limits);
}

/// With three or four ranks and no more CTAs than NCCL has. Between 4 all-gather of 64 MB took 171 us with 24 CTAs by
/// LL128 and 204 by Simple, with 32 175 and 193, of 256 MB 637 and 673, 640 and 651; reduce-scatter of 64 MB 185 and
/// 215, 181 and 197, all-to-all 194 and 225, 182 and 199. Reduce of 16, 32, 64 and 256 MB took 116, 222, 432 and 1701
/// us with 24 by LL128, 135, 197, 333 and 1138 by Simple; with 32 93, 170, 334 and 1310, 129, 181, 313 and 1090.
/// All-reduce of 16, 32 and 64 MB took 101, 185 and 345 with 24 by LL128, 126, 193 and 363 by Simple with two channels
/// a CTA; with 32 94, 174 and 333, 105, 197 and 345. Broadcast of 64 and 128 MB with 32 in a ring of two channels a CTA
/// 204 and 393, by LL128 207 and 407.
void set_crossovers_of_few_ctas(const Machine& m, Limits& limits) {
  const auto up_to = [&](Collective what, size_t bytes) { limits.ll128_bytes[static_cast<size_t>(what)] = bytes; };
  const bool fewest = m.max_channels < kCtasOfNccl;
  for (const Collective what : {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll}) {
    up_to(what, 64 * kMega);
  }
  up_to(Collective::kReduce, (fewest ? 6 : 12) * kMega);
  up_to(Collective::kAllReduce, 64 * kMega);
}

/// Where CTAs are few and each carries two channels (kMostRows). Between 2, with 24 CTAs, all-reduce of 16 and 64 MB
/// took 76 and 238 us so, 82 by LL128 in one shot and 261 by Simple with a channel for each CTA; reduce-scatter of 16
/// and 64 MB 48 and 131, 45 by LL128 and 165; all-gather of 64 MB 120, 138 by LL128; all-to-all of 16 and 64 MB 42 and
/// 125, 45 by LL128 and 162. With 32 CTAs all-reduce of 16 and 64 MB 69 and 222, 67 and 238; reduce-scatter of 64 MB
/// 122, 149; all-gather of 64 and 256 MB 114 and 401, 110 by LL128 and 428; all-to-all of 16 and 64 MB 39 and 117, 39
/// by LL128 and 137. Between more, not measured, in place of a channel for each CTA.
void set_crossovers_to_two_channels_per_cta(const Machine& m, Limits& limits) {
  if (!has_two_channels_per_cta(m)) {
    if (m.max_channels > 0) limits.small_bytes.fill(0);
    return;
  }
  const auto after = [&](Collective what, size_t bytes) { limits.small_bytes[static_cast<size_t>(what)] = bytes + 1; };
  const auto most_by_ll128 = [&](Collective what) { return limits.ll128_bytes[static_cast<size_t>(what)]; };
  if (m.ranks == 2) {
    const bool fewest = m.max_channels < kCtasOfNccl;
    if (fewest) limits.one_shot_bytes = 12 * kMega;
    after(Collective::kAllReduce, limits.one_shot_bytes);
    after(Collective::kAllGather, most_by_ll128(Collective::kAllGather));
    after(Collective::kAllToAll, (fewest ? 6 : 8) * kMega);
    return;
  }
  const auto n = static_cast<size_t>(m.ranks);
  for (const Collective what : {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll}) {
    after(what, most_by_ll128(what));
  }
  for (const Collective what : {Collective::kReduce, Collective::kBroadcast}) after(what, n * most_by_ll128(what));
  after(Collective::kAllReduce, n * std::min(most_by_ll128(Collective::kAllReduce), limits.two_shot_ll128_bytes));
}

/// Small CTAs and parts cut vectors out of the two that hold them. Of blocks that begin between vectors reduce-scatter
/// of 68 and 234 million bytes between 2 took 123 and 388 us by LL128, 171 and 511 by small CTAs, all-gather of 53, 87
/// and 143 100, 161 and 261, 107, 162 and 248; between 4 reduce-scatter of 53 and 234 150 and 588, 176 and 658,
/// all-gather 142 and 571, 166 and 605; between 3 reduce-scatter of 32 and 143 84 and 321, 109 and 392, all-gather 79
/// and 310, 89 and 325.
void set_crossovers_of_words(const Machine& m, Limits& limits) {
  if (m.ranks > 4 || m.max_channels > 0 || !m.lines_stay_whole) return;
  for (const Collective what : {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll}) {
    limits.words_ll128_bytes[static_cast<size_t>(what)] = std::numeric_limits<size_t>::max();
  }
  if (m.ranks == 2) limits.words_ll128_bytes[static_cast<size_t>(Collective::kAllGather)] = 40 * kMega;
}

}  // namespace

/// Measured with 2 and 4 H200 over NVLink; between more ranks what follows from that.
void set_crossovers(const Machine& m, Limits& limits) {
  // Between 4 GPUs 512 KB took 10.5 us in one shot and 12.5 in two.
  limits.one_shot_bytes = (m.ranks <= 4 ? 512 : 64) * kKi;
  limits.broadcast_one_shot_bytes = (m.ranks == 2 ? 512 : m.ranks <= 4 ? 256 : 64) * kKi;
  limits.reduce_one_shot_bytes = 4 * limits.broadcast_one_shot_bytes;  // the root alone receives from all
  limits.ll_bytes = 32 * kKi;
  // Between 4 GPUs 32 MB of all-reduce took 183 us with LL128 and 190 with Simple, of reduce-scatter 98 and 105.
  limits.ll128_bytes.fill((m.ranks <= 4 ? 8192 : 4096) * kKi);
  // Reduce of 64 MB took 247 us with LL128 and 311 with Simple, 256 MB 892 and 1029.
  if (m.ranks != 2 && !m.in_host_memory) {
    limits.ll128_bytes[static_cast<size_t>(Collective::kReduce)] = std::numeric_limits<size_t>::max();
  }
  // Reduce-scatter of 40 MB between 4 took 119 us with LL128, 139 with Simple; of 48 MB 139, in parts 140.
  if (has_three_or_four_ranks(m)) {
    limits.ll128_bytes[static_cast<size_t>(Collective::kReduceScatter)] = 12 * kMega;
  }
  limits.many_channels_bytes = 256 * kKi;
  if (m.in_host_memory) {
    set_crossovers_through_host(m, limits);
  } else {
    // 64 MB of all-gather took 187 us with chunks of 128 KB, 180 with 64 KB; 256 MB 638 and 648.
    limits.least_chunk_bytes = 32 * kKi;
    // By small CTAs reduce-scatter of 64 MB between 2 took 131 us with 48 channels and 64 KB, 146 with 128 KB.
    limits.one_shot_chunk_bytes = 64 * kKi;
    // All-reduce of 32 MB between 2 took 123 us with chunks of 128 KB and 129 with 64 KB, reduce of 16 MB 56.6
    // and 58.2.
    if (m.ranks == 2) set_crossovers_of_pair(m, limits);
    set_crossovers_to_parts(m, limits);
    set_crossovers_to_small_ctas(m, limits);
    limits.broadcast_ring_bytes = least_of_ring(m, limits);
    set_crossovers_to_reduce_ring(m, limits);
    set_channels_of_long_reduces(m, limits);
    set_crossovers_to_clusters(m, limits);
    if (has_three_or_four_ranks(m) && has_few_ctas(m)) set_crossovers_of_few_ctas(m, limits);
    set_crossovers_to_two_channels_per_cta(m, limits);
    set_crossovers_of_words(m, limits);
    set_crossovers_to_joined_parts(m, limits);
  }
}

/// Where two shots are brief (brief_connections.h). Between 4 GPUs all-reduce of 192 KB took 5.3 us in one shot and 5.7
/// in two, of 256 KB 6.2 and 5.4, with 24 channels, of 512 KB 8.6 and 7.0, with 32; with 96 7.9. Reduce of 512 KB took
/// 5.5 in one and 7.1 in two, of 1 MB 10.5 and 9.2. What is too long to be brief may go in a ring.
void set_crossovers_of_brief_shots(const Machine& m, Sizes& sizes) {
  const size_t usual = sizes.brief_bytes[static_cast<size_t>(Queue::kBriefLL128)];
  if (usual == 0) return;
  const size_t most = std::max(usual, sizes.brief_bytes[static_cast<size_t>(Queue::kLongBrief)]);
  Limits& limits = sizes.limits;
  limits.two_brief_shots = {kShapeOfLL128.bytes, most};
  const size_t of_few = usual * static_cast<size_t>(std::min(limits.channels, limits.few_channels));
  limits.many_channels_bytes = std::min(limits.many_channels_bytes, of_few);
  const size_t blocks = static_cast<size_t>(limits.channels) * static_cast<size_t>(m.ranks);
  const size_t of_all = most * blocks;
  if (m.ranks == 2) return;
  if (of_all >= limits.one_shot_bytes) limits.sum_one_shot_bytes = (m.ranks <= 4 ? 192 : 256) * kKi;
  if (of_all >= limits.reduce_one_shot_bytes) limits.sum_reduce_one_shot_bytes = 768 * kKi;
  // Between 4 reduce of 3 and 5.6 MB to the last rank took 14.8 and 23 us in a ring, 16.2 and 28.4 by long slots; to
  // rank 0 21 and 29, 15.6 and 28.
  limits.reduce_ring.brief_bytes = usual * blocks + 1;
  limits.reduce_ring_back.brief_bytes = of_all + 1;
}

}  // namespace nitinol::cuda
