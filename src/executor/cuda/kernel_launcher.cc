#include "executor/cuda/kernel_launcher.h"

#include "executor/cuda/clusters.h"
#include "executor/cuda/green_context.h"
#include "executor/cuda/kernel_shapes.h"
#include "executor/cuda/layout.h"

namespace nitinol::cuda {

namespace {

/// None for ranks that share a GPU, which are launched one after the other and wait for each other, and for one that
/// waits for nobody.
LaunchOrder::Options launch_order_of(const ExecutorSetup& setup, const Sizes& sizes) {
  const Peer& me = setup.peers[static_cast<size_t>(setup.rank)];
  const bool keeps_order = setup.peers.size() > 1 && !sizes.ranks_share_gpus;
  return {.device = me.device,
          .few = kCtasOfNccl,
          .room = me.multiprocessors,
          .ordering = keeps_order ? setup.launch_ordering : LaunchOrdering::kNone,
          .races_fail = setup.launch_races_fail};
}

int ctas_ahead(const ExecutorSetup& setup, const Sizes& sizes) {
  const Peer& me = setup.peers[static_cast<size_t>(setup.rank)];
  return setup.launch_ahead && me.compute_capability >= kCanWaitForEarlierKernels ? sizes.ctas_ahead : 0;
}

/// So many multiprocessors hold the CTAs. Clusters of large kernels may find half of them in the wrong places.
int places_of(const LaunchShape& shape) {
  if (shape.ctas_of_cluster > 1 && shape.ctas > kCtasOfNccl) return 2 * shape.ctas;
  return shape.threads * shape.rows <= kMaxMessageThreads ? (shape.ctas + 1) / 2 : shape.ctas;
}

}  // namespace

/// Ranks that share a GPU would have to wait for room in one place for all of a cluster, while they keep it from each
/// other.
int asked_clusters(const ExecutorSetup& setup, const Peer& rank, bool ranks_share_gpus) {
  return rank.compute_capability < kHasClusters || ranks_share_gpus ? 0 : setup.cluster_ctas;
}

KernelLauncher::KernelLauncher(const ExecutorSetup& setup, const Sizes& sizes, const LoadedKernels& kernels)
    : ranks_(static_cast<int>(setup.peers.size())),
      ctas_ahead_(ctas_ahead(setup, sizes)),
      asked_clusters_(asked_clusters(setup, setup.peers[static_cast<size_t>(setup.rank)], sizes.ranks_share_gpus)),
      kernels_(kernels),
      turns_(setup.peers[static_cast<size_t>(setup.rank)].device),
      order_(launch_order_of(setup, sizes)) {}

KernelLauncher::Turn::Turn(KernelLauncher& launcher, cudaStream_t stream, bool captured)
    : turn_(launcher.turns_), order_(launcher.order_) {
  launcher.captured_ = captured;
  launcher.has_part_of_gpu_ = is_of_green_context(stream);
}

/// Green contexts may have no room for a cluster anywhere: of 4 CTAs there was none where multiprocessors were divided
/// without regard to that.
int KernelLauncher::ctas_of_cluster(int ctas, size_t bytes) const {
  if (has_part_of_gpu_) return 1;
  return kernels_.compiled_for(kHasClusters) ? cuda::ctas_of_cluster(asked_clusters_, ctas, bytes) : 1;
}

bool KernelLauncher::may_next_begin_beside(int ctas) const {
  return kernels_.compiled_for(kCanWaitForEarlierKernels) && ctas <= ctas_ahead_;
}

void KernelLauncher::put(const void* kernel, LaunchShape shape, void* parameters, cudaStream_t stream) {
  if (shape.shared_bytes == 0) {
    shape.shared_bytes = static_cast<size_t>(shape.rows) * shared_bytes(ranks_, shape.threads / 32);
  }
  const auto room = has_part_of_gpu_ ? LaunchOrder::Room::kPart : LaunchOrder::Room::kGpu;
  shape.begun = order_.next(stream, places_of(shape), room);
  cuda::launch(kernels_.handle_of(kernel), shape, parameters, stream);
}

}  // namespace nitinol::cuda
