// The kernels of collectives, as templates: whatever they move data by, and whatever they combine it with. For nvcc
// alone.
#pragma once

#include <type_traits>

#include "executor/cuda/brief_worker.h"
#include "executor/cuda/clerk.h"
#include "executor/cuda/kernel_shapes.h"
#include "executor/cuda/mover.h"
#include "executor/cuda/primitives.h"
#include "executor/cuda/run_counter.h"

namespace nitinol::cuda {

template <class P>
__device__ __forceinline__ void run_alone(P& p, Share share) {
  while (share.begin < share.end) {
    const size_t count = min(share.end - share.begin, static_cast<size_t>(share.chunk));
    p.reduce_alone(algorithm::input(share.begin, count), algorithm::output(share.begin, count));
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

/// The part of a program that this CTA carries out, where each has CTAs of its own.
__device__ __forceinline__ int part_of_cta(const CollectiveParameters& parameters) {
  const int cta = static_cast<int>(blockIdx.x);
  const int parts = static_cast<int>(gridDim.x) / parameters.channels;
  return parameters.by_channel ? cta % parts : cta / parameters.channels;
}

/// The channel of a thread.
template <class Wire>
__device__ __forceinline__ int channel_of(const CollectiveParameters& parameters) {
  const int cta = static_cast<int>(blockIdx.x);
  if constexpr (shares_cta<Wire>) {
    return cta * static_cast<int>(blockDim.y) + static_cast<int>(threadIdx.y);
  } else if constexpr (joins_parts<Wire> || !Wire::kApart) {
    return cta;
  } else if (parameters.by_channel) {
    return cta / (static_cast<int>(gridDim.x) / parameters.channels);
  } else {
    return cta % parameters.channels;
  }
}

template <class Wire, class Entries, bool kAlone, class P>
__device__ __forceinline__ void run_all(P& p, const CollectiveParameters& parameters) {
  // What goes by LL is too short for links to be busy.
  const int channel = channel_of<Wire>(parameters);
  const int turn = Wire::kProtocol == Protocol::kLL || kAlone ? 0 : algorithm::turn_of(channel, p.ranks());
  for (int i = 0; i < parameters.works; ++i) {
    const Work& work = parameters.work[i];
    const size_t begin = min(work.per_channel * channel, work.count);
    const Share share{.begin = begin,
                      .end = min(begin + work.per_channel, work.count),
                      .chunk = work.chunk,
                      .stride = work.count,
                      .turn = turn,
                      .channels = parameters.channels};
    if (share.begin == share.end) continue;
    p.begin(work, i);
    if constexpr (kAlone) {
      run_alone(p, share);
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
    const int part = joins_parts<Wire> ? 0 : part_of_cta(parameters);
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

/// Runs works whose algorithms are among Entries; kAlone: a communicator of one rank, which applies a scalar.
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

}  // namespace nitinol::cuda
