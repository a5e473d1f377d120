// The kernel that carries messages, as a template. For nvcc alone.
#pragma once

#include "executor/cuda/clerk.h"
#include "executor/cuda/kernel_shapes.h"
#include "executor/cuda/primitives.h"
#include "executor/cuda/run_counter.h"

namespace nitinol::cuda {

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

}  // namespace nitinol::cuda
