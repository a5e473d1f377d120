#include "executor/cuda/sizes.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "algorithm/parts.h"
#include "algorithm/table.h"
#include "algorithm/traffic.h"
#include "executor/cuda/crossovers.h"
#include "executor/cuda/kernel_shapes.h"

namespace nitinol::cuda {

namespace {

constexpr size_t kGrain = 128;  ///< channels begin at multiples of so many bytes
constexpr uint32_t kSimpleSlots = 4;
constexpr size_t kMostWishedSlot = size_t{16} << 20;

struct Wish {
  int channels;
  uint32_t slots;
  uint32_t least;  ///< stored bytes per slot
  uint32_t most;
  size_t budget;          ///< bytes of the whole region
  bool from_one = false;  ///< each rank takes from one other alone
  uint32_t grain = kKi;   ///< of which slots are multiples, up to kStride
};
/// Whole units of LL16 and whole kilobytes.
constexpr uint32_t kGrainOfLL16 = 2 * kShapeOfLL16.stored;
static_assert(kGrainOfLL16 % kKi == 0);
struct BriefWish {
  int channels;
  uint32_t slots;
  uint32_t most;  ///< stored bytes per slot
  size_t budget;
};

/// What all workers of a CTA move in one go with Simple: slots that are multiples of it are filled without rests.
constexpr size_t kStride = 64 * kKi;

QueueLayout fit(int ranks, const Wish& wish) {
  const size_t peers = static_cast<size_t>(std::max(wish.from_one ? 1 : ranks - 1, 1));
  size_t share = wish.budget / (peers * static_cast<size_t>(wish.channels) * wish.slots) / wish.grain * wish.grain;
  if (share > kStride) share = share / kStride * kStride;
  const auto bytes = static_cast<uint32_t>(std::clamp<size_t>(share, std::min(wish.least, wish.most), wish.most));
  return make_layout(ranks, wish.channels, wish.slots, bytes, wish.from_one ? 1 : ranks - 1);
}

/// In slots of powers of two: between 4 H100 all-reduce of 1 MB took 9.2 us with 4, 8 and 16 KB, but 10.1 with 6
/// and 12.
QueueLayout fit(int ranks, const BriefWish& wish) {
  const size_t slots = static_cast<size_t>(ranks) * static_cast<size_t>(wish.channels) * wish.slots;
  const size_t share = std::bit_floor(wish.budget / slots);
  return make_layout(ranks, wish.channels, wish.slots, static_cast<uint32_t>(std::clamp<size_t>(share, kKi, wish.most)),
                     ranks);
}

/// Of ranks that share a GPU all but one leave it a multiprocessor: they may wait for what it has still to do before,
/// and a large CTA, which that may have, fits beside none of theirs. (CUDA spreads CTAs over all multiprocessors
/// first.)
int most_beside_others(const Machine& m) {
  return m.ranks_per_gpu == 1 ? std::numeric_limits<int>::max() : (m.multiprocessors - 1) / (m.ranks_per_gpu - 1);
}

/// How many CTAs each rank has resident at once where two of its kind fit on a multiprocessor: some room is left.
int resident_ctas(const Machine& m) {
  return std::min(m.multiprocessors * 3 / 2 / m.ranks_per_gpu, most_beside_others(m));
}

/// A channel of messages has one to each peer and one from it.
int message_lanes(const Machine& m) { return 2 * std::max(1, m.ranks - 1); }

/// The channels of each part where parts have CTAs of their own. 0: too few, or
/// not where it has been seen to help.
int channels_apart(const Machine& m, bool sums, int most) {
  if (m.ranks == 1 || m.max_channels > 0 || m.in_host_memory) return 0;
  const int resident = resident_ctas(m) / algorithm::parts_of(algorithm::division_of(sums), m.ranks);
  return resident < 8 ? 0 : std::min(resident, most);
}

/// CTAs in which the parts of a channel are joined: each has a multiprocessor to itself, so they leave some. 0: not
/// where it has been seen to help.
int channels_joined(const Machine& m) {
  if (!has_three_or_four_ranks(m) || m.in_host_memory || m.bulk_bytes < most_joined_bytes(m.ranks)) return 0;
  const int resident = std::min(m.multiprocessors * 3 / 4 / m.ranks_per_gpu, most_beside_others(m));
  return std::max(1, std::min(resident, m.max_channels > 0 ? std::min(m.max_channels, kCtasOfNccl) : kCtasOfNccl));
}

/// Where data goes along a line of ranks it is the number of channels that counts: broadcast of 256 MB between 4 GPUs
/// reached 333 GB/s with 64, 348 with 96, 354 with 120 and 355 with 128, with 8 workers as with 16, and 346 with chunks
/// of 16 KB, 337 with 64 KB.
int channels_in_line(const Machine& m) {
  const int most = m.in_host_memory ? 32 : 128;
  return std::max(1, std::min(resident_ctas(m), m.max_channels > 0 ? std::min(m.max_channels, 64) : most));
}

/// Channels of messages: the lanes of all ranks on a GPU must be resident at once, and those of a rank fit into a
/// launch.
int message_channels(const Machine& m, int most) {
  const int channels = std::clamp(std::min(resident_ctas(m), ManyMessages::kMaxLanes) / message_lanes(m), 1, most);
  return m.max_channels > 0 ? std::min(channels, m.max_channels) : channels;
}

/// Measured with 2 H200.
void set_message_protocols(const Machine& m, Sizes& sizes) {
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  if (m.lines_stay_whole) {
    // LL would save 0.2 us up to 2 KB, but messages of several protocols take a launch each. 16 MB took 63 us with
    // LL128 and 66 with Simple, 32 MB 130 and 110.
    sizes.message_bytes = {0, size_t{16} << 20, kAll};
  } else {
    sizes.message_bytes = {(m.in_host_memory ? 256 : 64) * kKi, 0, kAll};
  }
  const uint32_t simple = m.in_host_memory ? 8 * kKi : 32 * kKi;
  sizes.message_grain = {{{4 * kKi, 0}, {4 * kKi, 0}, {simple, simple}}};
}

/// All-reduce of 4 MB took 37 us with 32, 33 with 64 and 29 with 96 channels between 4 GPUs, 22.7 with 64 and 20.8 with
/// 96 between 2; all-gather of 8 MB 28 and 25.5, and 19.0 and 17.9.
int usual_channels(const Machine& m) { return m.ranks > 4 || m.in_host_memory ? 32 : 96; }

/// Whether brief operations that are too long for the usual slots have longer ones, in memory of their own: where that
/// was measured. Between 4 all-reduce of 3.2, 4 and 5 MB took 20.4, 25.2 and 30.5 us so, 26.3, 27.7 and 34.5 otherwise,
/// reduce-scatter 12.5, 17.2 and 20.5, 13.5, 19.6 and 23.4, all-gather of 4 MB 17.6 and 18.8.
bool has_long_brief(const Machine& m) { return has_three_or_four_ranks(m) && m.max_channels == 0 && !m.in_host_memory; }

/// The largest slot with Simple, unless the user asks for another.
uint32_t usual_slot(const Machine& m) { return m.in_host_memory && m.ranks > 2 ? kSlotThroughHost : 128 * kKi; }

/// The largest slot of what goes from all to all by small CTAs, likewise.
uint32_t most_of_mesh(const Machine& m) { return (has_few_ctas(m) ? 128 : m.ranks == 2 ? 64 : 32) * kKi; }

/// With chunks that go as a whole more CTAs gain nothing,
constexpr int kMostOfSimple = 64;
/// and to one peer through host memory they lose.
int most_of_simple(const Machine& m) {
  if (!m.in_host_memory || m.ranks == 1) return kMostOfSimple;
  if (m.ranks == 2) return 16;
  const size_t of_a_channel = static_cast<size_t>(m.ranks * (m.ranks - 1)) * kSimpleSlots * kChunkThroughHost;
  return static_cast<int>(std::clamp<size_t>(kUnderWayThroughHost / of_a_channel, 8, kMostOfSimple));
}

}  // namespace

Sizes sizes_for(const Machine& m) {
  const int resident = std::max(1, m.multiprocessors * 3 / 4 / m.ranks_per_gpu);
  const int channels = std::min(resident, m.max_channels > 0 ? std::min(m.max_channels, 64) : usual_channels(m));
  const int simple_channels = std::min(channels, most_of_simple(m));
  // Small CTAs where many lanes must be resident on one GPU.
  Sizes sizes;
  sizes.message_threads = message_lanes(m) > resident_ctas(m) ? 128 : 256;
  sizes.message_ctas = m.max_channels;
  // Two streams for each rank must not come to share a hardware queue.
  const int lanes_of_gpu = m.multiprocessors * (sizes.message_threads == 128 ? 4 : 2);
  sizes.lanes_at_once = m.ranks_per_gpu <= 4 ? std::min(lanes_of_gpu / m.ranks_per_gpu, most_beside_others(m)) : 0;
  // Between 2 GPUs 256 MB took 773 us with 16 channels and 813 with 32, 4 MB with LL128 20 and 19.
  const int message_lines = message_channels(m, 32);
  const int message_slots = message_channels(m, m.in_host_memory ? 32 : 16);
  const int low_channels = std::min(channels, 16);
  // In host memory each slot is on pages of its own, of which the GPU has few at hand: few channels.
  const int least_channels = std::min(channels, m.in_host_memory ? 8 : 16);
  // Between 4 all-gather of 128 KB took 3.8 us with 16, 3.1 with 32: units of all blocks are moved at once then. With
  // fewer CTAs in all 32 of them would be too many to overlap (ctas_ahead), and it took 3.6.
  const bool more_brief = m.ranks > 2 && !m.in_host_memory && channels >= 64;
  const int brief_channels = more_brief ? 32 : least_channels;

  const int sums = channels_apart(m, true, simple_channels);
  // A CTA of two channels is as large as any.
  const bool two_per_cta = has_two_channels_per_cta(m);
  const int per_cta = two_per_cta ? kMostRows : 1;
  const int in_mesh = two_per_cta ? channels * per_cta : 2 * sums;
  const int joined = channels_joined(m);
  const int in_line = two_per_cta ? channels * per_cta : channels_in_line(m);

  const auto asked = static_cast<uint32_t>(std::min(m.buffer_bytes / kSimpleSlots, kMostWishedSlot)) / kKi * kKi;
  const auto most = m.buffer_bytes == 0 ? usual_slot(m) : std::max<uint32_t>(asked, kKi);
  // Between 2 GPUs all-reduce of 256 MB took 829 us with 256 KB, 871 with 128 KB; reduce of 64 MB 197 and 209.
  const bool near_pair = m.buffer_bytes == 0 && m.ranks == 2 && !m.in_host_memory;
  sizes.layouts = {
      // The least go by brief kernels.
      fit(m.ranks, Wish{least_channels, 8, 1 * kKi, 16 * kKi, size_t{m.in_host_memory ? 16U : 4U} << 20}),
      // Between 2 all-gather of 64 MB took 121 us with 4 slots of a channel, 111 with 8.
      fit(m.ranks, Wish{channels, channels > 32 && m.ranks > 2 ? 4U : 8U, 1 * kKi, 32 * kKi,
                        size_t{m.ranks == 2 ? 24U : 28U} << 20}),
      fit(m.ranks, Wish{simple_channels, kSimpleSlots, 2 * kKi, near_pair ? 2 * most : most, size_t{116} << 20}),
      fit(m.ranks, Wish{.channels = message_channels(m, 16),
                        .slots = 8,
                        .least = kGrainOfLL16,
                        .most = 4 * kGrainOfLL16,
                        .budget = size_t{6} << 20,
                        .grain = kGrainOfLL16}),
      fit(m.ranks, Wish{message_lines, 8, 1 * kKi, 16 * kKi, size_t{14} << 20}),
      // 256 MB to a neighbour took 780 us with 512 KB of slots for a connection, 940 with 256 KB.
      fit(m.ranks, Wish{message_slots, kSimpleSlots, 2 * kKi, most, size_t{52} << 20}),
      fit(m.ranks, Wish{2 * std::max(sums, 1), kSimpleSlots, 2 * kKi, std::min(most, 32 * kKi), size_t{128} << 20}),
      // Between 2 all-reduce of 256 MB took 770 us with 64 KB, 838 with 32 KB; with 48 channels 842 with 128 KB, 940
      // with 64 KB. In a line 240 to 256 MB took 740 and 755 us with 48 channels and 64 and 32 KB.
      fit(m.ranks, Wish{std::max(in_mesh, 1), 8, 2 * kKi, std::min(most, most_of_mesh(m)), size_t{128} << 20}),
      fit(m.ranks, Wish{in_line, 16, 1 * kKi, std::min(most, (two_per_cta ? 64 : 32) * kKi), size_t{65} << 20, true}),
      fit(m.ranks, Wish{algorithm::streams_of(true) * std::max(joined, 1), 8, 2 * kKi, std::min(most, 64 * kKi),
                        size_t{128} << 20}),
      fit(m.ranks, BriefWish{brief_channels, 8, 8 * kKi, size_t{m.ranks <= 8 ? 5U : 8U} << 20}),
      fit(m.ranks, BriefWish{channels, 4, 16 * kKi, size_t{m.ranks <= 4 ? 12U : 8U} << 20}),
      fit(m.ranks, BriefWish{channels, 4, 32 * kKi, size_t{24} << 20}),
      fit(m.ranks, Wish{.channels = low_channels,
                        .slots = m.ranks > 16 ? 4U : 8U,
                        .least = kGrainOfLL16,
                        .most = 8 * kGrainOfLL16,
                        .budget = size_t{16} << 20,
                        .grain = kGrainOfLL16}),
  };
  const bool has_lines = !m.lines_stay_whole;
  // Through host memory up to 32 KB took 2 to 16 % longer in lines, 64 KB up to 15 % less.
  if (has_lines) sizes.without_lines_bytes = 32 * kKi;
  const auto payload = [&](Queue queue) {
    return size_t{payload_of(queue, sizes.layouts[static_cast<size_t>(queue)].slot_bytes)} / 128 * 128;
  };
  // What does not suit lines has chunks of its own slots, which are shorter: the executor sees to that.
  sizes.limits.slot_bytes = {payload(has_lines ? Queue::kLL16 : Queue::kLL), payload(Queue::kLL128),
                             payload(Queue::kSimple)};
  // What the warps of a CTA move at once: shorter chunks leave some of them idle, longer ones fill the pipeline later.
  // With 24 CTAs between 4 all-reduce of 16 MB took 101 us in chunks of 30 KB, 125 of 15 KB, with 32 94 and 104.
  const size_t units = has_three_or_four_ranks(m) && has_few_ctas(m) ? 2 : 1;
  sizes.two_shot_chunk = units * size_t{kMaxWorkers} * kShapeOfLL128.bytes;
  // All-reduce of 8 MB between 4 took 48.8 us in one round of chunks of 22 KB, 52.5 in two of 15 KB.
  const size_t whole_slot = payload(Queue::kLL128);
  sizes.two_shot_chunk_of_one_round =
      has_three_or_four_ranks(m) ? whole_slot : std::min(whole_slot, sizes.two_shot_chunk);
  if (!m.lines_stay_whole) sizes.limits.slot_bytes[static_cast<size_t>(Protocol::kLL128)] = 0;
  for (const Queue queue : kBriefQueues) {
    if (m.ranks == 1 || sizes.limits.slot_bytes[static_cast<size_t>(protocol_of_brief(queue))] == 0) continue;
    if (queue == Queue::kLongBrief && !has_long_brief(m)) continue;
    sizes.brief_bytes[static_cast<size_t>(queue)] = payload(queue);
  }
  sizes.limits.channels = channels;
  sizes.limits.simple_channels = simple_channels;
  // Two of them are resident at once then, with no more CTAs than the largest launch has; ranks that share a GPU have
  // no room to spare.
  if (m.ranks_per_gpu == 1) sizes.ctas_ahead = std::min(channels, kMostOfSimple) / 2;
  sizes.ranks_share_gpus = m.ranks_per_gpu > 1;
  sizes.limits.grain_bytes = kGrain;
  sizes.limits.bytes_per_channel = 1 * kKi;
  sizes.limits.apart_sums = {sums, sizes.layouts[static_cast<size_t>(Queue::kSums)].slot_bytes};
  sizes.limits.apart_moves = {channels_apart(m, false, simple_channels), sizes.limits.slot_bytes[2]};
  const QueueLayout& line = sizes.layouts[static_cast<size_t>(Queue::kLine)];
  if (m.ranks > 1) sizes.limits.line = {line.channels, line.slot_bytes, per_cta};
  const QueueLayout& mesh = sizes.layouts[static_cast<size_t>(Queue::kMesh)];
  if (m.ranks > 1 && in_mesh > 0) sizes.limits.mesh = {mesh.channels, mesh.slot_bytes, per_cta};
  if (joined > 0) sizes.limits.joined = {joined, sizes.layouts[static_cast<size_t>(Queue::kJoined)].slot_bytes};
  set_crossovers(m, sizes.limits);
  set_crossovers_of_brief_shots(m, sizes);
  set_message_protocols(m, sizes);
  return sizes;
}

Queue queue_of_ll(const Sizes& sizes, const CollectiveWork& work, int ranks) {
  const size_t bytes = work.count * bytes_of(work.type);
  const size_t to_peer = algorithm::bytes_to_peer(work.what, work.plan.algorithm, bytes, ranks);
  const bool lines = to_peer > sizes.without_lines_bytes && work.reduction.combine == Combine::kSum &&
                     algorithm::suits_lines(work.what, work.plan.algorithm, work.type);
  return lines ? Queue::kLL16 : Queue::kLL;
}

Protocol message_protocol(const Sizes& sizes, size_t bytes) {
  for (const Protocol protocol : {Protocol::kLL, Protocol::kLL128}) {
    if (bytes <= sizes.message_bytes[static_cast<size_t>(protocol)]) return protocol;
  }
  return Protocol::kSimple;
}

}  // namespace nitinol::cuda
