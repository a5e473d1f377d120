#include "executor/cuda/kernel_choice.h"

#include <algorithm>
#include <optional>

#include "algorithm/table.h"
#include "base/error.h"
#include "executor/cuda/kernel_set.h"
#include "executor/cuda/kernel_shapes.h"
#include "executor/cuda/ways.h"

namespace nitinol::cuda {

namespace {

/// Where the work's buffers, and blocks in them, begin and end on this rank, of a wire with pieces of so many bytes;
/// nothing if somewhere within a grain.
std::optional<Bounds> bounds_of(const CollectiveWork& work, size_t piece) {
  const auto addresses = reinterpret_cast<uintptr_t>(work.input) | reinterpret_cast<uintptr_t>(work.output);
  const size_t bytes = work.count * bytes_of(work.type);
  if (addresses % piece == 0 && bytes % piece == 0) return Bounds::kPieces;
  const auto are = [&](Bounds bounds) {
    const size_t grain = grain_of(bounds);
    return addresses % (begins_anywhere(bounds) ? grain : piece) == 0 && bytes % grain == 0;
  };
  const Bounds words = bounds_of_words(work.what);
  if (are(words)) return words;
  const Bounds grains = bounds_of_grains(work.what, work.type);
  return are(grains) ? std::optional(grains) : std::nullopt;
}

const void* kernel_at(const KernelSet& set, const CollectiveWork& work, Way way, Use use) {
  return set.at(work.what, work.plan.algorithm, way, use);
}

/// Which of a set's kernels does a brief operation, as far as that is asked of each rank for itself.
const void* brief_kernel_of(const KernelSet& set, const CollectiveWork& work) {
  const Way way = brief_way_of(work.plan.protocol);
  const void* const any = kernel_at(set, work, way, Use::kAny);
  if (work.reduction.scalar != Reduction::Scalar::kNone || work.reduction.average) return any;
  const std::optional<Bounds> bounds = bounds_of(work, brief_piece(work.plan.protocol));
  if (!bounds.has_value()) return any;
  if (bounds == Bounds::kPieces) return kernel_at(set, work, way, Use::kUsual);
  const bool are_words = *bounds == bounds_of_words(work.what) && way == Way::kBriefLL128;
  const void* const found = kernel_at(set, work, way, are_words ? Use::kWords : Use::kGrains);
  return found != nullptr ? found : any;
}

/// The kernel that does an operation by LL or LL128 that is no whole pieces; null: there is none, or it is not needed.
const void* kernel_between_pieces(const KernelSet& set, const CollectiveWork& work, Queue queue) {
  const std::optional<Bounds> bounds = bounds_of(work, shape_of(queue).piece);
  if (!bounds.has_value() || bounds == Bounds::kPieces || work.reduction.scalar != Reduction::Scalar::kNone) {
    return nullptr;
  }
  const bool by_ll = queue == Queue::kLL;
  const bool are_words = *bounds == bounds_of_words(work.what) && !(by_ll && begins_anywhere(*bounds));
  return kernel_at(set, work, way_of(work.plan.protocol), are_words ? Use::kWords : Use::kGrains);
}

/// Whether a buffer, or a block in one, begins between vectors of 16 bytes, but with a grain that there are kernels
/// for.
bool begins_between_vectors(const CollectiveWork& work) {
  auto begins = reinterpret_cast<uintptr_t>(work.input) | reinterpret_cast<uintptr_t>(work.output);
  if (has_block_per_rank(work.what)) begins |= work.count * bytes_of(work.type);
  return begins % kShapeOfSimple.piece != 0 && begins % algorithm::grain_of_blocks(work.what, work.type) == 0;
}

/// By small CTAs, or in parts, joined or not; null: there is none.
const void* small_kernel_of(const KernelSet& set, const CollectiveWork& work, Way way) {
  const bool is_between = work.reduction.scalar == Reduction::Scalar::kNone && begins_between_vectors(work);
  const void* const kernel = is_between ? kernel_at(set, work, way, Use::kGrains) : nullptr;
  return kernel != nullptr ? kernel : kernel_at(set, work, way, Use::kUsual);
}

}  // namespace

uint32_t steps_if_brief(const CollectiveWork& work) {
  const Plan& plan = work.plan;
  const Combiner with = reduces(work.what) ? combiner_for(work.reduction.combine) : Combiner::kNone;
  return steps_if_brief(work.what, plan.algorithm, plan.protocol, work.type, with);
}

const void* kernel_of(const CollectiveWork& work, Queue queue, int ranks) {
  const KernelSet* set =
      reduces(work.what) ? find_reduce_kernels(work.type, combiner_for(work.reduction.combine)) : &move_kernels();
  if (set == nullptr) {
    fail(ncclInvalidUsage,
         "this build of the library leaves out the reduction {} of data type {} (NITINOL_CUDA_TYPES, "
         "NITINOL_CUDA_REDUCTIONS)",
         static_cast<int>(work.reduction.combine), static_cast<int>(work.type));
  }
  if (is_brief(queue)) return brief_kernel_of(*set, work);
  if (work.plan.joined && work.reduction.scalar != Reduction::Scalar::kNone) {
    fail(ncclInternalError, "{} by joined parts, which apply no scalar", name_of(work.what));
  }
  const Way way = way_of(work.plan, queue);
  if (work.plan.apart || work.plan.small || work.plan.joined) {  // never with one rank: it is offered none
    if (const void* const kernel = small_kernel_of(*set, work, way)) return kernel;
    fail(ncclInternalError, "no kernel for {} by {} {}", name_of(work.what), name_of(work.plan.algorithm),
         work.plan.joined  ? "by joined parts"
         : work.plan.apart ? "in parts"
                           : "by small CTAs");
  }
  if ((queue == Queue::kLL || queue == Queue::kLL128) && ranks > 1) {
    if (const void* const kernel = kernel_between_pieces(*set, work, queue)) return kernel;
  }
  const void* const kernel = ranks == 1 ? set->alone() : kernel_at(*set, work, way, Use::kUsual);
  if (kernel == nullptr) {
    fail(ncclInternalError, "no kernel for {} by {}", name_of(work.what), name_of(work.plan.algorithm));
  }
  return kernel;
}

const void* message_kernel_of(const MessageBatch& batch, size_t size, Protocol protocol, bool in_rows) {
  const bool between = std::any_of(batch.messages.begin(), batch.messages.end(), [](const Message& message) {
    return reinterpret_cast<uintptr_t>(message.buffer) % kShapeOfSimple.piece != 0;
  });
  const auto which = static_cast<size_t>(protocol);
  const void* const kernel = between ? message_kernels_between_vectors(in_rows)[size][which] : nullptr;
  return kernel != nullptr ? kernel : message_kernels(in_rows)[size][which];
}

}  // namespace nitinol::cuda
