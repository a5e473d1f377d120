// Combining arrays on any processor.
#define NITINOL_REDUCE_TABLE kReduceBaseline
#include "executor/cpu/reduce_simd.h"
