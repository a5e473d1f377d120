#include "device/launch_order.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "device/stream.h"

namespace nitinol {

namespace {

/// Captures that are remembered for each GPU; of more at once the oldest is forgotten.
constexpr size_t kCaptures = 16;

}  // namespace

/// What has been launched into streams, or into one capture, and for which of that nobody waits yet.
struct LaunchOrder::Chain {
  struct Kernel {
    Event begun;
    Place place = 0;
  };
  /// A communicator's last launch: one kernel, the last, for each of its streams.
  struct Last {
    const LaunchOrder* whose;
    std::vector<Kernel> kernels{};  ///< the others are there for their events
    size_t pending = 0;
  };

  unsigned long long capture;
  std::vector<Last> last{};

  Last& of(const LaunchOrder* whose) {
    const auto found = std::find_if(last.begin(), last.end(), [&](const Last& one) { return one.whose == whose; });
    return found != last.end() ? *found : last.emplace_back(Last{whose});
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

LaunchOrder::Gpu& LaunchOrder::gpu_of(int device) {
  struct Gpus {
    std::mutex mutex;
    std::map<int, std::unique_ptr<Gpu>> all;
  };
  static Gpus* const gpus = new Gpus;  // communicators may go when the process ends
  const std::lock_guard lock(gpus->mutex);
  std::unique_ptr<Gpu>& gpu = gpus->all[device];
  if (gpu == nullptr) gpu = std::make_unique<Gpu>();
  return *gpu;
}

LaunchOrder::LaunchOrder(const Options& options)
    : options_(options), gpu_(options.ordering == LaunchOrdering::kNone ? nullptr : &gpu_of(options.device)) {
  if (gpu_ == nullptr) return;
  const std::lock_guard lock(gpu_->mutex);
  gpu_->members.push_back(this);
}

LaunchOrder::~LaunchOrder() {
  if (gpu_ == nullptr) return;
  const std::lock_guard lock(gpu_->mutex);
  std::erase(gpu_->members, this);
  for (Chain& chain : gpu_->chains) std::erase_if(chain.last, [this](const auto& one) { return one.whose == this; });
}

LaunchOrder::Turn::Turn(LaunchOrder& order) : order_(order) {
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

/// Whoever comes later waits for this launch, and so for them.
void LaunchOrder::await_others(Chain& chain) {
  for (Chain::Last& one : chain.last) {
    if (one.whose == this) continue;
    for (size_t i = 0; i < one.pending; ++i) awaited_.push_back({one.kernels[i].begun.get(), one.kernels[i].place});
    one.pending = 0;
  }
}

/// Which of this launch's streams that is.
size_t LaunchOrder::enter(Place place) {
  const auto found = std::find_if(used_.begin(), used_.end(), [&](const Used& one) { return one.place == place; });
  const auto index = static_cast<size_t>(found - used_.begin());
  if (found == used_.end()) used_.push_back({place, 0});
  return index;
}

cudaEvent_t LaunchOrder::next(cudaStream_t stream, int ctas) {
  if (gpu_ == nullptr) return nullptr;
  const std::lock_guard lock(gpu_->mutex);
  most_ctas_ = std::max(most_ctas_, ctas);
  if (gpu_->members.size() < 2) return nullptr;

  const unsigned long long capture = capture_id(stream);
  const Place place = capture != 0 ? reinterpret_cast<Place>(stream) : stream_id(stream);
  Chain& chain = gpu_->chain_of(capture);
  Chain::Last& mine = chain.of(this);
  const bool first = used_.empty();
  const size_t index = enter(place);
  if (options_.ordering == LaunchOrdering::kAlways || gpu_->most_ctas() > options_.room) await_others(chain);
  for (size_t& i = used_[index].waited; i < awaited_.size(); ++i) {
    const bool comes_after_it = awaited_[i].place == place && place != kNoStreamId;
    if (!comes_after_it) cuda_check(cudaStreamWaitEvent(stream, awaited_[i].event, 0), "cudaStreamWaitEvent");
  }

  if (mine.kernels.size() <= index) {
    const RelaxedCaptureGuard relaxed;
    mine.kernels.push_back({Event::create(), place});
  }
  mine.kernels[index].place = place;
  mine.pending = first ? 1 : std::max(mine.pending, index + 1);
  return mine.kernels[index].begun.get();
}

}  // namespace nitinol
