#include "tuning/choose.h"

#include <algorithm>

#include "algorithm/parts.h"
#include "algorithm/table.h"
#include "algorithm/traffic.h"
#include "base/error.h"

namespace nitinol {
namespace {

bool allowed(uint32_t bits, int index) { return (bits >> index & 1U) != 0; }

size_t bytes_of_all(const Question& question) { return question.count * bytes_of(question.type); }

/// Whether the algorithm exists, is allowed, and gives the result that the user may expect.
bool serves(const Question& question, const Rules& rules, Algorithm algorithm) {
  const auto what = static_cast<size_t>(question.what);
  if (!algorithm::exists(question.what, algorithm)) return false;
  if (!allowed(rules.algorithms[what], static_cast<int>(algorithm))) return false;
  const bool any_order = question.order_free || rules.algorithms_named[what] || !rules.reproducible;
  return any_order || algorithm::canonical(question.what, algorithm, question.type, question.root, question.ranks);
}

/// Whether the operation is long enough for small CTAs, of which the user allows `ctas`.
bool may_be_small(const Question& question, int ctas, const Rules& rules, size_t least) {
  const uint32_t protocols = rules.protocols[static_cast<size_t>(question.what)];
  return ctas > 0 && least > 0 && bytes_of_all(question) >= least &&
         (rules.max_channels == 0 || ctas <= rules.max_channels) &&
         allowed(protocols, static_cast<int>(Protocol::kSimple));
}

const Limits::Small& offered_small(const Question& question, const Limits& limits, Algorithm algorithm) {
  return limits.small(
      algorithm::goes_along_line(question.what, algorithm, question.ranks, question.root, question.order_free));
}

size_t message_bytes(const Question& question, Algorithm algorithm) {
  return algorithm::message_bytes(algorithm, bytes_of_all(question), question.ranks);
}

bool is_reduce_in_ring(const Question& question, Algorithm algorithm) {
  return question.what == Collective::kReduce && algorithm == Algorithm::kRing;
}

const Limits::ReduceRing& ring_for(const Question& question, const Limits& limits) {
  const bool back = algorithm::comes_back(question.root, question.ranks, question.order_free);
  return back ? limits.reduce_ring_back : limits.reduce_ring;
}

/// From how many bytes on small CTAs are faster; 0: never.
size_t least_of_small(const Question& question, const Limits& limits, Algorithm algorithm) {
  if (!is_reduce_in_ring(question, algorithm)) return limits.small_bytes[static_cast<size_t>(question.what)];
  return ring_for(question, limits).small_bytes;
}

/// Whether it is done by small CTAs that all do the same.
bool goes_small(const Question& question, const Limits& limits, const Rules& rules, Algorithm algorithm) {
  const Limits::Small& offered = offered_small(question, limits, algorithm);
  return algorithm::suits_small_ctas(question.what, algorithm, question.type, question.ranks, question.sum) &&
         may_be_small(question, offered.channels / offered.per_cta, rules, least_of_small(question, limits, algorithm));
}

/// Whether it is a broadcast or reduce that fast kernels carry around a ring, in the order of ranks if that matters.
bool suits_ring(const Question& question) {
  return algorithm::suits_ring(question.what, question.type, question.sum) &&
         (question.order_free ||
          algorithm::canonical(question.what, Algorithm::kRing, question.type, question.root, question.ranks));
}

size_t bytes_to_peer(const Question& question, Algorithm algorithm) {
  return algorithm::bytes_to_peer(question.what, algorithm, bytes_of_all(question), question.ranks);
}

/// Whether it is short enough for lines, and suits them.
bool goes_in_lines(const Question& question, const Limits& limits, Algorithm algorithm) {
  if (!question.sum || !algorithm::suits_lines(question.what, algorithm, question.type)) return false;
  const size_t most =
      algorithm == Algorithm::kRing ? limits.ring_lines_bytes : limits.lines_bytes[static_cast<size_t>(question.what)];
  return bytes_to_peer(question, algorithm) <= most;
}

bool goes_by_ll(const Question& question, const Limits& limits, Algorithm algorithm) {
  return bytes_to_peer(question, algorithm) <= limits.ll_bytes || goes_in_lines(question, limits, algorithm);
}

/// Whether there is a block for each rank, which does not always begin with a vector of 16 bytes, and LL128 has kernels
/// for that.
bool has_blocks_of_grains(const Question& question) {
  const size_t block = bytes_of_all(question);
  return has_block_per_rank(question.what) && !rooted(question.what) && block % 16 != 0 &&
         block % algorithm::grain_of_blocks(question.what, question.type) == 0 && question.sum &&
         algorithm::is_often_long(question.what, question.type);
}

/// Whether blocks begin within words: that takes more instructions.
bool cuts_words(const Question& question) {
  return has_block_per_rank(question.what) && bytes_of_all(question) % 4 != 0;
}

/// Bytes of one message.
size_t most_of_ll128(const Question& question, const Limits& limits, Algorithm algorithm) {
  const bool in_line = is_reduce_in_ring(question, algorithm) && suits_ring(question);
  if (in_line && ring_for(question, limits).bytes != SIZE_MAX) return SIZE_MAX;
  const auto what = static_cast<size_t>(question.what);
  const size_t usual = limits.ll128_bytes[what];
  if (has_blocks_of_grains(question)) return std::max(usual, limits.words_ll128_bytes[what]);
  const bool twice = question.what == Collective::kAllReduce && algorithm == Algorithm::kTwoShot;
  return twice ? std::min(usual, limits.two_shot_ll128_bytes) : usual;
}

/// Where there is but one protocol, as on virtual GPUs, nothing is to be ruled out.
bool usable(const Question& question, const Limits& limits, const Rules& rules, Protocol protocol) {
  const auto& slots = limits.slot_bytes;
  const bool is_only = std::count(slots.begin(), slots.end(), size_t{0}) == kProtocols - 1;
  return slots[static_cast<size_t>(protocol)] > 0 &&
         (is_only || allowed(rules.protocols[static_cast<size_t>(question.what)], static_cast<int>(protocol)));
}

/// Whether it is one that may be brief in two shots.
bool suits_two_brief_shots(const Question& question, Algorithm algorithm, Protocol protocol) {
  return question.sum && algorithm::suits_two_brief_shots(question.what, algorithm, protocol, question.type);
}

size_t least_in_ring(const Question& question, const Limits& limits) {
  if (question.what == Collective::kBroadcast) return limits.broadcast_ring_bytes;
  const Limits::ReduceRing& ring = ring_for(question, limits);
  const bool brief = suits_two_brief_shots(question, Algorithm::kTwoShot, Protocol::kLL128);
  return brief ? std::max(ring.bytes, ring.brief_bytes) : ring.bytes;
}

/// Whether a broadcast or reduce goes in a ring: where there is a fast way to.
bool goes_around(const Question& question, const Limits& limits, const Rules& rules) {
  const bool to_root = question.what == Collective::kReduce;
  if (!suits_ring(question) || bytes_of_all(question) < least_in_ring(question, limits)) return false;
  const auto may_go = [&](Protocol protocol) { return usable(question, limits, rules, protocol); };
  const size_t most = most_of_ll128(question, limits, Algorithm::kRing);
  return (message_bytes(question, Algorithm::kRing) <= most && may_go(Protocol::kLL128)) ||
         (goes_in_lines(question, limits, Algorithm::kRing) && may_go(Protocol::kLL)) ||
         (to_root && ring_for(question, limits).by_simple && may_go(Protocol::kSimple)) ||
         goes_small(question, limits, rules, Algorithm::kRing);
}

size_t most_in_one_shot(const Question& question, const Limits& limits, const Rules& rules) {
  if (question.what == Collective::kBroadcast) return limits.broadcast_one_shot_bytes;
  const bool to_root = question.what == Collective::kReduce;
  const size_t usual = to_root ? limits.reduce_one_shot_bytes : limits.one_shot_bytes;
  constexpr Protocol kFast = Protocol::kLL128;
  const bool fast = allowed(rules.protocols[static_cast<size_t>(question.what)], static_cast<int>(kFast));
  if (!fast || !suits_two_brief_shots(question, Algorithm::kTwoShot, kFast)) return usual;
  return std::min(usual, to_root ? limits.sum_reduce_one_shot_bytes : limits.sum_one_shot_bytes);
}

Algorithm choose_algorithm(const Question& question, const Limits& limits, const Rules& rules) {
  const size_t bytes = bytes_of_all(question);
  // Between two ranks the second shot of these would only add a hop.
  const bool direct = question.what == Collective::kBroadcast || question.what == Collective::kReduce;
  const bool small = bytes <= most_in_one_shot(question, limits, rules) || (direct && question.ranks == 2);
  const bool around = goes_around(question, limits, rules);
  const Algorithm shots[] = {small ? Algorithm::kOneShot : Algorithm::kTwoShot,
                             small ? Algorithm::kTwoShot : Algorithm::kOneShot};
  const Algorithm by_preference[] = {around ? Algorithm::kRing : shots[0], shots[0], shots[1], Algorithm::kRing,
                                     Algorithm::kTree};
  for (const Algorithm algorithm : by_preference) {
    if (serves(question, rules, algorithm)) return algorithm;
  }
  fail(ncclInvalidUsage, "{}: NCCL_ALGO allows no algorithm that this library has for it", name_of(question.what));
}

Protocol choose_protocol(const Question& question, const Limits& limits, const Rules& rules, Algorithm algorithm) {
  Protocol wanted = Protocol::kSimple;
  if (message_bytes(question, algorithm) <= most_of_ll128(question, limits, algorithm)) wanted = Protocol::kLL128;
  if (goes_by_ll(question, limits, algorithm)) wanted = Protocol::kLL;
  for (const Protocol protocol : {wanted, Protocol::kSimple, Protocol::kLL128, Protocol::kLL}) {
    if (usable(question, limits, rules, protocol)) return protocol;
  }
  fail(ncclInvalidUsage, "{}: NCCL_PROTO allows no protocol that is available here", name_of(question.what));
}

bool goes_in_few_channels(const Question& question, const Limits& limits) {
  return limits.rooted_channels > 0 && rooted(question.what);
}

int offered_channels(const Question& question, const Limits& limits, const Rules& rules, const Plan& plan) {
  if (plan.protocol == Protocol::kSimple) {
    const int most = std::min(limits.channels, limits.simple_channels);
    if (!goes_in_few_channels(question, limits)) return most;
    const bool is_long = bytes_of_all(question) >= limits.long_rooted_bytes;
    return std::min(most, is_long ? limits.rooted_channels / 2 : limits.rooted_channels);
  }
  const size_t least = limits.compact_bytes[static_cast<size_t>(question.what)];
  const bool by_ll128 = plan.protocol == Protocol::kLL128;
  const bool compact =
      by_ll128 && least > 0 && message_bytes(question, plan.algorithm) >= least && !cuts_words(question);
  if (compact) return std::min(limits.channels, std::max(kCtasOfNccl, rules.min_channels));
  const bool is_long_reduce = by_ll128 && question.what == Collective::kReduce &&
                              plan.algorithm == Algorithm::kTwoShot &&
                              bytes_of_all(question) >= limits.long_reduce_bytes;
  return is_long_reduce ? std::min(limits.channels, limits.long_reduce_channels) : limits.channels;
}

size_t bytes_per_channel(const Question& question, const Limits& limits, const Plan& plan) {
  const bool simple = plan.protocol == Protocol::kSimple && !rooted(question.what);
  return simple ? std::max(limits.bytes_per_channel, limits.simple_bytes_per_channel) : limits.bytes_per_channel;
}

/// Of at most so many channels as many as take whole units of a block, which a little more than a channel's share has
/// to fit into, as shares begin at whole grains. Between 4 GPUs all-reduce of 1448 KB took 10.6 us with 80 channels and
/// five units for each, 12.1 with 96, of which some have a unit more for next to nothing.
int channels_of_whole_units(size_t block, const Limits::TwoBriefShots& shots, size_t grain, int most) {
  const size_t all = static_cast<size_t>(most);
  if (shots.unit_bytes <= grain || block > all * shots.block_bytes) return most;
  const size_t units = std::max<size_t>(1, (block + all * shots.unit_bytes - 1) / (all * shots.unit_bytes));
  const size_t share = units * shots.unit_bytes - grain;
  return static_cast<int>(std::min(all, (block + share - 1) / share));
}

int choose_channels(const Question& question, const Limits& limits, const Rules& rules, const Plan& plan) {
  const size_t bytes = bytes_of_all(question);
  const int offered = offered_channels(question, limits, rules, plan);
  const size_t wanted = std::max<size_t>(1, bytes / bytes_per_channel(question, limits, plan));
  const bool brief = suits_two_brief_shots(question, plan.algorithm, plan.protocol);
  const size_t block = brief ? message_bytes(question, plan.algorithm) : bytes;
  const bool few = block < limits.many_channels_bytes;
  const int most = few ? std::min(offered, limits.few_channels) : offered;
  int channels = static_cast<int>(std::min<size_t>(wanted, most));
  if (brief) channels = channels_of_whole_units(block, limits.two_brief_shots, limits.grain_bytes, channels);
  channels = std::max({channels, 1, std::min(rules.min_channels, offered)});
  return rules.max_channels > 0 ? std::min(channels, rules.max_channels) : channels;
}

/// Bytes of a chunk: a slot, but with Simple less if a channel's share of the work has few such chunks: peers wait for
/// the first one and the last one as a whole. Not where chunks are passed on: there shorter ones were slower, but for
/// more than two ranks through host memory.
size_t choose_chunk(const Question& question, const Limits& limits, const Plan& plan, size_t slot) {
  const bool shots = plan.algorithm == Algorithm::kOneShot || plan.algorithm == Algorithm::kTwoShot;
  const bool passes_on = question.what == Collective::kBroadcast || !shots;
  const bool whole = (passes_on && !limits.passes_on_short_chunks) || goes_in_few_channels(question, limits);
  if (plan.protocol != Protocol::kSimple || limits.least_chunk_bytes == 0 || whole) return slot;
  // By small CTAs reduce-scatter of 32 MB between 2 took 60 us in four rounds and 69 in two, all-reduce 116 and 109.
  constexpr size_t kManyRounds = 4;
  const bool many = plan.apart || plan.joined || (plan.small && plan.algorithm == Algorithm::kOneShot);
  const size_t rounds = many ? kManyRounds : limits.least_rounds;
  const size_t parts = rounds * static_cast<size_t>(plan.channels);
  const size_t even = (message_bytes(question, plan.algorithm) + parts - 1) / parts;
  // With 48 channels between 2 all-reduce of 16 MB took 76 us in chunks of 64 KB, 84 of 43 KB: workers had rests.
  const size_t grain = plan.small || plan.joined ? limits.least_chunk_bytes : 1024;
  return std::min(slot, std::max(limits.least_chunk_bytes, (even + grain - 1) / grain * grain));
}

/// Whether it goes by LL128, as blocks that begin between vectors do where others are long enough for small CTAs or
/// parts.
bool goes_by_grains(const Question& question, const Limits& limits, const Rules& rules, Algorithm algorithm) {
  return algorithm == Algorithm::kOneShot && has_blocks_of_grains(question) &&
         usable(question, limits, rules, Protocol::kLL128) &&
         bytes_of_all(question) <= limits.words_ll128_bytes[static_cast<size_t>(question.what)];
}

/// Whether the parts of the algorithm run at the same time.
bool goes_apart(const Question& question, const Limits& limits, const Rules& rules, Algorithm algorithm) {
  const size_t least = limits.apart_bytes[static_cast<size_t>(question.what)];
  const int parts = algorithm::parts_of(algorithm::division_of(reduces(question.what)), question.ranks);
  return question.sum && algorithm::suits_parts(question.what, algorithm) &&
         may_be_small(question, limits.apart(question.what).channels * parts, rules, least);
}

/// Whether the parts of a channel share a CTA. Blocks that begin between vectors take those longer.
bool goes_joined(const Question& question, const Limits& limits, const Rules& rules, Algorithm algorithm) {
  const size_t least = limits.joined_bytes[static_cast<size_t>(question.what)];
  const bool between = has_block_per_rank(question.what) && bytes_of_all(question) % 16 != 0;
  return question.sum && !question.scaled && !between &&
         algorithm::suits_joined_parts(question.what, algorithm, question.type) &&
         may_be_small(question, limits.joined.channels, rules, least);
}

}  // namespace

Question question_of(const CollectiveWork& work, int ranks) {
  return {.what = work.what,
          .count = work.count,
          .type = work.type,
          .order_free = work.any_order(),
          .sum = !reduces(work.what) || work.reduction.combine == Combine::kSum,
          .scaled = work.reduction.scalar != Reduction::Scalar::kNone,
          .ranks = ranks,
          .root = work.what == Collective::kReduce ? work.root : 0};
}

Plan choose(const Question& question, const Limits& limits, const Rules& rules) {
  Plan plan;
  plan.algorithm = choose_algorithm(question, limits, rules);
  const bool by_grains = goes_by_grains(question, limits, rules, plan.algorithm);
  plan.joined = !by_grains && goes_joined(question, limits, rules, plan.algorithm);
  plan.small = !by_grains && !plan.joined && goes_small(question, limits, rules, plan.algorithm);
  plan.apart = !by_grains && !plan.joined && !plan.small && goes_apart(question, limits, rules, plan.algorithm);
  size_t slot = 0;
  if (plan.apart || plan.small || plan.joined) {
    const Limits::Small& offered = plan.joined  ? limits.joined
                                   : plan.apart ? limits.apart(question.what)
                                                : offered_small(question, limits, plan.algorithm);
    plan.protocol = Protocol::kSimple;
    plan.channels = offered.channels;
    slot = offered.slot_bytes;
    if (plan.small && plan.algorithm == Algorithm::kOneShot) slot = std::min(slot, limits.one_shot_chunk_bytes);
  } else {
    plan.protocol = choose_protocol(question, limits, rules, plan.algorithm);
    plan.channels = choose_channels(question, limits, rules, plan);
    slot = limits.slot_bytes[static_cast<size_t>(plan.protocol)];
  }
  plan.chunk = choose_chunk(question, limits, plan, slot) / bytes_of(question.type);
  return plan;
}

}  // namespace nitinol
