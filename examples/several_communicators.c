/* Several communicators on one device: all processes, and the half with our parity, split off from it. Each has its own
 * stream; the work of the second waits for that of the first through an event. */
#include <mpi.h>

#include "check.h"

enum { kCount = 30000 };

/* The sum over all, and then the sum of that over the half. */
static void sum_over_both(ncclComm_t all, ncclComm_t half, int rank, int ranks) {
  int half_ranks = 0;
  CHECK_NCCL(ncclCommCount(half, &half_ranks));
  cudaStream_t stream_all;
  cudaStream_t stream_half;
  cudaEvent_t all_done;
  CHECK_CUDA(cudaStreamCreate(&stream_all));
  CHECK_CUDA(cudaStreamCreate(&stream_half));
  CHECK_CUDA(cudaEventCreateWithFlags(&all_done, cudaEventDisableTiming));
  float* sum_all = new_buffer(kCount, (float)(rank + 1));
  float* sum_half = new_buffer(kCount, -1.0f);

  CHECK_NCCL(ncclAllReduce(sum_all, sum_all, kCount, ncclFloat, ncclSum, all, stream_all));
  CHECK_CUDA(cudaEventRecord(all_done, stream_all));
  CHECK_CUDA(cudaStreamWaitEvent(stream_half, all_done, 0));
  CHECK_NCCL(ncclAllReduce(sum_all, sum_half, kCount, ncclFloat, ncclSum, half, stream_half));
  CHECK_CUDA(cudaStreamSynchronize(stream_half));
  const float total = (float)(ranks * (ranks + 1) / 2);
  expect_all(sum_all, kCount, total, "sum over all");
  expect_all(sum_half, kCount, total * (float)half_ranks, "sum of sums over half of the ranks");
  CHECK_CUDA(cudaFree(sum_all));
  CHECK_CUDA(cudaFree(sum_half));
  CHECK_CUDA(cudaEventDestroy(all_done));
  CHECK_CUDA(cudaStreamDestroy(stream_all));
  CHECK_CUDA(cudaStreamDestroy(stream_half));
}

int main(int argc, char** argv) {
  int rank = 0;
  int ranks = 0;
  int devices = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  CHECK_CUDA(cudaGetDeviceCount(&devices));
  CHECK_CUDA(cudaSetDevice(rank % devices)); /* all processes are on one host here */

  ncclUniqueId id;
  ncclComm_t all;
  ncclComm_t group;
  if (rank == 0) CHECK_NCCL(ncclGetUniqueId(&id));
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  CHECK_NCCL(ncclCommInitRank(&all, ranks, id, rank));
  CHECK_NCCL(ncclCommSplit(all, rank % 2, rank, &group, NULL));
  int group_rank = 0;
  CHECK_NCCL(ncclCommUserRank(group, &group_rank));

  sum_over_both(all, group, rank, ranks);
  if (group_rank != rank / 2) {
    fprintf(stderr, "rank %d became rank %d of its half\n", rank, group_rank);
    exit(EXIT_FAILURE);
  }

  CHECK_NCCL(ncclCommDestroy(group));
  CHECK_NCCL(ncclCommDestroy(all));
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("OK: %d processes used two communicators each\n", ranks);
  MPI_Finalize();
  return 0;
}
