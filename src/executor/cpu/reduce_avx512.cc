// Combining arrays on x86-64 processors with AVX-512.
#if defined(__AVX512BW__)
#define NITINOL_REDUCE_TABLE kReduceAvx512
#include "executor/cpu/reduce_simd.h"
#endif
