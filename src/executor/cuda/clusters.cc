#include "executor/cuda/clusters.h"

#include <algorithm>

#include "model/limits.h"

namespace nitinol::cuda {

int ctas_of_cluster(int asked, int ctas, size_t bytes) {
  constexpr int kGood = 4;
  // Between 2 H200 clusters gain nothing with more CTAs, and where those fill the GPU they lose up to a quarter. From 4
  // MB on they gain a tenth and more, with 1 MB a fiftieth; but a launch that is not of a graph takes half a
  // microsecond more.
  constexpr size_t kLongEnough = size_t{2} << 20;
  const bool is_good = bytes >= kLongEnough && ctas >= 2 * kGood && ctas <= kCtasOfNccl && ctas % kGood == 0;
  if (asked < 0) return is_good ? kGood : 1;
  int size = std::clamp(asked, 1, ctas);
  while (ctas % size != 0) --size;
  return size;
}

}  // namespace nitinol::cuda
