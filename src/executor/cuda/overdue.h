// Waiting for data that is long in coming. The loops that move data look a few thousand times whether it is there, and
// do nothing else, so that all they need stays in registers. What follows is for whoever has looked so often in vain.
#pragma once

#include "executor/cuda/connections.h"

namespace nitinol::cuda {

template <class Wire>
class OverdueWaiting : public WorkerConnections<Wire> {
 public:
  __device__ __forceinline__ explicit OverdueWaiting(const Connections<Wire>& connections)
      : WorkerConnections<Wire>(connections) {}

 protected:
  static constexpr uint32_t kLooks = 0x1000;
  static constexpr int kMostAtOnce = 4;  ///< units of a slot that any loop looks at together

  __device__ __forceinline__ uint32_t first_unit() const { return Wire::kPerWarp ? this->warp_ : threadIdx.x; }
  __device__ __forceinline__ uint32_t units_apart() const {
    return Wire::kPerWarp ? this->workers_ : this->workers_ * 32;
  }

  /// move(unit) takes units as they arrive and returns the first that has not, at the latest `end`: then that one and
  /// those that may belong with it, of `units` in all, are waited for. The first one that is left; ~0 if aborted.
  template <class Move>
  __device__ __forceinline__ uint32_t take(Peers kind, uint32_t unit, uint32_t end, uint32_t units, Move&& move) {
    if constexpr (Wire::kCounted) {
      return move(unit);
    } else {
      while ((unit = move(unit)) < end) {
        if (await_overdue(kind, unit, units)) continue;
        this->aborted_ = true;
        return ~0U;
      }
      return unit;
    }
  }

 private:
  /// False: aborted.
  __device__ __forceinline__ bool await_overdue(Peers kind, uint32_t unit, uint32_t units) const {
    const int sources = kind == Peers::kOne ? 1 : this->ranks();
    const auto is_source = [&](int s) { return kind == Peers::kOne || s != this->rank(); };
    Patience patience(this->waiter());
    int next = 0;
    while (true) {
      if (!is_source(next) || all_have(this->sources_[next], unit, units)) {
        if (++next == sources) return true;
        continue;
      }
      bool exhausted = patience.exhausted([&](bool late) {
#pragma unroll 1
        for (int each = next; each < sources; ++each) {
          if (is_source(each)) note_if_missing(patience, this->sources_[each], unit, units, late);
        }
      });
      if constexpr (Wire::kPerWarp) exhausted = __any_sync(0xffffffffU, exhausted);
      if (exhausted) return false;
    }
  }
  /// Of those who look at the same units.
  __device__ __forceinline__ bool all_have(const Endpoint& source, uint32_t unit, uint32_t units) const {
    const bool mine = has(source, unit, units);
    return Wire::kPerWarp ? __all_sync(0xffffffffU, mine) : mine;
  }
  /// Whether no flag that this thread sees is missing.
  __device__ __forceinline__ bool has(const Endpoint& source, uint32_t unit, uint32_t units) const {
#pragma unroll 1
    for (int u = 0; u < kMostAtOnce && unit < units; ++u, unit += units_apart()) {
      if (!Wire::ready(Wire::fetch(source.slot, unit, this->lane_), source, this->lane_)) return false;
    }
    return true;
  }
  /// If the step is there, but of another call, that is told: perhaps it is one in which the peer waits for nobody.
  __device__ __forceinline__ void note_if_missing(const Patience& patience, const Endpoint& source, uint32_t unit,
                                                  uint32_t units, bool late) const {
    if (has(source, unit, units)) return;
    const int peer = this->sender_of(source);
    patience.note(peer, For::kData, late);
    Flags flags;
    if (!Wire::shows_flags(Wire::fetch(source.slot, unit, this->lane_), this->lane_, flags)) return;
    if (flags.first != source.flag || flags.second == source.second) return;
    note_arrived(this->queue_, peer, {source.flag, source.second, flags.second, Wire::kMarkedBytes});
  }
};

}  // namespace nitinol::cuda
