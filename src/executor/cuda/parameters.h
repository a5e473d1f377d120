// What a launch hands to its kernel, all of it in the kernel's parameters.
#pragma once

#include "executor/cuda/layout.h"
#include "model/plan.h"
#include "model/run_notes.h"
#include "model/signature.h"

namespace nitinol::cuda {

/// Which call a kernel is in, as hosts know it (call_names.h), with three bits for which of its launch.
using CallName = uint32_t;

/// What a kernel that waits for data has found: the step is there, but of another call.
struct alignas(8) Arrived {
  uint32_t awaited;  ///< the mark of the call that waits, and how many bytes of marks there are (wires.h) in the lowest
                     ///< byte; 0: nothing was found
  uint32_t found;    ///< the mark that is there
};

/// Host memory through which the host and running kernels speak to each other.
struct Signals {
  uint32_t aborted;          ///< not zero once the communicator is aborted
  uint32_t patience;         ///< how long kernels wait for a peer, in units of 2^20 nanoseconds; 0: for ever
  uint32_t late[kMaxRanks];  ///< not zero: a kernel has waited longer than that for the rank

  // Of kernels that have to wait for milliseconds: they write it again and again.
  /// For whom, and for how long without a break: milliseconds (of 2^20 ns), at least one. Of messages with
  /// Standing::protocols() above kTimeBits.
  struct Waits {
    uint32_t for_data[kMaxRanks];
    uint32_t for_room[kMaxRanks];  ///< until they take what they were sent
  };
  static constexpr int kOfCollectives = 0;
  NITINOL_HOST_DEVICE static constexpr int of_messages(Protocol protocol) { return 1 + static_cast<int>(protocol); }
  static constexpr int kTimeBits = 32 - kProtocols;
  Waits waits[1 + kProtocols];
  CallName call;  ///< in which
  Arrived arrived[kMaxRanks];

  /// This rank's counters, for kernels that abort or have others beside them.
  struct Table {
    char* counters;
    StandingTable* standing;  ///< of messages
    int channels;
  };
  Table tables[kQueues];  ///< null: not in use yet
};

/// One queue set as the kernel sees it.
struct QueueView {
  QueueLayout layout;
  int rank = 0;
  volatile Signals* signals = nullptr;
  char* counters = nullptr;      ///< this rank's own, always in its GPU's memory
  char* region[kMaxRanks] = {};  ///< every rank's region, as mapped here
  /// Host memory for what has run: of collectives, or first of those of all that messages have (RunLines). Null: it is
  /// not noted.
  RunNotes* notes = nullptr;
};

/// One collective. Buffers are addressed in elements of the kernel's type.
struct Work {
  const char* input = nullptr;
  char* output = nullptr;
  size_t count = 0;        ///< elements of one rank's block
  size_t per_channel = 0;  ///< elements of the block that each channel takes
  uint32_t chunk = 0;      ///< elements
  int16_t root = 0;
  uint32_t mark = 0;  ///< the call's tag (Signature::tag), above 8 bits that are free
  Collective what = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kOneShot;
  Combine combine = Combine::kSum;
  bool average = false;
  bool is_unsigned = false;  ///< unsigned integers share kernels of signed ones (Combination)
  bool any_order = false;    ///< the result does not depend on the order of ranks
  Reduction::Scalar scalar = Reduction::Scalar::kNone;
  uint64_t immediate = 0;  ///< the scalar, or its address
};

inline constexpr int kMaxWorks = 8;

struct CollectiveParameters {
  QueueView queue;
  CallName name = 0;
  int works = 0;
  int channels = 1;             ///< of each part, where parts have CTAs of their own,
  bool by_channel = false;      ///< and whether the parts of a channel stand beside each other, or all of one part
  int movers = 0;               ///< of a CTA, where parts share one (mover.h),
  uint32_t piece = 0;           ///< with pieces of so many bytes
  bool next_may_begin = false;  ///< the stream's next kernel, as far as it does without memory
  bool rehearses = false;       ///< brief works: goes through its instructions while the kernel before still runs
  Work work[kMaxWorks] = {};
};
static_assert(sizeof(CollectiveParameters) < 4096);

/// One direction of one connection: the messages it carries, in order.
struct Lane {
  int16_t peer = 0;
  int8_t sends = 0;
  int8_t channel = 0;
  int16_t first = 0;  ///< index of its first message
  int16_t count = 0;
};
struct Message {
  char* buffer = nullptr;
  uint64_t bytes_and_tag = 0;

  static constexpr int kTagShift = 40;  ///< messages have fewer bits of bytes
  static Message of(void* buffer, const MessageSignature& signature) {
    return {static_cast<char*>(buffer), signature.bytes | static_cast<uint64_t>(signature.tag()) << kTagShift};
  }
  NITINOL_HOST_DEVICE size_t bytes() const { return bytes_and_tag & ((uint64_t{1} << kTagShift) - 1); }
  /// As in Work.
  NITINOL_HOST_DEVICE uint32_t mark() const { return static_cast<uint32_t>(bytes_and_tag >> 32) & 0xffffff00U; }
};

/// How messages are divided. Sender and receiver agree on it.
struct MessageGrain {
  uint32_t channel_bytes = 1;      ///< for each channel that carries a message
  uint32_t least_chunk_bytes = 0;  ///< Simple: a channel's part goes in four chunks, unless these were shorter
};

/// A launch of messages. Sizes in three classes, as the parameters are copied with each launch.
template <int kLanesAtMost, int kMessagesAtMost>
struct MessageParameters {
  static constexpr int kMaxLanes = kLanesAtMost;
  static constexpr int kMaxMessages = kMessagesAtMost;
  QueueView queue;
  CallName name = 0;
  uint32_t beside = 0;  ///< a bit for each protocol whose launches run beside each other, this one's too; 0: none do
  int lanes = 0;
  bool next_may_begin = false;
  uint8_t channels_of_lane = 1;  ///< each carries a message by so many at most, one behind the other (in rows)
  MessageGrain grain;
  Lane lane[kLanesAtMost] = {};
  Message message[kMessagesAtMost] = {};
};
using FewMessages = MessageParameters<32, 8>;
using MoreMessages = MessageParameters<200, 96>;
using ManyMessages = MessageParameters<StandingTable::kCtas, 1600>;
static_assert(sizeof(FewMessages) < 1280);
static_assert(sizeof(MoreMessages) < 4096);
static_assert(sizeof(ManyMessages) < 32764, "the most that a kernel's parameters may take");

/// Of the launch that the view is part of, whatever it is. So whoever waits need not keep an address at hand.
NITINOL_HOST_DEVICE CallName name_of_launch(const QueueView& queue) {
  constexpr size_t kAt = offsetof(CollectiveParameters, name);
  static_assert(offsetof(FewMessages, name) == kAt && offsetof(MoreMessages, name) == kAt &&
                offsetof(ManyMessages, name) == kAt);
  static_assert(offsetof(CollectiveParameters, queue) == 0 && offsetof(FewMessages, queue) == 0 &&
                offsetof(MoreMessages, queue) == 0 && offsetof(ManyMessages, queue) == 0);
  return reinterpret_cast<const CollectiveParameters&>(queue).name;
}
/// Likewise of one of messages.
NITINOL_HOST_DEVICE uint32_t beside_launch(const QueueView& queue) {
  constexpr size_t kAt = offsetof(FewMessages, beside);
  static_assert(offsetof(MoreMessages, beside) == kAt && offsetof(ManyMessages, beside) == kAt);
  return reinterpret_cast<const FewMessages&>(queue).beside;
}

}  // namespace nitinol::cuda
