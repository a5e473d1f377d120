// What virtual GPUs offer beyond the CUDA runtime API: kernels that are host functions, and the file behind a pointer.
#pragma once

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

// A kernel of a virtual GPU: run(state) is called in stream order, on whatever thread executes the stream, and may wait
// until other streams, threads or processes have done something. Once nobody can call run any more (after it has run,
// or for a captured kernel when the graph and everything instantiated from it are gone), release(state) is called once;
// release may be null. A captured kernel may be run many times, by several threads at a time if
// graphs were instantiated from it more than once.
typedef struct VgpuKernel {
  void (*run)(void* state);
  void* state;
  void (*release)(void* state);
} VgpuKernel;

// Puts a kernel into a stream (or into the graph that is being captured from it). On success the stream owns the state
// and will release it; on an error nothing has been called and the state is still the caller's.
cudaError_t vgpuLaunchKernel(cudaStream_t stream, const VgpuKernel* kernel);

// To be called by a kernel that is about to sleep: work that this thread has queued in other streams is given to other
// threads at once. Without it such work would start a moment later. Cheap when there is none.
void vgpuAboutToBlock(void);

// Whether a thread of this process (gettid) waits on the host for what the stream with the id (cudaStreamGetId) is
// running, in a call of the runtime that returns no earlier.
int vgpuThreadWaitsFor(int thread, unsigned long long stream);

// The id (cudaStreamGetId) of the stream whose work the calling thread is running, as a kernel does; 0: none. What a
// graph runs one after the other is in the stream of its launch, and what it runs beside that in streams of its own.
unsigned long long vgpuRunningStream(void);

// Whether any function of the program was ever put into a stream or a graph: a host function, or a kernel but for the
// one that is said to be innocent, in that it neither starts threads nor wakes any of the program's.
int vgpuRunsFunctionsOfProgram(void);
void vgpuKernelIsInnocent(void (*run)(void* state));

// The memory file that holds a pointer: *fd (which stays ours: do not close it), the offset of the pointer in the file,
// and how many bytes its allocation has from there on. Mapping that range of the file (MAP_SHARED) in another process
// gives the same memory. Returns 1; or 0, with nothing written, for memory that no file of this process backs
// (stack, heap, registered host memory, memory opened through an IPC handle). Any of the outputs may be null.
int vgpuMemoryShareable(const void* pointer, int* fd, size_t* offset, size_t* size);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
