// Combining arrays on x86-64 processors since about 2013.
#if defined(__AVX2__)
#define NITINOL_REDUCE_TABLE kReduceAvx2
#include "executor/cpu/reduce_simd.h"
#endif
