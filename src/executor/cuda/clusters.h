// How many CTAs of a launch form a cluster. CUDA puts those of a cluster close together, into the same part of the GPU
// (GPC), and it matters for the wire where CTAs are: 24 that store into another H200 and into their own memory move 308
// GB/s where CUDA spreads them, and 366 in clusters of 4 (bench/cta_places).
#pragma once

#include <cstddef>

namespace nitinol::cuda {

/// The compute capability from which on there are clusters.
inline constexpr int kHasClusters = 90;

/// Of a launch of `ctas` for collectives of so many bytes: a divisor of them; 1: no clusters. `asked`: at most so many,
/// 0 for none; negative: as is good.
int ctas_of_cluster(int asked, int ctas, size_t bytes);

}  // namespace nitinol::cuda
