/* A user's program: every rank of one process adds up one float on each GPU. Without GPUs it only asks for the version.
 */
#include <nccl.h>
#include <stdio.h>

enum { kRanks = 2 };

static int sum_over_ranks(void) {
  ncclComm_t comms[kRanks];
  cudaStream_t streams[kRanks];
  float* buffers[kRanks];
  if (ncclCommInitAll(comms, kRanks, NULL) != ncclSuccess) return 1;
  for (int i = 0; i < kRanks; ++i) {
    float one = 1.0f;
    if (cudaSetDevice(i) != cudaSuccess || cudaStreamCreate(&streams[i]) != cudaSuccess) return 2;
    if (cudaMalloc((void**)&buffers[i], sizeof(float)) != cudaSuccess) return 3;
    if (cudaMemcpy(buffers[i], &one, sizeof one, cudaMemcpyHostToDevice) != cudaSuccess) return 4;
  }
  ncclGroupStart();
  for (int i = 0; i < kRanks; ++i) ncclAllReduce(buffers[i], buffers[i], 1, ncclFloat, ncclSum, comms[i], streams[i]);
  if (ncclGroupEnd() != ncclSuccess) return 5;
  for (int i = 0; i < kRanks; ++i) {
    float sum = 0;
    if (cudaSetDevice(i) != cudaSuccess || cudaStreamSynchronize(streams[i]) != cudaSuccess) return 6;
    if (cudaMemcpy(&sum, buffers[i], sizeof sum, cudaMemcpyDeviceToHost) != cudaSuccess || sum != kRanks) return 7;
    if (cudaFree(buffers[i]) != cudaSuccess || cudaStreamDestroy(streams[i]) != cudaSuccess) return 8;
  }
  for (int i = 0; i < kRanks; ++i) {
    if (ncclCommDestroy(comms[i]) != ncclSuccess) return 9;
  }
  return 0;
}

int main(void) {
  int version = 0;
  int devices = 0;
  if (ncclGetVersion(&version) != ncclSuccess || version != NCCL_VERSION_CODE) return 10;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < kRanks) {
    printf("version %d, no GPUs\n", version);
    return 0;
  }
  int result = sum_over_ranks();
  printf("version %d, %d GPUs, result %d\n", version, devices, result);
  return result;
}
