// How kernels wait for peers: patience that ends with the communicator or when time is up, and words that peers write.
#pragma once

#include <type_traits>

#include "executor/cuda/parameters.h"
#include "executor/cuda/standing.h"
#include "executor/cuda/wires.h"

namespace nitinol::cuda {

/// The wire of which a wait is noted: collectives share their notes, and the code for them.
struct OfCollectives {
  static constexpr bool kMessages = false;
};
template <class Wire>
using NotedAs = std::conditional_t<Wire::kMessages, Wire, OfCollectives>;

/// What a wait has to know of the launch that it is in.
struct Waiter {
  const QueueView& queue;
  int work;  ///< which collective; 0: messages

  __device__ __forceinline__ CallName call() const { return name_of_launch(queue) + static_cast<uint32_t>(work); }
};

/// The same, but the compiler does not know. So what is rarely done with it is not prepared where it would take
/// registers of what is done all the time.
template <class T>
__device__ __forceinline__ const T& unforeseen(const T& what) {
  const T* where = &what;
  asm volatile("" : "+l"(where));
  return *where;
}

/// What is waited for: what a peer sends, or that it takes what it was sent.
enum class For { kData, kRoom };

/// Counts turns of a waiting loop and looks at the host's signals now and then: they are a microsecond away. There it
/// also notes for whom it waits: hosts do not see what graphs launch. In messages, where all lanes of a warp wait
/// together or the first one alone, that one does.
///
/// When the time is up, whoever is waited for is noted as late, and the host then aborts the communicator. Until it has
/// the wait goes on: what ends before its failure is known must be right. A wait that the host leaves alone ends too, a
/// while later.
template <class Noted>
class Patience {
 public:
  __device__ __forceinline__ explicit Patience(const Waiter& waiter) : waiter_(waiter) {}

  /// Once a turn: whether to give up. Now and then, if not, `note_all(late)` is to call note() for each peer
  /// that is waited for.
  template <class NoteAll>
  __device__ __forceinline__ bool exhausted(NoteAll&& note_all) {
    if (__builtin_expect(++turns_ % kTurnsPerLook != 0, 1)) return false;
    const Waiter waiter{unforeseen(waiter_.queue), waiter_.work};
    const int32_t over = look(*waiter.queue.signals);
    if (over == kForEver) return true;
    waiter.queue.signals->call = waiter.call();
    note_all(over > 0);
    return over > kPatienceWithHost;
  }
  __device__ __forceinline__ void note(int peer, For what, bool late) const {
    const QueueView& queue = unforeseen(waiter_.queue);
    volatile Signals& signals = *queue.signals;
    const uint32_t waited = now() - first_look_ + 1;
    if constexpr (Noted::kMessages) {
      if (threadIdx.x % 32 == 0) note_message(queue, peer, what, waited);
    } else {
      note_in(signals.waits[Signals::kOfCollectives], peer, what, waited);
    }
    if (late) signals.late[peer] = 1;
  }

 private:
  /// A function of its own: it is rare, and its instructions would stand among those that every message needs.
  __device__ __noinline__ static void note_message(const QueueView& queue, int peer, For what, uint32_t waited) {
    const Standing<Noted> standing(queue);
    standing.wait(what == For::kData);
    const uint32_t protocols = waited < kBeforeMarksCount ? 0 : standing.protocols();
    const uint32_t time = waited & ((1U << Signals::kTimeBits) - 1);
    volatile Signals& signals = *queue.signals;
    note_in(signals.waits[Signals::of_messages(Noted::kProtocol)], peer, what, protocols << Signals::kTimeBits | time);
  }
  __device__ __forceinline__ static void note_in(volatile Signals::Waits& waits, int peer, For what, uint32_t note) {
    volatile uint32_t* const of_kind = what == For::kRoom ? waits.for_room : waits.for_data;
    of_kind[peer] = note;
  }

  /// For how long the time has been up, in units of Signals::patience; not positive: it is not. For ever after an
  /// abort.
  __device__ __forceinline__ int32_t look(const volatile Signals& signals) {
    if (signals.aborted != 0) return kForEver;
    const uint32_t limit = signals.patience;
    const uint32_t time = now();
    if (turns_ == kTurnsPerLook) first_look_ = time;
    if (turns_ == kTurnsPerLook || limit == 0) began_ = time;
    if (turns_ > kTurnsPerLook) turns_ = 2 * kTurnsPerLook;  // so that it never comes round to the first look again
    return limit == 0 ? 0 : static_cast<int32_t>(time - began_ - limit);
  }
  __device__ __forceinline__ static uint32_t now() { return static_cast<uint32_t>(nanoseconds() >> 20); }

  static constexpr uint32_t kTurnsPerLook = 0x1000;
  static constexpr int32_t kPatienceWithHost = 10'000;
  static constexpr uint32_t kBeforeMarksCount = 100;  ///< milliseconds: to look at them all takes some microseconds
  static constexpr int32_t kForEver = 0x7fffffff;

  const Waiter waiter_;
  uint32_t turns_ = 0;
  // Set, though nobody reads them before the first look: else ptxas 13.0 keeps both in one register.
  uint32_t first_look_ = 0;
  uint32_t began_ = 0;  ///< since when it counts
};

/// Tells the host if the awaited step is there, but of another call: perhaps of one in which the peer waits for nobody.
template <class Wire>
__device__ __forceinline__ void tell_what_arrived(const QueueView& queue, int peer, const Endpoint& source,
                                                  const Flags& flags) {
  const bool sees = Wire::has_flags(static_cast<int>(threadIdx.x % 32));
  if (!sees || flags.first != source.flag || flags.second == source.second) return;
  const uint32_t awaited = Wire::mark_in(source.flag, source.second);
  store_live_pair(const_cast<Arrived*>(&unforeseen(queue).signals->arrived[peer]), awaited | Wire::kMarkedBytes,
                  Wire::mark_in(flags.first, flags.second));
}
/// The same, of the flags that were seen in one of several slots. By LL that may be eight: to fetch one again takes
/// fewer registers.
template <class Wire, int kSlots>
__device__ __forceinline__ void tell_what_arrived(const QueueView& queue, int peer, const Endpoint& source,
                                                  const Flags (&seen)[kSlots], int slot, uint32_t unit) {
  if constexpr (Wire::kPerWarp) {
    static_assert(kSlots <= 2);
    tell_what_arrived<Wire>(queue, peer, source, seen[slot == 0 ? 0 : kSlots - 1]);
  } else {
    const int lane = static_cast<int>(threadIdx.x % 32);
    tell_what_arrived<Wire>(queue, peer, source, Wire::flags_in(Wire::fetch(source.slot, unit, lane)));
  }
}

/// Marks for all kernels of this rank that come later that one has aborted: they send nothing, as it might be made of
/// what that one has not received. All lanes of a warp.
__device__ __noinline__ inline void stop_later_kernels(const QueueView& queue) {
  volatile Signals& signals = *queue.signals;
#pragma unroll 1
  for (int i = 0; i < kQueues; ++i) {
    char* const counters = signals.tables[i].counters;
    const int channels = counters == nullptr ? 0 : signals.tables[i].channels;
#pragma unroll 1
    for (int channel = static_cast<int>(threadIdx.x % 32); channel < channels; channel += 32) {
      store_live_word(&queue.layout.own_state(counters, channel, queue.rank)->stopped, 1);
    }
  }
}

/// A word that a peer writes, as the CTA has last seen it. It may lie in host memory, where each look takes a
/// microsecond and looks at the same line are served one after the other: so one thread looks for all warps. Reached
/// by atomic operations only.
struct Seen {
  uint32_t value;
  uint32_t state;                          ///< bits: kLooking, kKnown
  static constexpr uint32_t kLooking = 1;  ///< a thread is looking right now
  static constexpr uint32_t kKnown = 2;    ///< there is a value
};
struct __align__(16) SeenOfPeer {
  Seen filled, credit;
};

/// The word as far as it is known: after a look at it, unless `wanted` has been seen before or another thread is
/// looking. `known` is what the caller knows already.
__device__ __forceinline__ uint32_t look(const uint32_t* word, Seen* seen, uint32_t known, uint32_t wanted) {
  const uint32_t state = atomicOr(&seen->state, Seen::kLooking);
  uint32_t value = (state & Seen::kKnown) != 0 ? atomicOr(&seen->value, 0U) : known;
  if ((state & Seen::kLooking) == 0) {
    const bool enough = static_cast<int32_t>(value - wanted) >= 0;
    if (!enough) {
      value = load_acquire(word);
      __threadfence_block();
      atomicExch(&seen->value, value);
    }
    __threadfence_block();
    atomicExch(&seen->state, enough ? state : Seen::kKnown);
  }
  __threadfence_block();
  return value;
}

/// A word of a peer that is to reach a value.
struct Awaited {
  const uint32_t* word;
  Seen* seen;
  uint32_t value;  ///< as far as it is known
  uint32_t wanted;
  int peer;  ///< -1: this lane waits for nothing
  For what;

  __device__ __forceinline__ bool waits() const { return peer >= 0 && static_cast<int32_t>(value - wanted) < 0; }
};

/// Waits until the words of all lanes have their values: the lanes leave together, as LL128 needs all of a warp to
/// store a line. False: aborted.
template <class Noted>
__device__ __forceinline__ bool await_words(const Waiter& waiter, Awaited& mine) {
  Patience<Noted> patience(waiter);
  bool aborted = false;
  while (__any_sync(0xffffffffU, mine.waits())) {
    if (mine.waits()) {
      mine.value = look(mine.word, mine.seen, mine.value, mine.wanted);
      aborted = patience.exhausted([&](bool late) { patience.note(mine.peer, mine.what, late); });
    }
    if (__any_sync(0xffffffffU, aborted)) return false;
  }
  return true;
}

/// The same as a function of its own, for what happens rarely.
template <class Noted>
__device__ __noinline__ inline bool await_words_apart(Waiter waiter, Awaited& mine) {
  return await_words<Noted>(waiter, mine);
}

}  // namespace nitinol::cuda
