#include "executor/stream_places.h"

#include <map>
#include <mutex>
#include <utility>

namespace nitinol {

struct StreamPlaces::Registry {
  std::mutex mutex;
  std::map<std::pair<unsigned long long, int>, std::shared_ptr<Queue>> queues;
  uint64_t streams = 0;
  std::atomic<uint64_t> ranks{0};
};

StreamPlaces::Registry& StreamPlaces::registry() {
  static auto* const the_one = new Registry;  // communicators may go away while the process exits
  return *the_one;
}

StreamPlaces::StreamPlaces()
    : self_((registry().ranks.fetch_add(1) + 1) & ((uint64_t{1} << (64 - Queue::kTurnBits)) - 1)), log_{} {}

/// One that nobody uses any more is forgotten.
std::shared_ptr<StreamPlaces::Queue> StreamPlaces::find_queue(const StreamName& name) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::shared_ptr<Queue>& queue = all.queues[{name.id, name.device}];
  if (queue == nullptr) {
    std::erase_if(all.queues, [](const auto& each) { return each.second != nullptr && each.second.use_count() == 1; });
    queue = std::make_shared<Queue>(++all.streams);
  }
  return queue;
}

void StreamPlaces::enter(uint64_t launch, const StreamName& name) {
  if (name != name_) {
    queue_ = name.known() ? find_queue(name) : nullptr;
    name_ = name;
  }
  StreamPlace place;
  if (queue_ != nullptr) {
    constexpr uint64_t kTurns = (uint64_t{1} << Queue::kTurnBits) - 1;
    uint64_t before = queue_->holder_and_turn.load();
    uint64_t after = 0;
    do {
      after = self_ << Queue::kTurnBits | ((before + 1) & kTurns);
    } while (!queue_->holder_and_turn.compare_exchange_weak(before, after));
    place = {queue_->name, after & kTurns};
  }
  log_.add(log_.last() + 1, {launch, place.stream, place.turn});
}

std::optional<StreamPlace> StreamPlaces::find(uint64_t launch) const {
  const uint64_t last = log_.last();
  for (uint64_t number = last; number > 0 && last - number < log_.kKept; --number) {
    const auto words = log_.find(number);
    if (!words) return std::nullopt;
    if ((*words)[0] <= launch) return StreamPlace{(*words)[1], (*words)[2]};
  }
  return std::nullopt;
}

}  // namespace nitinol
