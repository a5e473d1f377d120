/* An all-reduce captured in a graph per device and replayed: the operation is set up once, each launch runs it again.
 */
#include "check.h"

enum { kMostDevices = 64, kCount = 5000, kReplays = 3 };

typedef struct Rank {
  ncclComm_t comm;
  cudaStream_t stream;
  cudaGraphExec_t graph;
  float* value; /* all devices start with 1; each replay multiplies by the number of devices */
} Rank;

static void capture(Rank* ranks, int devices) {
  for (int i = 0; i < devices; ++i) {
    CHECK_CUDA(cudaSetDevice(i));
    CHECK_CUDA(cudaStreamBeginCapture(ranks[i].stream, cudaStreamCaptureModeThreadLocal));
  }
  CHECK_NCCL(ncclGroupStart());
  for (int i = 0; i < devices; ++i) {
    Rank* r = &ranks[i];
    CHECK_NCCL(ncclAllReduce(r->value, r->value, kCount, ncclFloat, ncclSum, r->comm, r->stream));
  }
  CHECK_NCCL(ncclGroupEnd());
  for (int i = 0; i < devices; ++i) {
    cudaGraph_t graph;
    CHECK_CUDA(cudaSetDevice(i));
    CHECK_CUDA(cudaStreamEndCapture(ranks[i].stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&ranks[i].graph, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph)); /* the executable graph lives on without it */
  }
}

int main(void) {
  int devices = 0;
  CHECK_CUDA(cudaGetDeviceCount(&devices));
  if (devices > kMostDevices) devices = kMostDevices;
  ncclComm_t comms[kMostDevices];
  Rank ranks[kMostDevices];
  CHECK_NCCL(ncclCommInitAll(comms, devices, NULL));
  for (int i = 0; i < devices; ++i) {
    CHECK_CUDA(cudaSetDevice(i));
    ranks[i].comm = comms[i];
    ranks[i].value = new_buffer(kCount, 1.0f);
    CHECK_CUDA(cudaStreamCreate(&ranks[i].stream));
  }

  capture(ranks, devices);
  float expected = 1.0f;
  for (int i = 0; i < devices; ++i)
    expect_all(ranks[i].value, kCount, expected, "value after capture, which runs nothing");

  for (int replay = 0; replay < kReplays; ++replay) {
    expected *= (float)devices;
    for (int i = 0; i < devices; ++i) {
      CHECK_CUDA(cudaSetDevice(i));
      CHECK_CUDA(cudaGraphLaunch(ranks[i].graph, ranks[i].stream));
    }
  }
  for (int i = 0; i < devices; ++i) {
    CHECK_CUDA(cudaSetDevice(i));
    CHECK_CUDA(cudaStreamSynchronize(ranks[i].stream));
    expect_all(ranks[i].value, kCount, expected, "value after the replays");
  }

  for (int i = 0; i < devices; ++i) {
    CHECK_CUDA(cudaSetDevice(i));
    CHECK_CUDA(cudaGraphExecDestroy(ranks[i].graph)); /* before the communicator that it uses */
    CHECK_NCCL(ncclCommDestroy(ranks[i].comm));
    CHECK_CUDA(cudaFree(ranks[i].value));
    CHECK_CUDA(cudaStreamDestroy(ranks[i].stream));
  }
  printf("OK: %d devices replayed a captured all-reduce %d times\n", devices, (int)kReplays);
  return 0;
}
