// One warp's view of a channel's connections: the steps of each, the waiting, and the telling of peers.
//
// All warps of a channel run the same program. A worker moves its part of every transfer and waits for nothing but its
// own data and free slots: workers do not wait for each other, but for a barrier when slots have to be given back in
// the midst of an operation. Peers are told of the rest of the free slots when the next operation starts: a store to a
// peer at a kernel's end would prolong it, but for Simple, where that does not matter. With Simple one warp more, the
// clerk, waits until all workers are done with a transfer and then tells the peers which slots are filled and free.
//
// After an abort peers that have not heard of it yet wait on for what was not sent. With Simple the clerk announces
// nothing any more, and no later kernel finds a slot free; else the steps are counted, so that their flags never come.
// Later kernels are marked to do the same by all their connections.
//
// A channel's work may be divided into parts with a CTA for each (algorithm/parts.h). Then a CTA writes the steps back
// of those connections only that it has used.
#pragma once

#include "executor/cuda/waiting.h"

namespace nitinol::cuda {

using algorithm::Peers;

extern __shared__ uint4 shared_memory[];

struct __align__(16) Counters {
  uint32_t sent, received, posted, credit;
};
/// Added to a count of steps: further than any other ever is from it.
inline constexpr uint32_t kBeyondReach = 1U << 30;

/// Where the slots of a connection and its reverse begin.
struct __align__(16) Slots {
  char* outgoing;
  char* incoming;
};

/// What the roles of a channel have in common.
template <class Wire>
class Connections {
 public:
  /// Takes what comes by one channel and puts into another, or into the same.
  __device__ __forceinline__ Connections(const QueueView& queue, int channel_in, int channel_out, int part = 0)
      : queue_(queue),
        channel_in_(channel_in),
        channel_out_(channel_out),
        part_(part),
        lane_(threadIdx.x % 32),
        warp_(threadIdx.x / 32),
        workers_(threads() / 32 - (Wire::kCounted ? 1 : 0)) {
    uint4* const first = memory_of_channel();
    seen_ = reinterpret_cast<SeenOfPeer*>(first + 8);
    uint4* mine = first + 8 + (1 + warp_ * 4) * queue.layout.ranks;
    sources_ = reinterpret_cast<Endpoint*>(mine);
    sinks_ = sources_ + queue.layout.ranks;
    counters_ = reinterpret_cast<Counters*>(sinks_ + queue.layout.ranks);
    slots_ = reinterpret_cast<Slots*>(counters_ + queue.layout.ranks);
    progress_ = reinterpret_cast<uint32_t*>(first);
    if (Wire::kCounted && threadIdx.x < 32) progress_[threadIdx.x] = 0;
    for (int rank = static_cast<int>(threadIdx.x); rank < queue.layout.ranks; rank += threads()) {
      seen_[rank] = SeenOfPeer{};
    }
  }

  __device__ __forceinline__ int rank() const { return queue_.rank; }
  __device__ __forceinline__ int ranks() const { return queue_.layout.ranks; }
  __device__ __forceinline__ bool is_clerk() const { return Wire::kCounted && warp_ == workers_; }

  /// Reads the steps where the last operation left them. All warps of the channel, and before the barrier: behind it
  /// the first one may be through with all that it does, and write them back, before another goes on. What the rank
  /// keeps of itself is OwnState, of which `stopped` stands where `sent` does.
  __device__ __forceinline__ void resume() {
    const int peer = lane_;
    const bool takes = peer < ranks() && peer != rank();
    Counters c{};
    if (peer < ranks()) c = read(peer);
    if (takes) {
      refresh_credit(peer);
      locate(peer);  // while the steps are on their way
    }
    bool stopped = false;
    for (int more = lane_ + 32; more < ranks(); more += 32) {
      const Counters of_more = read(more);
      if (more == rank()) {
        stopped = of_more.sent != 0;
      } else {
        locate(more);
        keep(more, of_more, true);
      }
    }
    barrier();
    if (takes) keep(peer, c, true);
    stopped = stopped || (peer == rank() && c.sent != 0);
    __syncwarp();
    stopped_ = __any_sync(0xffffffffU, stopped);
  }
  /// The same for one direction of one connection, which this CTA alone works on. `meanwhile` is done by the first lane
  /// of each warp while its steps are on their way.
  template <class Meanwhile>
  __device__ __forceinline__ void resume_lane(int peer, bool sends, Meanwhile&& meanwhile) {
    Counters c{};
    uint32_t stopped = 0;
    if (lane_ == 0) {
      c = read(peer);
      stopped = read(rank()).sent;
      refresh_credit(peer);
      meanwhile();
    }
    barrier();
    for (int other = lane_; other < ranks(); other += 32) {
      counters_[other] = Counters{};
      slots_[other] = Slots{};
    }
    __syncwarp();
    if (lane_ == 0) {
      if (stopped != 0) c.sent = c.credit + kBeyondReach;  // so that no slot is free
      locate(peer);
      keep(peer, c, !sends);
    }
    __syncwarp();
  }

  /// Writes the steps back.
  __device__ __forceinline__ void suspend() {
    if (!tells_peers()) return;
    for (int peer = lane_; peer < ranks(); peer += 32) {
      if (peer == rank()) continue;
      give_back_rest(peer);
      const Counters c = counters_[peer];
      const uint32_t credit = peer == lane_ ? fresh_credit_ : load_live_word(credit_of(peer));
      if constexpr (Wire::kApart) {
        const Counters before = steps_before()[peer];
        if (c.sent != before.sent) write_sent(peer, c.sent, credit);
        if (c.received != before.received) write_received(peer, c.received, c.posted);
      } else {
        *reinterpret_cast<uint4*>(state_in(peer)) = make_uint4(c.sent, c.received, c.posted, credit);
      }
    }
  }
  __device__ __forceinline__ void suspend_lane(int peer, bool sends) {
    if (!tells_peers() || lane_ != 0) return;
    if (sends) {
      write_sent(peer, counters_[peer].sent, fresh_credit_);
    } else {
      give_back_rest(peer);
      write_received(peer, counters_[peer].received, counters_[peer].posted);
    }
  }

 protected:
  /// Of all warps of the channel.
  __device__ __forceinline__ static void barrier() {
    if constexpr (joins_parts<Wire>) {
      sync_some(0, kSmallThreads);
    } else if constexpr (shares_cta<Wire>) {
      sync_some(threadIdx.y, blockDim.x);
    } else {
      __syncthreads();
    }
  }
  /// Of the channel's warps; where parts are joined others follow.
  __device__ __forceinline__ static int threads() {
    return joins_parts<Wire> ? kSmallThreads : static_cast<int>(blockDim.x);
  }
  /// Makes a call the one that is under way.
  __device__ __forceinline__ void begin_call(uint32_t mark) {
    if constexpr (Wire::kMarkedBytes > 0) mark_ = mark & ~0U << (32 - 8 * Wire::kMarkedBytes);
  }
  /// The one warp that writes counters.
  __device__ __forceinline__ bool tells_peers() const { return warp_ == (Wire::kCounted ? workers_ : 0); }
  __device__ __forceinline__ ConnectionState* state_in(int peer) const {
    return queue_.layout.state(queue_.counters, channel_in_, peer);
  }
  __device__ __forceinline__ ConnectionState* state_out(int peer) const {
    return queue_.layout.state(queue_.counters, channel_out_, peer);
  }
  __device__ __forceinline__ const uint32_t* credit_of(int peer) const {
    return queue_.layout.credit(own_region(), channel_out_, peer);
  }
  /// So many consumed slots are given back at once.
  __device__ __forceinline__ uint32_t slots_to_collect() const { return (queue_.layout.slots + 1) / 2; }
  __device__ __forceinline__ char* own_region() const { return queue_.region[queue_.rank]; }
  /// Tells a peer how many of its steps have been consumed.
  __device__ __forceinline__ void store_credit(int peer, uint32_t received) const {
    store_live_word(queue_.layout.credit(queue_.region[peer], channel_in_, rank()), received);
  }
  /// Whether a transfer is for this CTA.
  __device__ __forceinline__ bool is_own(const algorithm::Flow& flow, int from, int to) const {
    if constexpr (!Wire::kApart) {
      return true;
    } else {
      return algorithm::part_of(Wire::kDivision, flow, from, to, rank(), ranks()) == part_;
    }
  }

  const QueueView& queue_;
  int channel_in_;
  int channel_out_;
  int part_;  ///< of the program, if a CTA carries out only one
  int lane_;
  int warp_;
  int workers_;
  Endpoint* sources_;
  Endpoint* sinks_;
  Counters* counters_;
  Slots* slots_;
  uint32_t* progress_;  ///< transfers that each worker is done with, kBeyondReach less if aborted; by atomic operations
  SeenOfPeer* seen_;
  uint32_t transfers_ = 0;
  uint32_t mark_ = 0;     ///< of the call that is under way, as in Work, as far as it goes into flags
  bool stopped_ = false;  ///< an earlier kernel has aborted

 private:
  __device__ __forceinline__ uint4* memory_of_channel() const {
    if constexpr (!shares_cta<Wire>) return shared_memory;
    const int warps = static_cast<int>(blockDim.x / 32);
    return shared_memory + threadIdx.y * (shared_bytes(queue_.layout.ranks, warps) / sizeof(uint4));
  }
  __device__ __forceinline__ void locate(int peer) {
    slots_[peer] = Slots{queue_.layout.slot(queue_.region[peer], peer, rank(), channel_out_, 0),
                         queue_.layout.slot(own_region(), rank(), peer, channel_in_, 0)};
  }
  __device__ __forceinline__ Counters read(int peer) const {
    const uint4 in = *reinterpret_cast<const uint4*>(state_in(peer));
    if constexpr (!Wire::kApart) return Counters{in.x, in.y, in.z, in.w};
    const uint4 out = *reinterpret_cast<const uint4*>(state_out(peer));
    return Counters{out.x, in.y, in.z, out.w};
  }
  __device__ __forceinline__ void write_sent(int peer, uint32_t sent, uint32_t credit) const {
    state_out(peer)->sent = sent;
    state_out(peer)->credit = credit;
  }
  __device__ __forceinline__ void write_received(int peer, uint32_t received, uint32_t posted) const {
    state_in(peer)->received = received;
    state_in(peer)->posted = posted;
  }
  /// As the clerk has read them, where it keeps sources otherwise, of which it has none.
  __device__ __forceinline__ Counters* steps_before() const { return reinterpret_cast<Counters*>(sources_); }
  /// Asks for the peer's credit as the next operation is to find it: nobody waits for it here.
  __device__ __forceinline__ void refresh_credit(int peer) {
    if (tells_peers()) fresh_credit_ = load_live_word(credit_of(peer));
  }
  __device__ __forceinline__ void keep(int peer, Counters c, bool receives) {
    // With Simple nothing is left to be given back, which is as well: other parts of the program may be at it.
    if (!Wire::kCounted && receives && c.posted != c.received) {
      if (tells_peers()) store_credit(peer, c.received);
      c.posted = c.received;
    }
    counters_[peer] = c;
    if (Wire::kApart && tells_peers()) steps_before()[peer] = c;
  }
  __device__ __forceinline__ void give_back_rest(int peer) {
    Counters& c = counters_[peer];
    // Where parts are joined the clerk tells of each slot, and what it has read here may be what a mover has written.
    if (!Wire::kCounted || joins_parts<Wire> || c.posted == c.received) return;
    store_credit(peer, c.received);
    c.posted = c.received;
  }

  uint32_t fresh_credit_ = 0;  ///< of the peer whose number is the lane's
};

/// The waiting that workers do.
template <class WireOf>
class WorkerConnections : public Connections<WireOf> {
 public:
  using Wire = WireOf;
  static constexpr bool kOneChunk = false;
  static constexpr bool kWholeChunks = Wire::kCounted;
  static constexpr bool kTwoSteps = false;  ///< is brief, with a second step (brief_connections.h)

  __device__ __forceinline__ explicit WorkerConnections(const Connections<Wire>& connections)
      : Connections<Wire>(connections), aborted_(this->stopped_) {}

  /// At the end.
  __device__ __forceinline__ void close() const {
    if (aborted_) stop_later_kernels(this->queue_);
  }

 protected:
  /// Waits for free slots and takes them; how many there are.
  __device__ __forceinline__ int await_sinks(Peers kind, int to) {
    if (kind == Peers::kNone) return 0;
    int count = 1;
    if (kind == Peers::kOne) {
      take_sink(this->lane_ == 0 ? to : -1, 0);
    } else {
      // In rotation from the own rank, so that no two ranks start with the same peer.
      const int n = this->ranks();
      const int hole = kind == Peers::kAllBut ? algorithm::rank_before(to, this->rank() + 1, n) : n;
      for (int first = 0; first < n - 1; first += 32) {
        const int i = first + this->lane_;
        const bool takes = i < n - 1 && i != hole;
        take_sink(takes ? algorithm::rank_after(this->rank(), i + 1, n) : -1, i > hole ? i - 1 : i);
      }
      count = n - 1 - (hole < n - 1 ? 1 : 0);
    }
    agree_on_abort();
    return count;
  }

  /// Takes the oldest slot of one peer, or of each by rank; waits until it is filled where the data itself cannot tell.
  __device__ __forceinline__ void await_sources(Peers kind, int from) {
    if (kind == Peers::kOne) {
      take_source(this->lane_ == 0 ? from : -1, 0);
    } else {
      for (int first = 0; first < this->ranks(); first += 32) {
        const int peer = first + this->lane_;
        take_source(peer < this->ranks() && peer != this->rank() ? peer : -1, peer);
      }
    }
    agree_on_abort();
  }

  /// This warp is done with its part of a transfer.
  __device__ __forceinline__ void arrive() {
    agree_on_abort();
    if constexpr (Wire::kCounted) {
      ++this->transfers_;
      if (this->lane_ == 0) {
        __threadfence_block();
        atomicExch(this->progress_ + this->warp_, this->transfers_ - (aborted_ ? kBeyondReach : 0));
      }
    } else if (__any_sync(0xffffffffU, due_)) {
      // The same for all warps, as all have taken the same steps.
      give_back();
    }
  }

  __device__ __forceinline__ Waiter waiter() const { return {this->queue_, work_}; }

  __device__ __forceinline__ Endpoint sink(int index) const { return this->sinks_[index]; }
  __device__ __forceinline__ Endpoint source(int index) const { return this->sources_[index]; }
  /// Whose slot a source is.
  __device__ __forceinline__ int sender(int index) const {
    const QueueLayout& layout = this->queue_.layout;
    const char* const slot = this->sources_[index].slot;
    int peer = 0;
    while (peer == this->rank() ||
           static_cast<size_t>(slot - this->slots_[peer].incoming) >= size_t{layout.slots} * layout.slot_bytes) {
      ++peer;
    }
    return peer;
  }

  /// Counts the steps of a transfer that is left out.
  __device__ __forceinline__ void skip(Peers from_kind, int from, Peers to_kind, int to) const {
    for (int peer = this->lane_; peer < this->ranks(); peer += 32) {
      if (peer == this->rank()) continue;
      if (algorithm::is_among(from_kind, from, peer)) ++this->counters_[peer].received;
      if (algorithm::is_among(to_kind, to, peer)) ++this->counters_[peer].sent;
    }
    __syncwarp();
  }

  bool aborted_;
  int work_ = 0;  ///< the collective of the launch that is under way

 private:
  /// Tells peers of slots that all workers have consumed.
  __device__ __forceinline__ void give_back() {
    due_ = false;
    this->barrier();
    for (int peer = this->lane_; peer < this->ranks(); peer += 32) {
      if (peer == this->rank()) continue;
      const Counters c = this->counters_[peer];
      if (c.received == c.posted) continue;
      if (this->tells_peers()) {
        this->store_credit(peer, c.received);
      }
      this->counters_[peer].posted = c.received;
    }
    __syncwarp();
  }

  __device__ __forceinline__ void agree_on_abort() {
    __syncwarp();
    aborted_ = __any_sync(0xffffffffU, aborted_);
  }

  /// The lane's next free slot of `peer`; -1: it takes none. All lanes of the warp.
  __device__ __forceinline__ void take_sink(int peer, int place) {
    const QueueLayout& layout = this->queue_.layout;
    Counters c{};
    if (peer >= 0) c = this->counters_[peer];
    const bool full = peer >= 0 && c.sent - c.credit >= layout.slots;
    if (__any_sync(0xffffffffU, full)) {
      const int whom = full ? peer : -1;
      const int any = full ? peer : this->rank();
      Awaited credit{
          this->credit_of(any), &this->seen_[any].credit, c.credit, c.sent - layout.slots + 1, whom, For::kRoom};
      if (!await_words_apart<NotedAs<Wire>>(waiter(), credit)) aborted_ = true;
      c.credit = credit.value;
    }
    if (peer < 0) return;
    char* slot = this->slots_[peer].outgoing + (c.sent & (layout.slots - 1)) * layout.slot_bytes;
    ++c.sent;
    this->sinks_[place] = Endpoint{slot, c.sent, Wire::second_flag(c.sent, this->mark_)};
    this->counters_[peer] = c;
  }

  __device__ __forceinline__ void take_source(int peer, int place) {
    const QueueLayout& layout = this->queue_.layout;
    Counters c{};
    if (peer >= 0) c = this->counters_[peer];
    const uint32_t step = c.received;
    if constexpr (Wire::kCounted) {
      const int any = peer >= 0 ? peer : this->rank();
      const uint32_t* word = layout.filled(this->own_region(), this->channel_in_, any);
      Awaited filled{word, &this->seen_[any].filled, step, step + 1, peer, For::kData};
      // Here all warps look for themselves first: they are few, and the word is in their GPU's memory.
      if (joins_parts<Wire> && peer >= 0) filled.value = load_acquire(word);
      if (!await_words<NotedAs<Wire>>(waiter(), filled)) aborted_ = true;
    }
    if (peer < 0) return;
    char* slot = this->slots_[peer].incoming + (step & (layout.slots - 1)) * layout.slot_bytes;
    this->sources_[place] = Endpoint{slot, step + 1, Wire::second_flag(step + 1, this->mark_)};
    ++c.received;
    this->counters_[peer] = c;
    if (!Wire::kCounted && c.received - c.posted >= this->slots_to_collect()) due_ = true;
  }

  bool due_ = false;
};

}  // namespace nitinol::cuda
