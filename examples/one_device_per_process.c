/* One device per MPI process: MPI carries the unique id from rank 0 to the others, everything else goes through NCCL's
 * API. */
#include <mpi.h>

#include "check.h"

enum { kCount = 100003 };

/* Our number among the processes of this host: it chooses the device. */
static int rank_on_this_host(void) {
  MPI_Comm host;
  int rank = 0;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, &rank);
  MPI_Comm_free(&host);
  return rank;
}

int main(int argc, char** argv) {
  int rank = 0;
  int ranks = 0;
  int devices = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  CHECK_CUDA(cudaGetDeviceCount(&devices));
  CHECK_CUDA(cudaSetDevice(rank_on_this_host() % devices));

  ncclUniqueId id;
  ncclComm_t comm;
  cudaStream_t stream;
  if (rank == 0) CHECK_NCCL(ncclGetUniqueId(&id));
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  CHECK_NCCL(ncclCommInitRank(&comm, ranks, id, rank));
  CHECK_CUDA(cudaStreamCreate(&stream));

  float* send = new_buffer(kCount, (float)(rank + 1));
  float* recv = new_buffer(kCount, -1.0f);
  CHECK_NCCL(ncclAllReduce(send, recv, kCount, ncclFloat, ncclSum, comm, stream));
  CHECK_NCCL(ncclBroadcast(send, send, kCount, ncclFloat, ranks - 1, comm, stream)); /* in place */
  CHECK_CUDA(cudaStreamSynchronize(stream));
  expect_all(recv, kCount, (float)(ranks * (ranks + 1) / 2), "sum over processes");
  expect_all(send, kCount, (float)ranks, "broadcast by the last rank");

  CHECK_NCCL(ncclCommDestroy(comm));
  CHECK_CUDA(cudaFree(send));
  CHECK_CUDA(cudaFree(recv));
  CHECK_CUDA(cudaStreamDestroy(stream));
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("OK: %d processes with a device each summed and broadcast %d floats\n", ranks, (int)kCount);
  MPI_Finalize();
  return 0;
}
