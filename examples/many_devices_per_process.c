/* Several devices per MPI process: ranks of the communicator are devices, not processes. */
#include <mpi.h>

#include "check.h"

enum { kDevicesPerProcess = 2, kCount = 4096 };

typedef struct Device {
  int device;
  int rank;
  ncclComm_t comm;
  cudaStream_t stream;
  float* send; /* kCount elements */
  float* recv; /* kCount elements of every rank */
} Device;

/* Creates the communicators of all our devices in one group: each waits for all the others. */
static void create(Device* mine, int process, int processes) {
  int devices = 0;
  ncclUniqueId id;
  CHECK_CUDA(cudaGetDeviceCount(&devices));
  if (process == 0) CHECK_NCCL(ncclGetUniqueId(&id));
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  const int ranks = processes * kDevicesPerProcess;
  CHECK_NCCL(ncclGroupStart());
  for (int i = 0; i < kDevicesPerProcess; ++i) {
    mine[i].rank = process * kDevicesPerProcess + i;
    mine[i].device = mine[i].rank % devices; /* all processes are on one host here */
    CHECK_CUDA(cudaSetDevice(mine[i].device));
    CHECK_NCCL(ncclCommInitRank(&mine[i].comm, ranks, id, mine[i].rank));
  }
  CHECK_NCCL(ncclGroupEnd());
  for (int i = 0; i < kDevicesPerProcess; ++i) {
    CHECK_CUDA(cudaSetDevice(mine[i].device));
    CHECK_CUDA(cudaStreamCreate(&mine[i].stream));
    mine[i].send = new_buffer(kCount, (float)mine[i].rank);
    mine[i].recv = new_buffer((size_t)kCount * (size_t)ranks, -1.0f);
  }
}

int main(int argc, char** argv) {
  int process = 0;
  int processes = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &process);
  MPI_Comm_size(MPI_COMM_WORLD, &processes);
  Device mine[kDevicesPerProcess];
  create(mine, process, processes);

  CHECK_NCCL(ncclGroupStart());
  for (int i = 0; i < kDevicesPerProcess; ++i) {
    CHECK_NCCL(ncclAllGather(mine[i].send, mine[i].recv, kCount, ncclFloat, mine[i].comm, mine[i].stream));
  }
  CHECK_NCCL(ncclGroupEnd());

  for (int i = 0; i < kDevicesPerProcess; ++i) {
    CHECK_CUDA(cudaSetDevice(mine[i].device));
    CHECK_CUDA(cudaStreamSynchronize(mine[i].stream));
    for (int rank = 0; rank < processes * kDevicesPerProcess; ++rank) {
      expect_all(mine[i].recv + (size_t)rank * kCount, kCount, (float)rank, "gathered block");
    }
  }
  for (int i = 0; i < kDevicesPerProcess; ++i) {
    CHECK_CUDA(cudaSetDevice(mine[i].device));
    CHECK_NCCL(ncclCommDestroy(mine[i].comm));
    CHECK_CUDA(cudaFree(mine[i].send));
    CHECK_CUDA(cudaFree(mine[i].recv));
    CHECK_CUDA(cudaStreamDestroy(mine[i].stream));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (process == 0) printf("OK: %d processes with %d devices each gathered\n", processes, (int)kDevicesPerProcess);
  MPI_Finalize();
  return 0;
}
