// The kernels: for each protocol and type those that sum and those that combine otherwise, some of one algorithm and
// one of all others; and for each protocol such that only move bytes, and one for messages.
#pragma once

#include <algorithm>
#include <array>
#include <type_traits>

#include "algorithm/table.h"
#include "executor/cuda/combiner.h"
#include "executor/cuda/parameters.h"

#if defined(__CUDACC__)
#include "executor/cuda/brief_worker.h"
#include "executor/cuda/clerk.h"
#include "executor/cuda/mover.h"
#include "executor/cuda/primitives.h"
#include "executor/cuda/run_counter.h"
#endif

namespace nitinol::cuda {

/// Warps of the largest CTA that work; with Simple the clerk comes on top.
inline constexpr int kMaxWorkers = 16;
constexpr int max_threads(Protocol protocol) { return (kMaxWorkers + (protocol == Protocol::kSimple ? 1 : 0)) * 32; }

/// Where CTAs are few one of them may be as good as two small ones: each row of its threads (threadIdx.y) carries a
/// channel of its own.
inline constexpr int kMostRows = 2;

/// How many steps each connection carries of an operation that is brief (brief_connections.h); 0: it never is. Two
/// shots are where much is reduced: kernels take room.
constexpr uint32_t steps_if_brief(Collective what, Algorithm algorithm, Protocol protocol, DataType type,
                                  Combiner with) {
  if (protocol == Protocol::kSimple) return 0;
  if (algorithm == Algorithm::kOneShot) return rooted(what) ? 0 : 1;
  return with == Combiner::kSum && algorithm::suits_two_brief_shots(what, algorithm, protocol, type) ? 2 : 0;
}

/// Of the kernels for words. Where each rank has a block of its own those follow each other, however long they are;
/// else a channel's part begins aligned.
constexpr Bounds bounds_of_words(Collective what) {
  return has_block_per_rank(what) ? Bounds::kWords : Bounds::kWordEnds;
}
/// Of those for what begins or ends elsewhere.
constexpr Bounds bounds_of_grains(Collective what, DataType type) {
  const size_t grain = algorithm::grain_of_blocks(what, type);
  return grain == 1 ? Bounds::kBytes : grain == 2 ? Bounds::kHalves : Bounds::kWords;
}

/// Movers of a CTA in which the parts of a channel are joined: of those that send, and those that take if any do.
constexpr int movers_of(Collective what, int ranks) {
  return what == Collective::kReduceScatter ? ranks - 1 : 2 * (ranks - 1);
}
/// Bytes of their pieces. All-reduce of 256 MB between 4 took 1274 us with 24 CTAs, with pieces of 8 KB 1284; for
/// others only those were measured.
constexpr uint32_t piece_of(Collective what) { return what == Collective::kAllReduce ? 4096 : 8192; }
inline constexpr int kMostMovers = 6;  ///< threads for more of them would have fewer registers
constexpr size_t joined_shared_bytes(Collective what, int ranks) {
  return joined_shared_bytes(ranks, movers_of(what, ranks), piece_of(what));
}
/// Of the collective that takes most.
constexpr size_t most_joined_bytes(int ranks) {
  size_t most = 0;
  for (size_t what = 0; what < kCollectives; ++what) {
    most = std::max(most, joined_shared_bytes(static_cast<Collective>(what), ranks));
  }
  return most;
}

/// Threads of the largest CTA that carries messages; two of these fit on a multiprocessor.
inline constexpr int kMaxMessageThreads = 8 * 32;
static_assert(kMaxMessageThreads / 32 <= std::extent_v<decltype(StandingTable::mark), 1>);

/// How many channels carry a message. Sender and receiver agree: it depends on the size alone.
NITINOL_HOST_DEVICE int message_channels(size_t bytes, const MessageGrain& grain, int channels) {
  const size_t wanted = bytes / grain.channel_bytes;
  return wanted < 1 ? 1 : wanted < static_cast<size_t>(channels) ? static_cast<int>(wanted) : channels;
}

/// The bytes of a chunk of a channel's part of a message: a slot, or fewer where the receiver begins only with whole
/// chunks, so that it begins soon.
NITINOL_HOST_DEVICE size_t message_chunk(Protocol protocol, size_t part, const MessageGrain& grain,
                                         const QueueLayout& layout) {
  const size_t slot = payload_of(message_queue_of(protocol), layout.slot_bytes) / 64 * 64;
  if (protocol != Protocol::kSimple) return slot;
  const size_t quarter = (part / 4 + 1023) / 1024 * 1024;
  const size_t wanted = quarter < grain.least_chunk_bytes ? grain.least_chunk_bytes : quarter;
  return wanted < slot ? wanted : slot;
}

#if defined(__CUDACC__)

template <class P>
__device__ __forceinline__ void run_alone(P& p, const Work& work, Share share) {
  while (share.begin < share.end) {
    const size_t count = min(share.end - share.begin, static_cast<size_t>(share.chunk));
    const Span from = algorithm::input(share.begin, count);
    const Span to = algorithm::output(share.begin, count);
    if (reduces(work.what)) {
      p.reduce_alone(from, to);
    } else {
      p.copy(from, to);
    }
    share.begin += count;
  }
}

/// The algorithm of the work, which is one of Entries. With a single entry there is nothing to choose.
template <class Entry, class... More, class P>
__device__ __forceinline__ void run_one_of(algorithm::List<Entry, More...>, P& p, const Work& work,
                                           const Share& share) {
  if constexpr (sizeof...(More) == 0) {
    Entry::run(p, share);
  } else {
    if (work.what == Entry::row.what && work.algorithm == Entry::row.algorithm) {
      Entry::run(p, share);
    } else {
      run_one_of(algorithm::List<More...>{}, p, work, share);
    }
  }
}

/// The channel of a thread: each part of a program takes a run of CTAs.
template <class Wire>
__device__ __forceinline__ int channel_of(const CollectiveParameters& parameters) {
  if constexpr (shares_cta<Wire>) return static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y);
  return Wire::kApart ? static_cast<int>(blockIdx.x) % parameters.channels : static_cast<int>(blockIdx.x);
}

template <class Wire, class Entries, bool kAlone, class P>
__device__ __forceinline__ void run_all(P& p, const CollectiveParameters& parameters) {
  // What goes by LL is too short for links to be busy.
  const int channel = channel_of<Wire>(parameters);
  const int turn = Wire::kProtocol == Protocol::kLL || kAlone ? 0 : algorithm::turn_of(channel, p.ranks());
  for (int i = 0; i < parameters.works; ++i) {
    const Work& work = parameters.work[i];
    const size_t begin = min(work.per_channel * channel, work.count);
    const Share share{begin, min(begin + work.per_channel, work.count), work.chunk, work.count, turn};
    if (share.begin == share.end) continue;
    p.begin(work, i);
    if constexpr (kAlone) {
      run_alone(p, work, share);
    } else {
      run_one_of(Entries{}, p, work, share);
    }
  }
}

/// Asks for the first input that this thread is likely to need, while the steps are still on their way.
template <class Wire, DataType type>
__device__ __forceinline__ void read_ahead(const Work& work) {
  const size_t size = Elements<type>::kSize;
  const size_t begin = work.per_channel * blockIdx.x * size;
  const size_t at = begin + threadIdx.x * (Wire::kPerWarp ? Wire::kShape.bytes / 32 : Wire::kShape.bytes);
  if (work.input != nullptr && at < min(begin + work.per_channel * size, work.count * size)) {
    asm volatile("prefetch.global.L1 [%0];" ::"l"(work.input + at));
  }
}

template <class Wire>
__device__ __forceinline__ Connections<Wire> connect(const CollectiveParameters& parameters) {
  const int channel = channel_of<Wire>(parameters);
  if constexpr (!Wire::kApart) {
    return Connections<Wire>(parameters.queue, channel, channel);
  } else {
    // Each stream has a run of channels of its own.
    constexpr bool reduction = Wire::kReducesApart;
    const int part = static_cast<int>(blockIdx.x) / parameters.channels;
    return Connections<Wire>(parameters.queue, channel + algorithm::stream_in(reduction, part) * parameters.channels,
                             channel + algorithm::stream_out(reduction, part) * parameters.channels, part);
  }
}

/// Behind the memory of the workers.
__device__ __forceinline__ MemoryOfMover memory_of_mover(const CollectiveParameters& parameters, int index) {
  char* const shared = reinterpret_cast<char*>(shared_memory);
  const int ranks = parameters.queue.layout.ranks;
  const uint32_t stages = kPieceStages * stage_bytes(parameters.piece);
  return {reinterpret_cast<MoverState*>(shared + shared_bytes(ranks, kFewWorkers + 1)) + index,
          shared + stages_at(ranks, parameters.movers) + index * stages, parameters.piece};
}

__device__ __forceinline__ void note_runs(RunCounter& runs, const CollectiveParameters& parameters) {
  if (!runs.notes()) return;
  for (int i = 0; i < parameters.works; ++i) runs.note(parameters.work[i].mark);
  runs.close();
}

/// Each line of the parameters costs a trip to memory at its first use: better all at once.
__device__ __forceinline__ void touch(const CollectiveParameters& parameters) {
  asm volatile("" ::"r"(parameters.queue.rank), "l"(parameters.queue.region[0]), "l"(parameters.queue.region[4]),
               "l"(parameters.queue.region[8]), "r"(parameters.works), "l"(parameters.work[0].input),
               "l"(parameters.work[0].immediate));
}

/// Runs works whose algorithms are among Entries; kAlone: a communicator of one rank, where all algorithms are copies.
template <class Wire, DataType type, Combiner with, class Entries, bool kInline, Bounds kBounds, bool kAlone = false>
__global__ void __launch_bounds__(shares_cta<Wire> ? kMostRows* kSmallThreads
                                  : Wire::kSmall   ? kSmallThreads
                                                   : max_threads(Wire::kProtocol),
                                  Wire::kSmall && !shares_cta<Wire> ? 2 : 1)
    run_collectives(const __grid_constant__ CollectiveParameters parameters) {
  touch(parameters);
  auto connections = connect<Wire>(parameters);
  await_earlier_kernels();
  if (parameters.next_may_begin) let_next_kernel_begin();
  if constexpr (!Wire::kCounted) read_ahead<Wire, type>(parameters.work[0]);
  const bool in_first_row = blockIdx.x == 0 && (!shares_cta<Wire> || threadIdx.y == 0);
  const bool is_first = Wire::kCounted && !kAlone && in_first_row && threadIdx.x == blockDim.x - 1;
  RunCounter runs(parameters.queue, parameters.queue.rank, false, is_first);
  connections.resume();
  if (connections.is_clerk()) {
    note_runs(runs, parameters);
    Clerk<Wire> clerk(connections);
    run_all<Wire, Entries, kAlone>(clerk, parameters);
    clerk.close();
  } else {
    Worker<WorkerConnections<Wire>, type, with, kInline, kBounds> worker(connections);
    run_all<Wire, Entries, kAlone>(worker, parameters);
    worker.close();
  }
  connections.suspend();
}

/// The parts of a channel in one CTA: workers combine, or copy within the GPU, and the warps behind them move.
template <class Wire, DataType type, Combiner with, class Entry, Bounds kBounds>
__global__ void __launch_bounds__(kSmallThreads + kMostMovers * 32, 1)
    run_joined(const __grid_constant__ CollectiveParameters parameters) {
  static_assert(joins_parts<Wire>);
  touch(parameters);
  using Own = algorithm::List<Entry>;
  if (threadIdx.x < kSmallThreads) {
    auto connections = connect<Wire>(parameters);
    await_earlier_kernels();
    if (parameters.next_may_begin) let_next_kernel_begin();
    const bool is_first = blockIdx.x == 0 && threadIdx.x == kSmallThreads - 1;
    RunCounter runs(parameters.queue, parameters.queue.rank, false, is_first);
    connections.resume();
    if (connections.is_clerk()) {
      note_runs(runs, parameters);
      Clerk<Wire> clerk(connections);
      run_all<Wire, Own, false>(clerk, parameters);
      clerk.close();
    } else {
      Worker<WorkerConnections<Wire>, type, with, true, kBounds> worker(connections);
      run_all<Wire, Own, false>(worker, parameters);
      worker.close();
    }
    connections.suspend();
  } else {
    const int index = static_cast<int>((threadIdx.x - kSmallThreads) / 32);
    const int part = index + 1;
    const bool sends = part < parameters.queue.layout.ranks;
    constexpr bool reduction = Wire::kReducesApart;
    const int stream = sends ? algorithm::stream_out(reduction, part) : algorithm::stream_in(reduction, part);
    Mover<Wire, type> mover(parameters.queue, channel_of<Wire>(parameters) + stream * parameters.channels, part,
                            memory_of_mover(parameters, index));
    await_earlier_kernels();
    if (parameters.next_may_begin) let_next_kernel_begin();
    mover.resume();
    run_all<Wire, Own, false>(mover, parameters);
    mover.close();
  }
}

/// What the kernels for brief works have in common. Nearly half of the time of a kernel that exchanges a kilobyte is
/// spent on fetching its instructions. So one that begins while the kernel before it still runs goes through all of
/// them meanwhile, without touching memory.
template <class Wire, class Entries, DataType type, class P>
__device__ __forceinline__ void run_briefly(P& p, const CollectiveParameters& parameters) {
  touch(parameters);
  uint32_t live = P::kRehearses && parameters.rehearses ? 0 : 1;  // the compiler is to make one code of both
#pragma unroll 1
  while (true) {
    if constexpr (P::kRehearses) p.be(live != 0);
    if (live != 0) {
      await_earlier_kernels();
      if (parameters.next_may_begin) let_next_kernel_begin();
      read_ahead<Wire, type>(parameters.work[0]);
    }
    p.resume(live != 0);
    // Brief operations are short enough for 32 bits.
    const auto channel = static_cast<uint32_t>(blockIdx.x);
    const int works = live != 0 ? parameters.works : 1;
#pragma unroll 1
    for (int i = 0; i < works; ++i) {
      const Work& work = parameters.work[i];
      const auto count = static_cast<uint32_t>(work.count);
      const auto per_channel = static_cast<uint32_t>(work.per_channel);
      const uint32_t begin = per_channel * channel;
      if (begin >= count) continue;
      p.begin(work, i);
      run_one_of(Entries{}, p, work, Share{begin, min(begin + per_channel, count), per_channel, count, 0});
    }
    p.suspend(live != 0);
    if (live != 0) return;
    asm volatile("mov.u32 %0, 1;" : "=r"(live));
  }
}

/// Brief works within kBounds, without scalars and averages.
template <class Wire, DataType type, Combiner with, class Entry, Bounds kBounds>
__global__ void __launch_bounds__(max_threads(Wire::kProtocol), 1)
    run_plain(const __grid_constant__ CollectiveParameters parameters) {
  constexpr algorithm::Row row = Entry::row;
  constexpr uint32_t steps = steps_if_brief(row.what, row.algorithm, Wire::kProtocol, type, with);
  BriefWorker<Wire, type, with, steps, kBounds> worker(parameters.queue, static_cast<int>(blockIdx.x));
  run_briefly<Wire, algorithm::List<Entry>, type>(worker, parameters);
}

/// All brief works whose algorithms are among Entries, and have so many steps.
template <class Wire, DataType type, Combiner with, class Entries, uint32_t steps>
__global__ void __launch_bounds__(max_threads(Wire::kProtocol), 1)
    run_any(const __grid_constant__ CollectiveParameters parameters) {
  using Link = BriefConnections<Wire, steps>;
  Worker<Link, type, with, true, Bounds::kWordEnds> worker(Link(parameters.queue, static_cast<int>(blockIdx.x)));
  run_briefly<Wire, Entries, type>(worker, parameters);
}

/// The channel's part of a message, chunk by chunk.
template <class Wire, class P>
__device__ __forceinline__ void carry(P& p, const Lane& lane, const Message& message, const MessageGrain& grain,
                                      const QueueLayout& layout) {
  const size_t all = message.bytes();
  const int channels = message_channels(all, grain, layout.channels);
  const size_t part = (all / channels + 127) / 64 * 64;
  const size_t begin = min(part * lane.channel, all);
  const size_t end = lane.channel < channels ? min(begin + part, all) : begin;
  const size_t chunk = message_chunk(Wire::kProtocol, part, grain, layout);
  for (size_t at = begin; at < end; at += chunk) {
    const size_t bytes = min(chunk, end - at);
    if (lane.sends != 0) {
      p.send(lane.peer, algorithm::input(at, bytes));
    } else {
      p.recv(lane.peer, algorithm::output(at, bytes));
    }
  }
}

template <class Wire, class P, class Parameters>
__device__ __forceinline__ void carry_all(P& p, const Lane& lane, const Parameters& parameters) {
  for (int i = 0; i < lane.count; ++i) {
    const Message& message = parameters.message[lane.first + i];
    p.begin(message);
    carry<Wire>(p, lane, message, parameters.grain, parameters.queue.layout);
  }
}

template <class Parameters>
__device__ __forceinline__ void note_runs(RunCounter& runs, const Lane& lane, const Parameters& parameters) {
  if (!runs.notes()) return;
  for (int i = 0; i < lane.count; ++i) runs.note(parameters.message[lane.first + i].mark());
  runs.close();
}

/// A CTA for each lane. All CTAs of the launch are resident at once, so that none waits for one that cannot start.
template <class Wire, class Parameters, Bounds kBounds = Bounds::kPieces>
__global__ void __launch_bounds__(kMaxMessageThreads, 2) carry_messages(const __grid_constant__ Parameters parameters) {
  const Lane& lane = parameters.lane[blockIdx.x];
  Connections<Wire> connections(parameters.queue, lane.channel, lane.channel);
  await_earlier_kernels();
  if (parameters.next_may_begin) let_next_kernel_begin();
  const bool is_first = Wire::kCounted && lane.channel == 0 && threadIdx.x == blockDim.x - 1;
  RunCounter runs(parameters.queue, lane.peer, lane.sends != 0, is_first);
  const Standing<Wire> standing(parameters.queue);
  connections.resume_lane(lane.peer, lane.sends != 0, [&] {
    if (!connections.is_clerk()) standing.begin();
    if (threadIdx.x / 32 == blockDim.x / 32 - 1) standing.count();  // short messages do without the last warp
  });
  if (connections.is_clerk()) {
    note_runs(runs, lane, parameters);
    Clerk<Wire> clerk(connections);
    carry_all<Wire>(clerk, lane, parameters);
    clerk.close();
  } else {
    Worker<WorkerConnections<Wire>, DataType::kUint8, Combiner::kNone, true, kBounds> worker(connections);
    carry_all<Wire>(worker, lane, parameters);
    if (threadIdx.x % 32 == 0) standing.end();
    worker.close();
  }
  connections.suspend_lane(lane.peer, lane.sends != 0);
}

#endif

/// How a kernel exchanges data: wires, of the usual CTAs or others (wires.h).
enum class Way : int {
  kLL,
  kLL128,
  kSimple,
  kLL16,    ///< what goes in lines
  kSmall,   ///< Simple with small CTAs,
  kApart,   ///< and with such for each part of a rank's program,
  kJoined,  ///< or the parts of a channel in one
  kBriefLL,
  kBriefLL128
};
inline constexpr int kWays = 9;
constexpr Way way_of(Protocol protocol) { return static_cast<Way>(protocol); }
static_assert(way_of(Protocol::kSimple) == Way::kSimple);
/// Of what is brief.
constexpr Way brief_way_of(Protocol protocol) { return protocol == Protocol::kLL ? Way::kBriefLL : Way::kBriefLL128; }

/// Where what it is for begins and ends (Bounds in layout.h), among the kernels of a way that do the same.
enum class Use : int {
  kUsual,   ///< in whole pieces, or wherever it is as fast (usual_bounds)
  kWords,   ///< with words
  kGrains,  ///< elsewhere
  kAny      ///< anywhere, if it is brief; and averages and scalars
};
inline constexpr int kUses = 4;

/// The kernels for one type and combiner, as the launch functions of the CUDA runtime take them. Null: there is none.
struct KernelSet {
  const void* kernel[kCollectives][kAlgorithms][kWays][kUses] = {};
  const void* alone = nullptr;  ///< for a communicator of one rank, whatever it does

  const void* at(Collective what, Algorithm algorithm, Way way, Use use) const {
    return kernel[static_cast<size_t>(what)][static_cast<size_t>(algorithm)][static_cast<size_t>(way)]
                 [static_cast<size_t>(use)];
  }
};

/// Defined in the generated files, one for each type and combiner of the build.
template <DataType type, Combiner with>
const KernelSet& reduce_kernels();
const KernelSet& move_kernels();

/// The kernels of a reduction; null if the build leaves it out.
const KernelSet* find_reduce_kernels(DataType type, Combiner with);

/// By protocol, for launches of FewMessages, MoreMessages and ManyMessages.
using MessageKernels = std::array<std::array<const void*, kProtocols>, 3>;
MessageKernels message_kernels();
/// For messages that begin between vectors. Null: there are none.
MessageKernels message_kernels_between_vectors();

#if defined(__CUDACC__)

/// Whether the algorithm has kernels of the wire at all.
template <class Wire, DataType type, class Entry>
constexpr bool is_built() {
  if (Wire::kApart) return Entry::row.apart;
  if (std::is_same_v<Wire, LL16>) return algorithm::suits_lines(Entry::row.what, Entry::row.algorithm, type);
  return !Wire::kSmall || algorithm::suits_small_ctas(Entry::row.what, Entry::row.algorithm, type, 2);
}

/// Whether the algorithm has a kernel of its own, where every transfer is inlined; the others share one.
template <class Wire, DataType type, Combiner with, class Entry>
constexpr bool is_hot() {
  constexpr Algorithm algorithm = Entry::row.algorithm;
  if (Wire::kSmall && !Wire::kApart) return true;
  if (Wire::kCounted) return false;  // with so much data per transfer a call matters little
  // Between up to 8 ranks it is so long that it goes by LL128, or by Simple.
  if (Entry::row.what == Collective::kReduce && algorithm == Algorithm::kTwoShot) return Wire::kPerWarp;
  if (algorithm == Algorithm::kRing) {
    constexpr bool by_lines = Wire::kProtocol == Protocol::kLL128 || std::is_same_v<Wire, LL16>;
    return by_lines && with != Combiner::kOther && algorithm::suits_ring(Entry::row.what, type);
  }
  return algorithm == Algorithm::kOneShot || algorithm == Algorithm::kTwoShot;
}

/// Of an algorithm's own kernel. What is beyond them takes longer than all the rest, as its instructions are not at
/// hand: so there may be any word at the end, but only where others take no longer for it. Broadcasts by LL128 would
/// take up to 5 % longer, messages 8 %, all-reduces 4 %, reduces in a ring 3 %.
template <class Wire>
constexpr Bounds usual_bounds(const algorithm::Row& row) {
  constexpr bool by_ll = std::is_same_v<Wire, LL8>;
  const bool reduces_to_root = row.what == Collective::kReduce && row.algorithm != Algorithm::kRing;
  const bool broadcasts = row.what == Collective::kBroadcast && row.algorithm == Algorithm::kOneShot;
  const bool by_words = (reduces_to_root && (by_ll || std::is_same_v<Wire, LL128>)) || (broadcasts && by_ll);
  return by_words ? Bounds::kWordEnds : Bounds::kPieces;
}

/// Whether it has a kernel for words besides, if it is brief;
template <class Wire, DataType type, Combiner with>
constexpr bool has_brief_words(Collective what) {
  return std::is_same_v<Wire, LL128> && with != Combiner::kOther && algorithm::is_often_long(what, type);
}
/// and if it is not: other than for blocks there would be little gain.
template <class Wire, DataType type, Combiner with>
constexpr bool has_words(Collective what) {
  return has_brief_words<Wire, type, with>(what) && bounds_of_words(what) == Bounds::kWords;
}

/// Types of which sums often begin anywhere, as parts of larger buffers.
constexpr bool is_often_cut(Collective what, DataType type) {
  return algorithm::is_often_long(what, type) && bytes_of(type) <= 4;
}
/// Whether there is a kernel for what begins or ends elsewhere, if it is brief;
template <class Wire, DataType type, Combiner with>
constexpr bool has_brief_grains(Collective what) {
  constexpr bool by_ll = std::is_same_v<Wire, LL8>;  // which moves any words
  const Bounds grains = bounds_of_grains(what, type);
  if (with == Combiner::kOther || !is_often_cut(what, type)) return false;
  return by_ll ? cuts_words(grains) : std::is_same_v<Wire, LL128> && grains != bounds_of_words(what);
}
/// and if it is not: by LL that is what is rooted. In two shots reduces gain nothing by it, broadcasts hardly go.
template <class Wire, DataType type, Combiner with>
constexpr bool has_grains(const algorithm::Row& row) {
  if (rooted(row.what) && row.algorithm == Algorithm::kTwoShot) return false;
  if (std::is_same_v<Wire, LL8>) return rooted(row.what) && has_brief_grains<LL128, type, with>(row.what);
  return has_brief_grains<Wire, type, with>(row.what);
}

/// By small CTAs: where else it would be slower than by others' libraries. Reduces in two shots go in parts, if they
/// are no ring.
template <class Wire, DataType type, Combiner with>
constexpr bool has_small_grains(const algorithm::Row& row) {
  if (!Wire::kSmall || with == Combiner::kOther || !is_often_cut(row.what, type)) return false;
  const bool in_two_shots = row.what == Collective::kReduce && row.algorithm == Algorithm::kTwoShot;
  if (Wire::kApart) return in_two_shots && !adds_in_own_width(type);
  return !in_two_shots && row.what != Collective::kBroadcast;
}

/// The entries of the table that reduce (or that do not) and share a kernel, for size.
template <class Wire, DataType type, Combiner with, bool kReduces, class... Chosen, class Entry, class... More>
constexpr auto shared_entries(algorithm::List<Chosen...>, algorithm::List<Entry, More...>) {
  constexpr bool shares =
      reduces(Entry::row.what) == kReduces && is_built<Wire, type, Entry>() && !is_hot<Wire, type, with, Entry>();
  using Found = std::conditional_t<shares, algorithm::List<Chosen..., Entry>, algorithm::List<Chosen...>>;
  if constexpr (sizeof...(More) == 0) {
    return Found{};
  } else {
    return shared_entries<Wire, type, with, kReduces>(Found{}, algorithm::List<More...>{});
  }
}

template <class Wire>
constexpr Way way_of() {
  if (joins_parts<Wire>) return Way::kJoined;
  if (Wire::kApart) return Way::kApart;
  if (Wire::kSmall) return Way::kSmall;
  return std::is_same_v<Wire, LL16> ? Way::kLL16 : way_of(Wire::kProtocol);
}

/// Fills in a set's places for a row of the table.
class Places {
 public:
  Places(KernelSet& set, const algorithm::Row& row, Way way)
      : kernel_(
            set.kernel[static_cast<size_t>(row.what)][static_cast<size_t>(row.algorithm)][static_cast<size_t>(way)]) {}
  template <class Kernel>
  void put(Use use, Kernel* kernel) {
    kernel_[static_cast<size_t>(use)] = reinterpret_cast<const void*>(kernel);
  }

 private:
  const void* (&kernel_)[kUses];
};

template <class Wire, DataType type, Combiner with, bool kReduces>
void add_kernels(KernelSet& set) {
  using Shared = decltype(shared_entries<Wire, type, with, kReduces>(algorithm::List<>{}, algorithm::Table{}));
  algorithm::Table::for_each([&](auto entry) {
    using Entry = decltype(entry);
    constexpr algorithm::Row row = Entry::row;
    if constexpr (reduces(row.what) == kReduces && is_built<Wire, type, Entry>()) {
      Places places(set, row, way_of<Wire>());
      using Own = algorithm::List<Entry>;
      constexpr bool kHot = is_hot<Wire, type, with, Entry>();
      if constexpr (kHot) {
        places.put(Use::kUsual, &run_collectives<Wire, type, with, Own, true, usual_bounds<Wire>(row)>);
      } else {
        places.put(Use::kUsual, &run_collectives<Wire, type, with, Shared, false, Bounds::kPieces>);
      }
      if constexpr (kHot && has_words<Wire, type, with>(row.what)) {
        places.put(Use::kWords, &run_collectives<Wire, type, with, Own, true, bounds_of_words(row.what)>);
      }
      if constexpr ((kHot && has_grains<Wire, type, with>(row)) || has_small_grains<Wire, type, with>(row)) {
        places.put(Use::kGrains, &run_collectives<Wire, type, with, Own, true, bounds_of_grains(row.what, type)>);
      }
    }
  });
}

/// The entries of the table that may be brief, in so many steps, and reduce (or do not).
template <class Wire, DataType type, Combiner with, bool kReduces, uint32_t kSteps, class... Chosen, class Entry,
          class... More>
constexpr auto brief_entries(algorithm::List<Chosen...>, algorithm::List<Entry, More...>) {
  constexpr uint32_t steps = steps_if_brief(Entry::row.what, Entry::row.algorithm, Wire::kProtocol, type, with);
  constexpr bool fits = steps == kSteps && reduces(Entry::row.what) == kReduces;
  using Found = std::conditional_t<fits, algorithm::List<Chosen..., Entry>, algorithm::List<Chosen...>>;
  if constexpr (sizeof...(More) == 0) {
    return Found{};
  } else {
    return brief_entries<Wire, type, with, kReduces, kSteps>(Found{}, algorithm::List<More...>{});
  }
}

template <class Wire, DataType type, Combiner with, bool kReduces, uint32_t kSteps>
void add_brief_kernels(KernelSet& set) {
  using Brief = decltype(brief_entries<Wire, type, with, kReduces, kSteps>(algorithm::List<>{}, algorithm::Table{}));
  Brief::for_each([&](auto entry) {
    using Entry = decltype(entry);
    constexpr algorithm::Row row = Entry::row;
    Places places(set, row, brief_way_of(Wire::kProtocol));
    places.put(Use::kUsual, &run_plain<Wire, type, with, Entry, Bounds::kPieces>);
    if constexpr (has_brief_words<Wire, type, with>(row.what)) {
      places.put(Use::kWords, &run_plain<Wire, type, with, Entry, bounds_of_words(row.what)>);
    }
    if constexpr (has_brief_grains<Wire, type, with>(row.what)) {
      places.put(Use::kGrains, &run_plain<Wire, type, with, Entry, bounds_of_grains(row.what, type)>);
    }
    using Sharing = std::conditional_t<kSteps == 1, Brief, algorithm::List<Entry>>;  // two would have registers spilled
    places.put(Use::kAny, &run_any<Wire, type, with, Sharing, kSteps>);
  });
}

template <DataType type, Combiner with, bool kReduces>
void add_joined_kernels(KernelSet& set) {
  algorithm::Table::for_each([&](auto entry) {
    using Entry = decltype(entry);
    constexpr algorithm::Row row = Entry::row;
    if constexpr (reduces(row.what) == kReduces && algorithm::suits_joined_parts(row.what, row.algorithm, type)) {
      static_assert(row.apart);
      using Wire = Joined<kReduces>;
      Places places(set, row, way_of<Wire>());
      places.put(Use::kUsual, &run_joined<Wire, type, with, Entry, Bounds::kPieces>);
      if constexpr (kReduces && is_often_cut(row.what, type)) {  // of what does not reduce all is done by movers
        places.put(Use::kGrains, &run_joined<Wire, type, with, Entry, bounds_of_grains(row.what, type)>);
      }
    }
  });
}

template <DataType type, Combiner with, bool kReduces>
KernelSet make_kernel_set() {
  KernelSet set;
  add_brief_kernels<LL8, type, with, kReduces, 1>(set);
  add_brief_kernels<LL128, type, with, kReduces, 1>(set);
  add_brief_kernels<LL128, type, with, kReduces, 2>(set);
  add_kernels<LL8, type, with, kReduces>(set);
  add_kernels<LL128, type, with, kReduces>(set);
  if constexpr (with != Combiner::kOther) {
    add_kernels<LL16, type, with, kReduces>(set);
    add_kernels<Small, type, with, kReduces>(set);
    add_kernels<Apart<kReduces>, type, with, kReduces>(set);
    add_joined_kernels<type, with, kReduces>(set);
  }
  add_kernels<Simple, type, with, kReduces>(set);
  set.alone = reinterpret_cast<const void*>(
      &run_collectives<Simple, type, with, algorithm::Table, true, Bounds::kPieces, true>);
  return set;
}

#endif

}  // namespace nitinol::cuda
