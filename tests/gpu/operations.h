// Collectives and messages by the public calls, for tests that run very many of them, over ranks that may share GPUs.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "gpus.h"
#include "nccl.h"

namespace nitinol::gpu_testing {

// Kernels of several ranks on one GPU must not stand in line behind each other.
[[maybe_unused]] inline const int kConnections = ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);

/// kNext: each rank sends to the next and receives from the one before.
enum class What : int { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kAllToAll, kNext };
constexpr std::size_t kKinds = 7;

/// What ranks have to agree on. `reduction` is that of kReduce; all-reduce and reduce-scatter add.
struct Operation {
  What what = What::kAllReduce;
  std::size_t count = 0;  ///< elements of a rank's block
  int root = 0;
  ncclDataType_t type = ncclFloat;
  ncclRedOp_t reduction = ncclSum;
};

/// The device of each rank: at least four ranks, and one on every GPU.
inline std::vector<int> devices_of_ranks() {
  std::vector<int> devices(static_cast<std::size_t>(std::max(4, gpus())));
  for (std::size_t rank = 0; rank < devices.size(); ++rank) devices[rank] = static_cast<int>(rank) % gpus();
  return devices;
}

inline std::size_t input_blocks(What what, std::size_t ranks) {
  return what == What::kReduceScatter || what == What::kAllToAll ? ranks : 1;
}
inline std::size_t output_blocks(What what, std::size_t ranks) {
  return what == What::kAllGather || what == What::kAllToAll ? ranks : 1;
}
/// Of the larger buffer.
inline std::size_t most_blocks(What what, std::size_t ranks) {
  return std::max(input_blocks(what, ranks), output_blocks(what, ranks));
}

inline ncclResult_t call(const Operation& one, const void* in, void* out, int rank, int ranks, ncclComm_t comm,
                         cudaStream_t stream) {
  switch (one.what) {
    case What::kAllReduce: return ncclAllReduce(in, out, one.count, one.type, ncclSum, comm, stream);
    case What::kBroadcast: return ncclBroadcast(in, out, one.count, one.type, one.root, comm, stream);
    case What::kReduce: return ncclReduce(in, out, one.count, one.type, one.reduction, one.root, comm, stream);
    case What::kAllGather: return ncclAllGather(in, out, one.count, one.type, comm, stream);
    case What::kReduceScatter: return ncclReduceScatter(in, out, one.count, one.type, ncclSum, comm, stream);
    case What::kAllToAll: return ncclAlltoAll(in, out, one.count, one.type, comm, stream);
    case What::kNext: break;
  }
  ncclGroupStart();
  ncclSend(in, one.count, one.type, (rank + 1) % ranks, comm, stream);
  ncclRecv(out, one.count, one.type, (rank + ranks - 1) % ranks, comm, stream);
  return ncclGroupEnd();
}

/// Element `i` of what the operation leaves on `rank`, where number(r, k) is element k of the input of rank r.
template <class Number>
__host__ __device__ auto expected(const Operation& one, int rank, int ranks, std::size_t i, const Number& number) {
  const auto sum = [&](std::size_t at) {
    auto total = number(0, at);
    for (int r = 1; r < ranks; ++r) total += number(r, at);
    return total;
  };
  const auto most = [&](std::size_t at) {
    auto greatest = number(0, at);
    for (int r = 1; r < ranks; ++r) greatest = number(r, at) > greatest ? number(r, at) : greatest;
    return greatest;
  };
  switch (one.what) {
    case What::kAllReduce: return sum(i);
    case What::kReduceScatter: return sum(rank * one.count + i);
    case What::kReduce: return one.reduction == ncclMax ? most(i) : sum(i);
    case What::kBroadcast: return number(one.root, i);
    case What::kAllGather: return number(static_cast<int>(i / one.count), i % one.count);
    case What::kAllToAll: return number(static_cast<int>(i / one.count), rank * one.count + i % one.count);
    case What::kNext: break;
  }
  return number((rank + ranks - 1) % ranks, i);
}

}  // namespace nitinol::gpu_testing
