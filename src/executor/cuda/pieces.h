// Pieces of a copy on their way through shared memory: a warp fills stages and empties them, by the copy unit as far as
// addresses allow it, and by its lanes otherwise.
#pragma once

#include "executor/cuda/layout.h"
#include "executor/cuda/ptx.h"

namespace nitinol::cuda {

/// The stages of a warp, which holds them in turns.
class PieceStages {
 public:
  /// `stages`: aligned to kBulkAlignment, of stage_bytes() each. All lanes of a warp.
  __device__ __forceinline__ PieceStages(char* stages, uint32_t bytes_of_each, uint64_t* barriers)
      : stages_(stages), apart_(bytes_of_each), barriers_(barriers), lane_(threadIdx.x % 32) {
    if (lane_ < kPieceStages) init_bulk_barrier(barriers_ + lane_);
    fence_bulk_in_shared();
    __syncwarp();
  }

  /// Begins to fill the next stage with a piece, while `kPending` that were filled before are not stored yet. Where in
  /// the stage the piece begins: where its source does within 16 bytes. All of these are read, but what is before the
  /// first piece of a chunk, or more than `behind` bytes behind this one, may be none of the buffer's.
  template <int kPending>
  __device__ __forceinline__ uint32_t fill(const char* from, uint32_t bytes, bool is_first, uint32_t behind) {
    char* const stage = stages_ + filled_ % kPieceStages * apart_;
    uint64_t* const barrier = barriers_ + filled_ % kPieceStages;
    const auto within = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from) % kBulkGrain);
    if (lane_ == 0) await_bulk_reads<kPieceStages - kPending - 1>();  // of what it held before
    __syncwarp();
    if constexpr (kHasBulkCopies) {
      const uint32_t ends = within + bytes;
      const uint32_t begin = is_first && within != 0 ? kBulkGrain : 0;
      const uint32_t end = (ends + min(behind, kBulkGrain - 1)) / kBulkGrain * kBulkGrain;
      const uint32_t whole = end > begin ? end - begin : 0;
      if (lane_ == 0) {
        expect_bulk_bytes(barrier, whole);
        if (whole != 0) bulk_load(stage + begin, from - within + begin, whole, barrier);
      }
      if (begin != 0) copy_bytes(stage + within, from, min(begin - within, bytes), lane_);
      if (end >= begin && end < ends) copy_bytes(stage + end, from - within + end, ends - end, lane_);
    } else {
      for (uint32_t i = lane_; i < bytes; i += 32) stage[within + i] = from[i];
    }
    ++filled_;
    return within;
  }

  /// Waits until the oldest piece is in its stage.
  __device__ __forceinline__ void await_filled() const {
    while (!is_phase_over(barriers_ + stored_ % kPieceStages, stored_ / kPieceStages % 2)) {
    }
    __syncwarp();
  }
  /// Stores it: a group of bulk stores, or stores of the lanes. `within`: what fill() has said.
  __device__ __forceinline__ void store(char* to, uint32_t within, uint32_t bytes) {
    char* const stage = stages_ + stored_ % kPieceStages * apart_;
    const bool is_vectors = kHasBulkCopies && reinterpret_cast<uintptr_t>(to) % kBulkGrain == 0;
    const uint32_t whole = is_vectors ? bytes / kBulkGrain * kBulkGrain : 0;
    if (whole != 0 && within != 0) realign(stage, within, bytes, lane_);
    const char* const from = whole != 0 ? stage : stage + within;
    if (lane_ == 0 && whole != 0) bulk_store(to, from, whole);
    if (whole != bytes) {
      spread(to + whole, from + whole, bytes - whole, lane_);
      fence_bulk_in_shared();  // lanes have read what the copy unit is to fill again
    }
    __syncwarp();
    if (lane_ == 0) close_bulk_group();
    ++stored_;
  }
  /// Leaves it out. No group stands for it: before it all stores have been waited for.
  __device__ __forceinline__ void skip() { ++stored_; }

 private:
  /// Fewer than 32.
  __device__ __forceinline__ static void copy_bytes(char* to, const char* from, uint32_t bytes, uint32_t lane) {
    if (lane < bytes) to[lane] = from[lane];
  }

  /// Moves a piece to the beginning of its stage.
  __device__ __noinline__ static void realign(char* stage, uint32_t within, uint32_t bytes, uint32_t lane) {
    for (uint32_t at = lane * kBulkGrain; at < (bytes + 511) / 512 * 512; at += 512) {
      uint4 vector = make_uint4(0, 0, 0, 0);
      if (at < bytes) vector = load_shared_vector(stage + at, within);
      __syncwarp();  // what others store lies before what is still to be loaded
      if (at < bytes) *reinterpret_cast<uint4*>(stage + at) = vector;
    }
    fence_bulk_in_shared();
    __syncwarp();
  }

  /// From shared memory to anywhere: in vectors as they lie where it goes.
  __device__ __noinline__ static void spread(char* to, const char* from, uint32_t bytes, uint32_t lane) {
    const auto begins = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to) % kBulkGrain);
    const uint32_t head = begins == 0 ? 0 : min(kBulkGrain - begins, bytes);
    copy_bytes(to, from, head, lane);
    const uint32_t vectors = (bytes - head) / kBulkGrain;
    const auto within = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from + head) % kBulkGrain);
    const char* const aligned = from + head - within;
#pragma unroll 4
    for (uint32_t v = lane; v < vectors; v += 32) {
      store_16(to + head + v * kBulkGrain, load_shared_vector(aligned + v * kBulkGrain, within));
    }
    const uint32_t done = head + vectors * kBulkGrain;
    copy_bytes(to + done, from + done, bytes - done, lane);
  }
  /// 16 bytes that begin so far behind `aligned`: out of the two vectors that hold them.
  __device__ __forceinline__ static uint4 load_shared_vector(const char* aligned, uint32_t within) {
    const uint4 low = reinterpret_cast<const uint4*>(aligned)[0];
    const uint4 high = reinterpret_cast<const uint4*>(aligned)[1];
    uint32_t word[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (uint32_t words = 1; words <= 2; words *= 2) {
      if ((within / 4 & words) != 0) {
#pragma unroll
        for (uint32_t i = 0; i + words < 8; ++i) word[i] = word[i + words];
      }
    }
    const uint32_t shift = within % 4 * 8;
    return make_uint4(__funnelshift_r(word[0], word[1], shift), __funnelshift_r(word[1], word[2], shift),
                      __funnelshift_r(word[2], word[3], shift), __funnelshift_r(word[3], word[4], shift));
  }

  char* stages_;
  uint32_t apart_;
  uint64_t* barriers_;
  uint32_t lane_;
  uint32_t filled_ = 0;
  uint32_t stored_ = 0;
};

}  // namespace nitinol::cuda
