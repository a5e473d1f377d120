// Stands in for src/executor/cuda/ptx.h where a warp that uses the copy unit runs on the host: its lanes are threads,
// and the copy unit does each thing as late as it may.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

struct Position {
  unsigned x = 0;
};
inline thread_local Position threadIdx;
inline std::barrier<> warp(32);
inline void __syncwarp() { warp.arrive_and_wait(); }

using std::min;

inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (shift & 31));
}

namespace nitinol::cuda {

inline constexpr uint32_t kBulkGrain = 16;
inline constexpr bool kHasBulkCopies = true;

class CopyUnit {
 public:
  /// Called with what is read from global memory.
  std::function<void(const char* from, uint32_t bytes)> on_load;
  /// Called with what is not right.
  std::function<void(const char* what)> complain;

  void init(const uint64_t* barrier) {
    const std::lock_guard lock(mutex_);
    barriers_[barrier] = {};
  }
  void expect(const uint64_t* barrier, uint32_t bytes) {
    const std::lock_guard lock(mutex_);
    Barrier& b = barriers_.at(barrier);
    if (b.arrived) complain("a barrier is used again before its phase is over");
    b.arrived = true;
    b.missing += bytes;
    b.turn_over();
  }
  void load(char* to, const char* from, uint32_t bytes, const uint64_t* barrier) {
    check(to, from, bytes);
    on_load(from, bytes);
    const std::lock_guard lock(mutex_);
    loads_.push_back({to, from, bytes, barrier});
  }
  /// Whoever waits has one more load done, the youngest first.
  bool is_phase_over(const uint64_t* barrier, uint32_t parity) {
    const std::lock_guard lock(mutex_);
    if (barriers_.at(barrier).phase % 2 != parity) return true;
    if (loads_.empty()) return false;
    const Load load = loads_.back();
    loads_.pop_back();
    std::memcpy(load.to, load.from, load.bytes);
    Barrier& b = barriers_.at(load.barrier);
    b.missing -= load.bytes;
    b.turn_over();
    return false;
  }

  void store(char* to, const char* from, uint32_t bytes) {
    check(from, to, bytes);
    const std::lock_guard lock(mutex_);
    open_.push_back({to, from, bytes, {}});
  }
  void close_group() {
    const std::lock_guard lock(mutex_);
    groups_.push_back(std::exchange(open_, {}));
  }
  /// Reads what all groups but the last so many store, and no more.
  void read_but(size_t last) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i + last < groups_.size(); ++i) {
      for (Store& store : groups_[i]) store.read();
    }
  }
  void write_but(size_t last) {
    const std::lock_guard lock(mutex_);
    while (groups_.size() > last) {
      for (Store& store : groups_.front()) {
        store.read();
        std::memcpy(store.to, store.content.data(), store.bytes);
      }
      groups_.erase(groups_.begin());
    }
  }

 private:
  struct Barrier {
    uint32_t phase = 0;
    bool arrived = false;
    int64_t missing = 0;  ///< bytes; loads may be done before they are expected
    void turn_over() {
      if (!arrived || missing != 0) return;
      arrived = false;
      ++phase;
    }
  };
  struct Load {
    char* to;
    const char* from;
    uint32_t bytes;
    const uint64_t* barrier;
  };
  struct Store {
    char* to;
    const char* from;
    uint32_t bytes;
    std::vector<char> content;
    void read() {
      if (content.empty()) content.assign(from, from + bytes);
    }
  };

  void check(const void* in_shared, const void* in_global, uint32_t bytes) const {
    const auto all = reinterpret_cast<uintptr_t>(in_shared) | reinterpret_cast<uintptr_t>(in_global) | bytes;
    if (all % kBulkGrain != 0) complain("a copy that is not of whole vectors");
    if (bytes == 0) complain("a copy of nothing");
  }

  std::mutex mutex_;  // guards what follows
  std::map<const uint64_t*, Barrier> barriers_;
  std::vector<Load> loads_;
  std::vector<Store> open_;
  std::vector<std::vector<Store>> groups_;
};
inline CopyUnit copy_unit;

inline void init_bulk_barrier(uint64_t* barrier) { copy_unit.init(barrier); }
inline void expect_bulk_bytes(uint64_t* barrier, uint32_t bytes) { copy_unit.expect(barrier, bytes); }
inline bool is_phase_over(uint64_t* barrier, uint32_t parity) { return copy_unit.is_phase_over(barrier, parity); }
inline void bulk_load(char* to, const char* from, uint32_t bytes, uint64_t* barrier) {
  copy_unit.load(to, from, bytes, barrier);
}
inline void bulk_store(char* to, const char* from, uint32_t bytes) { copy_unit.store(to, from, bytes); }
inline void close_bulk_group() { copy_unit.close_group(); }
template <int kGroups>
void await_bulk_stores() {
  copy_unit.write_but(kGroups);
}
template <int kGroups>
void await_bulk_reads() {
  copy_unit.read_but(kGroups);
}
inline void fence_bulk_in_shared() {}
inline void store_16(void* to, uint4 value) { std::memcpy(to, &value, sizeof(value)); }

}  // namespace nitinol::cuda
