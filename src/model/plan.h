// What an executor is asked to do: operations with their buffers, and how each is to be carried out.
#pragma once

#include <compare>
#include <vector>

#include "model/types.h"

namespace nitinol {

/// Agreed by all ranks by construction: computed from agreed values only.
struct Plan {
  Algorithm algorithm = Algorithm::kOneShot;
  Protocol protocol = Protocol::kSimple;
  int channels = 1;     ///< CTAs (GPU); virtual GPUs use one
  size_t chunk = 0;     ///< elements per chunk: at most one slot of the protocol
  bool apart = false;   ///< parts of a rank's program at the same time (algorithm/parts.h), each with so many channels
  bool joined = false;  ///< the parts of a channel share a CTA, and each copies from or to one peer by itself
  bool small = false;   ///< by CTAs of few threads, of which there are many

  auto operator<=>(const Plan&) const = default;
};

/// One collective of one rank. Counts are in elements of `type`, as in the API: `count` is the size of one rank's
/// block. Operations that only move bytes come with type kUint8 and count in bytes.
struct CollectiveWork {
  Collective what = Collective::kAllReduce;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  DataType type = DataType::kUint8;
  DataType stated = DataType::kUint8;  ///< the type that the caller named, also where only bytes are moved
  Reduction reduction;
  int root = 0;
  Plan plan;

  /// Whether the result does not depend on the order of ranks.
  constexpr bool any_order() const { return !reduces(what) || reduction.order_free(type); }
};

/// One send or receive of one rank. Messages with the same peer and direction run in the order given.
struct MessageWork {
  /// More than any GPU has: executors keep other things beside it in a word.
  static constexpr size_t kMostBytes = (size_t{1} << 40) - 1;

  enum class Direction : int { kSend, kReceive } direction = Direction::kSend;
  int peer = 0;
  void* buffer = nullptr;  ///< a send only reads it
  size_t bytes = 0;
  DataType stated = DataType::kUint8;  ///< the type that the caller named

  bool is_send() const { return direction == Direction::kSend; }
};

/// One launch: the collectives in order, then the messages all at the same time.
struct Launch {
  std::vector<CollectiveWork> collectives;
  std::vector<MessageWork> messages;

  /// Keeps the memory.
  void clear() {
    collectives.clear();
    messages.clear();
  }
};

/// What one channel does of a collective, in elements within one rank's block of `stride` elements.
struct Share {
  size_t begin = 0;
  size_t end = 0;
  size_t chunk = 1;   ///< most elements a primitive may move at once
  size_t stride = 0;  ///< elements from one rank's block to the next in an n-fold buffer
  int turn = 0;  ///< which of the others comes first, from 0 to ranks - 2: channels differ, to use all links at once
  int channels = 1;  ///< of the launch: the work may be split among fewer
};

/// Splits [0, count) over channels in multiples of `grain` elements (so that every channel but the last starts
/// aligned).
NITINOL_HOST_DEVICE Share share_of(size_t count, size_t chunk, int channel, int channels, size_t grain) {
  const size_t grains = (count + grain - 1) / grain;
  const size_t per_channel = (grains + channels - 1) / channels * grain;
  const size_t begin = per_channel * channel < count ? per_channel * channel : count;
  const size_t end = begin + per_channel < count ? begin + per_channel : count;
  return Share{.begin = begin, .end = end, .chunk = chunk, .stride = count, .channels = channels};
}

}  // namespace nitinol
