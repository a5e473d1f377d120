// The driver API's names for what the runtime API shares with it; virtual GPUs have no driver functions.
#pragma once

#include "cuda_runtime_api.h"

#define CUDA_VERSION 13000

typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;
typedef struct CUgraph_st* CUgraph;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
