// The kernels: one for each protocol, type and reduction, which runs every algorithm that reduces; and for each protocol
// one that runs those that only move bytes, and one for messages.
#pragma once

#include <array>

#include "executor/cuda/parameters.h"

#if defined(__CUDACC__)
#include "algorithm/table.h"
#include "executor/cuda/primitives.h"
#endif

namespace nitinol::cuda {

/// Threads of the largest CTA: 15 worker warps and the clerk.
inline constexpr int kMaxThreads = 16 * 32;

/// Messages this long get a channel more for each further multiple. Sender and receiver agree: it depends on the size alone.
inline constexpr size_t kBytesPerMessageChannel = 128 << 10;
NITINOL_HOST_DEVICE int message_channels(size_t bytes, int channels) {
  const size_t wanted = bytes / kBytesPerMessageChannel;
  return wanted < 1 ? 1 : wanted < static_cast<size_t>(channels) ? static_cast<int>(wanted) : channels;
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

template <class Entry, bool kReduces, class P>
__device__ __forceinline__ void run_if(P& p, const Work& work, const Share& share) {
  if constexpr (reduces(Entry::row.what) == kReduces) {
    if (work.what == Entry::row.what && work.algorithm == Entry::row.algorithm) Entry::run(p, share);
  }
}

template <bool kReduces, class P, class... Entries>
__device__ __forceinline__ void run_one_of(algorithm::List<Entries...>, P& p, const Work& work, const Share& share) {
  (run_if<Entries, kReduces>(p, work, share), ...);
}

template <class Wire, DataType type, Combine how, bool kReduces>
__global__ void __launch_bounds__(kMaxThreads, 1) run_collectives(const __grid_constant__ CollectiveParameters parameters) {
  Primitives<Wire, type, how> p(parameters.queue, blockIdx.x);
  p.resume();
  for (int i = 0; i < parameters.works; ++i) {
    const Work& work = parameters.work[i];
    const size_t begin = min(work.per_channel * blockIdx.x, work.count);
    const Share share{begin, min(begin + work.per_channel, work.count), work.chunk, work.count};
    if (share.begin == share.end) continue;
    p.begin(work);
    if (p.ranks() == 1) {
      run_alone(p, work, share);
    } else {
      run_one_of<kReduces>(algorithm::Table{}, p, work, share);
    }
  }
  p.suspend();
}

/// The channel's part of a message, chunk by chunk.
template <class Wire, class P>
__device__ __forceinline__ void carry(P& p, const Lane& lane, const Message& message, const QueueLayout& layout) {
  const int channels = message_channels(message.bytes, layout.channels);
  const size_t part = (message.bytes / channels + 127) / 64 * 64;
  const size_t begin = min(part * lane.channel, message.bytes);
  const size_t end = lane.channel < channels ? min(begin + part, message.bytes) : begin;
  const size_t chunk = payload_of(Wire::kProtocol, layout.slot_bytes) / 64 * 64;
  for (size_t at = begin; at < end; at += chunk) {
    const size_t bytes = min(chunk, end - at);
    if (lane.sends != 0) {
      p.send(lane.peer, algorithm::input(at, bytes));
    } else {
      p.recv(lane.peer, algorithm::output(at, bytes));
    }
  }
}

/// A CTA for each lane. All CTAs of the launch are resident at once, so that none waits for one that cannot start.
template <class Wire, class Parameters>
__global__ void __launch_bounds__(kMaxThreads, 1) carry_messages(const __grid_constant__ Parameters parameters) {
  const Lane& lane = parameters.lane[blockIdx.x];
  Primitives<Wire, DataType::kUint8, Combine::kSum> p(parameters.queue, lane.channel);
  p.resume_lane(lane.peer);
  for (int i = 0; i < lane.count; ++i) {
    const Message& message = parameters.message[lane.first + i];
    p.begin(message.buffer);
    carry<Wire>(p, lane, message, parameters.queue.layout);
  }
  p.suspend_lane(lane.peer, lane.sends != 0);
}

#endif

/// Kernels by protocol, as the launch functions of the CUDA runtime take them.
using ProtocolKernels = std::array<const void*, kProtocols>;

/// Defined in the generated files, one for each type and reduction of the build.
template <DataType type, Combine how>
ProtocolKernels reduce_kernels();

ProtocolKernels move_kernels();
/// LL, then Simple; for launches with few messages and for those with many.
std::array<std::array<const void*, 2>, 2> message_kernels();

/// The kernels of a reduction; all null if the build leaves it out.
ProtocolKernels find_reduce_kernels(DataType type, Combine how);

}  // namespace nitinol::cuda
