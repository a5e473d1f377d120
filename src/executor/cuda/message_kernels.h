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
    // Short messages do without the last warp.
    if (threadIdx.x / 32 == blockDim.x / 32 - 1) standing.count(static_cast<int>(gridDim.x));
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

/// A lane as a row carries it: some of its messages by one of its channels at a time.
template <class Wire, Bounds kBounds, class Parameters>
class RowOfLane {
 public:
  __device__ __forceinline__ RowOfLane(const Parameters& parameters, const Lane& lane)
      : parameters_(parameters),
        lane_(lane),
        runs_(parameters.queue, lane.peer, lane.sends != 0,
              Wire::kCounted && lane.channel == 0 && threadIdx.x == blockDim.x - 1),
        standing_(parameters.queue) {}

  /// Whether a channel has a part of a message.
  __device__ __forceinline__ bool carries(int channel, int message) const {
    const size_t bytes = parameters_.message[message].bytes();
    return channel < message_channels(bytes, parameters_.grain, parameters_.queue.layout.channels);
  }

  __device__ __forceinline__ void carry(int channel, int first, int count) {
    if (has_begun_) sync_some(threadIdx.y, blockDim.x);  // the memory of the channel before is used again
    Lane now = lane_;
    now.channel = static_cast<int8_t>(channel);
    now.first = static_cast<int16_t>(first);
    now.count = static_cast<int16_t>(count);
    Connections<Wire> connections(parameters_.queue, channel, channel);
    connections.resume_lane(now.peer, now.sends != 0, [&] {
      if (!connections.is_clerk()) standing_.begin();
      if (!has_begun_ && threadIdx.x / 32 == blockDim.x / 32 - 1) standing_.count(parameters_.lanes);
    });
    if (connections.is_clerk()) {
      if (!has_begun_) note_runs(runs_, lane_, parameters_);
      Clerk<Wire> clerk(connections);
      carry_all<Wire>(clerk, now, parameters_);
      clerk.close();
    } else {
      Worker<WorkerConnections<Wire>, DataType::kUint8, Combiner::kNone, true, kBounds> worker(connections);
      carry_all<Wire>(worker, now, parameters_);
      if (threadIdx.x % 32 == 0) standing_.end();
      worker.close();
    }
    connections.suspend_lane(now.peer, now.sends != 0);
    has_begun_ = true;
  }

 private:
  const Parameters& parameters_;
  const Lane& lane_;
  RunCounter runs_;
  const Standing<Wire> standing_;
  bool has_begun_ = false;
};

/// A row of threads for each lane, where CTAs are few. (What it shares with the kernel above stands in both: as
/// functions nvcc 13.0 makes other code of it.) Lanes of several channels carry a message by all of them before they
/// come to the next, as a peer may take them one by one.
template <class Wire, class Parameters, Bounds kBounds = Bounds::kPieces>
__global__ void __launch_bounds__(kMostRows* kMaxMessageThreads, 1)
    carry_messages_in_rows(const __grid_constant__ Parameters parameters) {
  const int place = static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y);
  await_earlier_kernels();
  if (parameters.next_may_begin) let_next_kernel_begin();
  if (place >= parameters.lanes) return;
  const Lane& lane = parameters.lane[place];
  RowOfLane<Wire, kBounds, Parameters> row(parameters, lane);
  const bool is_divided = parameters.channels_of_lane > 1;
  const int together = is_divided ? 1 : lane.count;
  const int end = lane.channel + parameters.channels_of_lane;
  for (int message = lane.first; message < lane.first + lane.count; message += together) {
    for (int channel = lane.channel; channel < end; ++channel) {
      if (is_divided && !row.carries(channel, message)) break;
      row.carry(channel, message, together);
    }
  }
}

}  // namespace nitinol::cuda
