// Communicators that must work, and what their states become.
#pragma once

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "nccl.h"

namespace nitinol::testing {

/// Throws unless an all-reduce of so many elements over the communicator gives the sum of rank + 1.
inline void must_sum(ncclComm_t comm, size_t count, cudaStream_t stream) {
  int rank = 0;
  int ranks = 0;
  EXPECT_CALL(ncclCommUserRank(comm, &rank));
  EXPECT_CALL(ncclCommCount(comm, &ranks));
  std::vector<int> values(count, rank + 1);
  int* data = nullptr;
  // In the stream's order: cudaFree would wait for kernels of other ranks on the same GPU, and so do calls of other
  // threads while this one waits in a copy to pageable memory.
  EXPECT_CALL(cudaMallocAsync(reinterpret_cast<void**>(&data), count * sizeof(int), stream));
  EXPECT_CALL(cudaMemcpyAsync(data, values.data(), count * sizeof(int), cudaMemcpyHostToDevice, stream));
  EXPECT_CALL(settled(ncclAllReduce(data, data, count, ncclInt, ncclSum, comm, stream), comm));
  EXPECT_CALL(cudaStreamSynchronize(stream));
  EXPECT_CALL(cudaMemcpyAsync(values.data(), data, count * sizeof(int), cudaMemcpyDeviceToHost, stream));
  EXPECT_CALL(cudaFreeAsync(data, stream));
  EXPECT_CALL(cudaStreamSynchronize(stream));
  for (const int value : values) expect_that(value == ranks * (ranks + 1) / 2, "sum is " + std::to_string(value));
}
inline void must_work(ncclComm_t comm, cudaStream_t stream) { must_sum(comm, 5000, stream); }

/// The same of one with so many ranks, of which this one is to be `rank`.
inline void must_work(ncclComm_t comm, int rank, int ranks, cudaStream_t stream) {
  expect_place(comm, rank, ranks);
  must_work(comm, stream);
}

inline ncclResult_t wait_for_state(ncclComm_t comm) { return settled(ncclInProgress, comm); }

/// The state in which the communicator ends up.
inline ncclResult_t wait_for_failure(ncclComm_t comm) {
  while (state_of(comm) == ncclSuccess) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return state_of(comm);
}

/// The same of a communicator of which a rank is gone, which an operation needs.
inline ncclResult_t wait_in_vain(ncclComm_t comm) {
  float* data = nullptr;
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), sizeof(float)));
  static_cast<void>(ncclAllReduce(data, data, 1, ncclFloat, ncclSum, comm, nullptr));  // it may be refused already
  const ncclResult_t state = wait_for_failure(comm);
  EXPECT_CALL(cudaFree(data));
  return state;
}

}  // namespace nitinol::testing
