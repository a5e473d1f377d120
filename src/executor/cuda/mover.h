// A warp that carries a part of a program that only sends to one peer, or only takes from one (algorithm/parts.h, by
// peer), where the parts of a channel share a CTA: joined parts. What it moves goes through shared memory in pieces,
// by the copy unit, of which several are on their way. It waits for nothing but slots and data, and tells its peer of
// slots itself: a chunk is announced once all of it has been written, while the next ones are on their way.
#pragma once

#include "executor/cuda/connections.h"
#include "executor/cuda/elements.h"
#include "executor/cuda/pieces.h"

namespace nitinol::cuda {

/// Of a mover, in shared memory.
struct __align__(16) MoverState {
  uint64_t barriers[kPieceStages];
  Seen seen;  ///< the word that it waits for
  uint32_t unused[2];
};
static_assert(sizeof(MoverState) == kMoverBytes);

struct MemoryOfMover {
  MoverState* state;
  char* stages;    ///< kPieceStages of them
  uint32_t piece;  ///< bytes that go through one at a time
};

template <class Wire, DataType type>
class Mover : public algorithm::Verbs<Mover<Wire, type>> {
 public:
  /// `channel`: that of its stream.
  __device__ __forceinline__ Mover(const QueueView& queue, int channel, int part, const MemoryOfMover& memory)
      : queue_(queue),
        channel_(channel),
        sends_(part < queue.layout.ranks),
        peer_(sends_ ? algorithm::rank_after(queue.rank, part, queue.layout.ranks)
                     : algorithm::rank_before(queue.rank, part - queue.layout.ranks + 1, queue.layout.ranks)),
        lane_(static_cast<int>(threadIdx.x % 32)),
        seen_(&memory.state->seen),
        piece_(memory.piece),
        stages_(memory.stages, stage_bytes(memory.piece), memory.state->barriers) {
    if (lane_ == 0) *seen_ = Seen{};
    __syncwarp();
  }

  __device__ __forceinline__ int rank() const { return queue_.rank; }
  __device__ __forceinline__ int ranks() const { return queue_.layout.ranks; }
  __device__ __forceinline__ int root() const { return 0; }

  /// Reads the steps where the last operation left them. Once earlier kernels are done.
  __device__ __forceinline__ void resume() {
    const ConnectionState state = *state_of_peer();
    aborted_ = queue_.layout.own_state(queue_.counters, channel_, queue_.rank)->stopped != 0;
    taken_ = sends_ ? state.sent : state.received;
    told_ = taken_;
    known_ = sends_ ? state.credit : state.received;
  }
  /// Finishes all, and writes the steps back.
  __device__ __forceinline__ void close() {
    store_all();
    if (sends_) tell_of_all();
    if (aborted_) stop_later_kernels(queue_);
    if (lane_ != 0) return;
    await_bulk_stores<0>();
    ConnectionState* const state = state_of_peer();
    if (sends_) {
      state->sent = aborted_ ? known_ + kBeyondReach : taken_;  // then no later kernel finds a slot free
      state->credit = known_;
    } else if (!aborted_) {
      state->received = taken_;
      state->posted = taken_;
    }
  }

  __device__ __forceinline__ void begin(const Work& work, int index) {
    input_ = work.input;
    output_ = work.output;
    work_ = index;
  }

  template <algorithm::Flow flow>
  __device__ __forceinline__ void transfer(const algorithm::Operands& o) {
    constexpr bool sends = flow.from == algorithm::Peers::kNone && flow.to == algorithm::Peers::kOne && !flow.into;
    constexpr bool takes = flow.from == algorithm::Peers::kOne && flow.to == algorithm::Peers::kNone && !flow.own;
    static_assert(sends || takes || algorithm::part_of(Wire::kDivision, flow, 1, 1, 0, 3) == 0,
                  "a mover's transfer that it does not carry out");
    constexpr uint32_t kBytes = Elements<type>::kSize;
    const uint32_t bytes = static_cast<uint32_t>(o.count) * kBytes;
    if constexpr (sends) {
      if (!sends_ || o.to != peer_ || aborted_) return;
      const char* const buffer = o.own.side == algorithm::Side::kInput ? input_ : output_;
      move(buffer + o.own.offset * kBytes, nullptr, bytes);
    } else if constexpr (takes) {
      if (sends_ || o.from != peer_ || aborted_) return;
      if (const char* const slot = await_data()) move(slot, output_ + o.into.offset * kBytes, bytes);
    }
  }

 private:
  static constexpr int kPending = 2;  ///< pieces that are being filled while an older one is stored
  static constexpr int kBehind = 2;   ///< and groups of stores whose end is not waited for

  /// A part of a chunk that is in its stage, or about to be.
  struct Piece {
    char* to = nullptr;   ///< null: where the one before it in its slot ends
    uint32_t bytes = 0;   ///< 0: there is none
    uint32_t within = 0;  ///< as PieceStages::fill() says
    bool is_first = false;
    bool is_last = false;
  };

  __device__ __forceinline__ ConnectionState* state_of_peer() const {
    return queue_.layout.state(queue_.counters, channel_, peer_);
  }

  /// The next slot that the peer has filled. Null: aborted.
  __device__ __forceinline__ const char* await_data() {
    const QueueLayout& layout = queue_.layout;
    char* const own = queue_.region[queue_.rank];
    const uint32_t* const filled = layout.filled(own, channel_, peer_);
    if (!has_reached(filled, taken_ + 1)) {
      store_all();  // the peer may wait for the slots
      if (!await(filled, taken_ + 1, For::kData)) return nullptr;
    }
    fence_bulk_in_global();
    return layout.slot(own, queue_.rank, peer_, channel_, taken_++);
  }
  /// Makes the next free slot the one that is being filled. False: aborted.
  __device__ __forceinline__ bool await_room() {
    const QueueLayout& layout = queue_.layout;
    const uint32_t* const credit = layout.credit(queue_.region[queue_.rank], channel_, peer_);
    const uint32_t wanted = taken_ - layout.slots + 1;
    if (!has_reached(credit, wanted)) {
      tell_of_all();  // the peer may wait for the data
      if (!await(credit, wanted, For::kRoom)) return false;
    }
    fence_bulk_in_global();
    slot_ = layout.slot(queue_.region[peer_], peer_, queue_.rank, channel_, taken_++);
    return true;
  }

  /// At the first look.
  __device__ __forceinline__ bool has_reached(const uint32_t* word, uint32_t wanted) {
    if (static_cast<int32_t>(known_ - wanted) >= 0) return true;
    known_ = __shfl_sync(0xffffffffU, load_acquire(word), 0);
    __syncwarp();  // what the first lane has seen is for all
    return static_cast<int32_t>(known_ - wanted) >= 0;
  }
  __device__ __forceinline__ bool await(const uint32_t* word, uint32_t wanted, For what) {
    Awaited awaited{word, seen_, known_, wanted, lane_ == 0 ? peer_ : -1, what};
    aborted_ = !await_words_apart<OfCollectives>({queue_, work_}, awaited);
    known_ = __shfl_sync(0xffffffffU, awaited.value, 0);
    __syncwarp();
    return !aborted_;
  }

  /// A chunk. `to`: null where it goes into a slot, for which nobody waits before the first piece is to be stored.
  __device__ __forceinline__ void move(const char* from, char* to, uint32_t bytes) {
#pragma unroll 1
    for (uint32_t at = 0; at < bytes; at += piece_) {
      const uint32_t now = min(piece_, bytes - at);
      const bool is_first = at == 0;
      const bool is_last = at + now == bytes;
      const uint32_t within = stages_.template fill<kPending>(from + at, now, is_first, bytes - at - now);
      if (older_.bytes != 0) store(older_);
      older_ = newer_;
      newer_ = Piece{to == nullptr ? nullptr : to + at, now, within, is_first, is_last};
    }
  }

  __device__ __forceinline__ void store(const Piece& piece) {
    stages_.await_filled();
    if (aborted_ || (sends_ && piece.is_first && !await_room())) {
      stages_.skip();
      return;
    }
    if (!sends_) {
      if (piece.is_last) tell(1);  // its slot has been read
      stages_.store(piece.to, piece.within, piece.bytes);
      return;
    }
    stages_.store(slot_, piece.within, piece.bytes);
    slot_ += piece.bytes;
    ends_ = ends_ << 1 | (piece.is_last ? 1U : 0U);
    if (lane_ == 0) await_bulk_stores<kBehind>();
    if ((ends_ >> kBehind & 1U) != 0) tell(1);
  }
  __device__ __forceinline__ void store_all() {
    if (older_.bytes != 0) store(older_);
    if (newer_.bytes != 0) store(newer_);
    older_ = newer_ = Piece{};
  }

  /// That so many slots more are filled, or free.
  __device__ __forceinline__ void tell(int slots) {
    told_ += slots;
    __syncwarp();
    if (lane_ != 0) return;
    const QueueLayout& layout = queue_.layout;
    if (sends_) {
      fence_all_gpus();
      store_live_word(layout.filled(queue_.region[peer_], channel_, queue_.rank), told_);
    } else {
      store_live_word(layout.credit(queue_.region[peer_], channel_, queue_.rank), told_);
    }
  }
  /// Of all chunks that have been stored, once they are written.
  __device__ __forceinline__ void tell_of_all() {
    if (lane_ == 0) await_bulk_stores<0>();
    const int ended = __popc(ends_ & ((1U << kBehind) - 1));
    ends_ = 0;
    if (ended > 0 && !aborted_) tell(ended);
  }

  const QueueView& queue_;
  int channel_;
  bool sends_;
  int peer_;
  int lane_;
  Seen* seen_;
  uint32_t piece_;
  PieceStages stages_;
  const char* input_ = nullptr;
  char* output_ = nullptr;
  int work_ = 0;
  bool aborted_ = false;
  uint32_t taken_ = 0;    ///< slots of the peer's that it has put into, or own ones that it has taken from
  uint32_t told_ = 0;     ///< those that the peer has been told of
  uint32_t known_ = 0;    ///< what the peer has told
  char* slot_ = nullptr;  ///< where the next piece of the chunk goes that is being sent
  uint32_t ends_ = 0;     ///< of the last pieces stored, the youngest in bit 0, which end chunks
  Piece older_;
  Piece newer_;
};

}  // namespace nitinol::cuda
