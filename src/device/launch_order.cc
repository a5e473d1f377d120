#include "device/launch_order.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "device/per_device.h"
#include "device/stream.h"

namespace nitinol {

namespace {

/// Captures that are remembered for each GPU; of more at once the oldest is forgotten.
constexpr size_t kCaptures = 16;

}  // namespace

/// What has been launched into streams, or into one capture.
struct LaunchOrder::Chain {
  unsigned long long capture;
  std::vector<Launch> last{};

  Launch& of(const LaunchOrder* whose, bool large) {
    const auto found = std::find_if(last.begin(), last.end(),
                                    [&](const Launch& one) { return one.whose == whose && one.large == large; });
    return found != last.end() ? *found : last.emplace_back(Launch{whose, large});
  }
};

struct LaunchOrder::Gpu {
  std::mutex mutex;
  std::vector<LaunchOrder*> members;
  std::vector<Chain> chains;  ///< the first: of what is not captured
  std::atomic<bool> launching{false};

  Gpu() { chains.push_back(Chain{0}); }

  Chain& chain_of(unsigned long long capture) {
    const auto found =
        std::find_if(chains.begin(), chains.end(), [&](const Chain& one) { return one.capture == capture; });
    if (found != chains.end()) return *found;
    if (chains.size() > kCaptures) chains.erase(chains.begin() + 1);
    return chains.emplace_back(Chain{capture});
  }
  int most_ctas() const {
    int sum = 0;
    for (const LaunchOrder* member : members) sum += member->most_ctas_;
    return sum;
  }
};

LaunchOrder::LaunchOrder(const Options& options)
    : options_(options), gpu_(options.ordering == LaunchOrdering::kNone ? nullptr : &per_device<Gpu>(options.device)) {
  if (gpu_ == nullptr) return;
  const std::lock_guard lock(gpu_->mutex);
  gpu_->members.push_back(this);
}

LaunchOrder::~LaunchOrder() {
  if (gpu_ == nullptr) return;
  const std::lock_guard lock(gpu_->mutex);
  std::erase(gpu_->members, this);
  for (Chain& chain : gpu_->chains) std::erase_if(chain.last, [this](const Launch& one) { return one.whose == this; });
}

LaunchOrder::Turn::Turn(LaunchOrder& order) : order_(order) {
  order.large_ = false;
  order.awaited_.clear();
  order.used_.clear();
  if (order.gpu_ == nullptr || !order.options_.races_fail || !order.gpu_->launching.exchange(true)) return;
  fail(ncclInvalidUsage,
       "two threads launch operations on device {} at the same time: NCCL_LAUNCH_ORDER_IMPLICIT=1 asks for an order, "
       "and they have none (NCCL_LAUNCH_RACE_FATAL=0 allows it)",
       order.options_.device);
}

LaunchOrder::Turn::~Turn() {
  if (order_.gpu_ != nullptr && order_.options_.races_fail) order_.gpu_->launching = false;
}

bool LaunchOrder::awaits(const Launch& one) const {
  return std::any_of(awaited_.begin(), awaited_.end(),
                     [&](const Launch& other) { return other.whose == one.whose && other.number == one.number; });
}

/// Of what has come since this turn last looked.
void LaunchOrder::find_awaited(const Chain& chain) {
  for (const Launch& one : chain.last) {
    const bool matters = one.pending && one.whose != this && (large_ || one.large);
    if (matters && !awaits(one)) awaited_.push_back(one);
  }
}

/// This turn's stream there. It uses an event of the last launch again.
LaunchOrder::Used& LaunchOrder::enter(Place place, const Launch& last) {
  const auto found = std::find_if(used_.begin(), used_.end(),
                                  [&](const Used& one) { return one.kernel.place == place && place != kNoStreamId; });
  if (found != used_.end()) return *found;
  const size_t index = used_.size();
  Used& used = used_.emplace_back();
  used.kernel.place = place;
  if (index < last.kernels.size()) {
    used.kernel.begun = last.kernels[index].begun;
  } else {
    const RelaxedCaptureGuard relaxed;
    used.kernel.begun = std::make_shared<Event>(Event::create());
  }
  return used;
}

/// `alone`: nobody else is there who could be in the same stream.
LaunchOrder::Place LaunchOrder::place_of(cudaStream_t stream, bool alone) const {
  if (capture_ == 0 && !alone) return stream_id(stream);
  return stream == cudaStreamPerThread ? kNoStreamId : reinterpret_cast<Place>(stream);  // it is one for each thread
}

cudaEvent_t LaunchOrder::next(cudaStream_t stream, int ctas, Room room) {
  if (gpu_ == nullptr) return nullptr;
  std::vector<std::shared_ptr<Event>> before;
  const cudaEvent_t begun = find_place(stream, ctas, room, before);
  // Not while others are kept from launching: where a stream has no room for more CUDA waits until it has.
  for (const auto& event : before) event->make_wait(stream);
  return begun;
}

cudaEvent_t LaunchOrder::find_place(cudaStream_t stream, int ctas, Room room,
                                    std::vector<std::shared_ptr<Event>>& before) {
  const bool always = options_.ordering == LaunchOrdering::kAlways;
  const std::lock_guard lock(gpu_->mutex);
  most_ctas_ = std::max(most_ctas_, ctas);
  large_ = large_ || always || ctas > options_.few;
  const bool alone = gpu_->members.size() < 2;
  if (alone && !large_) return nullptr;
  capture_ = capture_id(stream);
  // Who comes later is not in this graph; and small kernels in graphs overlap with those before them.
  if (capture_ != 0 && (alone || !large_)) return nullptr;

  const Place place = place_of(stream, alone);
  Chain& chain = gpu_->chain_of(capture_);
  if (always || room == Room::kPart || gpu_->most_ctas() > options_.room) find_awaited(chain);
  Used& used = enter(place, chain.of(this, large_));
  for (; used.waited < awaited_.size(); ++used.waited) {
    for (const Kernel& kernel : awaited_[used.waited].kernels) {
      const bool comes_after_it = kernel.place == place && place != kNoStreamId;
      if (!comes_after_it) before.push_back(kernel.begun);
    }
  }
  return used.kernel.begun->get();
}

/// Whoever comes later waits for this launch, and so for what it waits for; but for small kernels if this is small too.
void LaunchOrder::publish() {
  if (used_.empty()) return;
  const std::lock_guard lock(gpu_->mutex);
  Chain& chain = gpu_->chain_of(capture_);
  if (large_) {
    for (Launch& last : chain.last) {
      if (last.whose == this || awaits(last)) last.pending = false;
    }
  }
  Launch& mine = chain.of(this, large_);
  mine.number = ++launches_;
  mine.pending = true;
  mine.kernels.clear();
  for (const Used& used : used_) mine.kernels.push_back(used.kernel);
}

}  // namespace nitinol
