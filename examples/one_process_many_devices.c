/* One process drives all devices: one communicator per device, the calls of all devices in one group. */
#include "check.h"

enum { kMostDevices = 64, kCount = 1 << 20 };

int main(void) {
  int devices = 0;
  CHECK_CUDA(cudaGetDeviceCount(&devices));
  if (devices > kMostDevices) devices = kMostDevices;

  ncclComm_t comms[kMostDevices];
  cudaStream_t streams[kMostDevices];
  float* send[kMostDevices];
  float* recv[kMostDevices];
  CHECK_NCCL(ncclCommInitAll(comms, devices, NULL)); /* NULL: devices 0, 1, 2 ... */
  for (int i = 0; i < devices; ++i) {
    CHECK_CUDA(cudaSetDevice(i));
    CHECK_CUDA(cudaStreamCreate(&streams[i]));
    send[i] = new_buffer(kCount, (float)(i + 1));
    recv[i] = new_buffer(kCount, -1.0f);
  }

  /* A call may wait for the other ranks' calls. In a group none of them does, until the group ends. */
  CHECK_NCCL(ncclGroupStart());
  for (int i = 0; i < devices; ++i) {
    CHECK_NCCL(ncclAllReduce(send[i], recv[i], kCount, ncclFloat, ncclSum, comms[i], streams[i]));
  }
  CHECK_NCCL(ncclGroupEnd());

  const float expected = (float)(devices * (devices + 1) / 2);
  for (int i = 0; i < devices; ++i) {
    CHECK_CUDA(cudaSetDevice(i));
    CHECK_CUDA(cudaStreamSynchronize(streams[i]));
    expect_all(recv[i], kCount, expected, "sum over devices");
  }

  for (int i = 0; i < devices; ++i) {
    CHECK_CUDA(cudaSetDevice(i));
    CHECK_NCCL(ncclCommDestroy(comms[i]));
    CHECK_CUDA(cudaFree(send[i]));
    CHECK_CUDA(cudaFree(recv[i]));
    CHECK_CUDA(cudaStreamDestroy(streams[i]));
  }
  printf("OK: %d devices of one process summed %d floats\n", devices, (int)kCount);
  return 0;
}
