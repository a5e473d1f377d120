// Which kernels a reduction has.
#pragma once

#include "model/types.h"

namespace nitinol::cuda {

/// What a kernel combines with. Products, maxima and minima share their kernels, which each work tells how. kNone: it
/// only moves data.
enum class Combiner { kNone, kSum, kOther };
constexpr Combiner combiner_for(Combine how) { return how == Combine::kSum ? Combiner::kSum : Combiner::kOther; }

}  // namespace nitinol::cuda
