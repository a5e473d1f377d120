// The operations that can be measured: what they are called, how much data they need, how they are called, and
// what has to lie in a rank's receive buffer afterwards.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace nitinol::perf {

struct NcclFunctions;

enum class Operation {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kAllToAll,
  kGather,
  kScatter,
  kSendRecv,   // ring shift: every rank sends to the next one
  kHypercube,  // all-gather by pairwise exchanges over log2(n) dimensions
};

struct OperationTraits {
  Operation operation;
  const char* name;
  bool reduces;
  bool rooted;
  bool in_place;     // the operation can work in place
  bool blocks_send;  // the send buffer holds a block per rank
  bool blocks_recv;  // the receive buffer holds a block per rank
};

std::span<const OperationTraits> all_operations();
const OperationTraits& traits_of(Operation operation);
const OperationTraits* find_operation(const std::string& name);

/// What the bandwidth of the algorithm is multiplied by to get the traffic of the busiest wire (as in nccl-tests).
double bus_factor(Operation operation, int ranks);

/// Sizes of one rank's buffers in elements; `count` is what the API call takes.
struct Layout {
  size_t count;
  size_t send;
  size_t recv;
  size_t send_offset;  // in place: where both lie in the one buffer
  size_t recv_offset;
  size_t larger() const { return send > recv ? send : recv; }
};

Layout layout_of(Operation operation, size_t count, int rank, int ranks);

/// The count to call an operation with so that its larger buffer holds at most `bytes` (but at least one element).
size_t count_for_bytes(Operation operation, size_t bytes, size_t element_size, int ranks);

/// A stretch of the receive buffer and where its content comes from: one rank's input or the reduction of all.
struct Segment {
  static constexpr int kReduced = -1;
  size_t offset;  // in the receive buffer
  size_t count;
  int source;           // a rank, or kReduced
  size_t source_index;  // index of the first element in the source
};

struct Placement {
  int rank;
  int ranks;
  int root;
};

std::vector<Segment> expected_segments(Operation operation, size_t count, const Placement& where);

struct Call {
  Operation operation;
  const void* send;
  void* recv;
  size_t count;
  ncclDataType_t type;
  size_t element_size;
  ncclRedOp_t redop;
  Placement where;
  ncclComm_t comm;
  cudaStream_t stream;
};

/// How many groups of calls the operation takes, one behind the other: in one they would be of one group with those of
/// other ranks of the thread.
int steps_of(Operation operation, int ranks);

/// Makes the calls of a step; returns the first result that is neither success nor in progress.
ncclResult_t enqueue(const NcclFunctions& nccl, const Call& call, int step);

}  // namespace nitinol::perf
