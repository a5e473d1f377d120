/* The headers are C99: compiled here as such, and a program in C does what it should. */
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <vgpu.h>

int nitinol_vgpu_header_test(void);

/* Names that CUDA's headers leave to programs in C. */
static int half(int x) { return x / 2; }
static int nv_bfloat16(int x) { return x + 16; }

static void add_one(void* state) { ++*(int*)state; }

/* Returns 0 if all went well, else the number of the step that did not. */
int nitinol_vgpu_header_test(void) {
  VgpuKernel kernel = {add_one, 0, 0};
  cudaStream_t stream;
  int count = 0;
  kernel.state = &count;
  if (__half2float(__float2half(0.5f)) != 0.5f) return 1;
  if (__bfloat162float(__float2bfloat16(-2.0f)) != -2.0f) return 2;
  if (half(nv_bfloat16(0)) != 8) return 8;
  if (cudaStreamCreate(&stream) != cudaSuccess) return 3;
  if (vgpuLaunchKernel(stream, &kernel) != cudaSuccess) return 4;
  if (cudaStreamSynchronize(stream) != cudaSuccess) return 5;
  if (cudaStreamDestroy(stream) != cudaSuccess) return 6;
  return count == 1 ? 0 : 7;
}
