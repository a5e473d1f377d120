// The functions that combine arrays, in one table per instruction set. Plain declarations only: the variants' sources
// must not define anything inline that the linker could then choose for processors without those instructions.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "model/types.h"

namespace nitinol::cpu {

/// into[i] = sources[0][i] combined with sources[1][i] ... in this order, for i < count, rounded once
/// (model/arithmetic.h). An average divides by `ranks` first. `into` may be one of the sources; pointers are aligned to
/// the element type.
using ReduceFunction = void (*)(void* into, const void* const* sources, int source_count, size_t count, int ranks);

/// into[i] = from[i] * *scalar, rounded; all of the element type. `into` may be `from`.
using PremultiplyFunction = void (*)(void* into, const void* from, const void* scalar, size_t count);

/// Indexed by the values of Combine and DataType.
struct ReduceTable {
  ReduceFunction combine[kCombines][kDataTypes];
  ReduceFunction average[kDataTypes];
  PremultiplyFunction premultiply[kDataTypes];
};

/// The variants: for any processor, and for x86-64 ones with more. Undefined symbols where a variant does not exist.
extern const ReduceTable kReduceBaseline;
extern const ReduceTable kReduceAvx2;
extern const ReduceTable kReduceAvx512;

}  // namespace nitinol::cpu
