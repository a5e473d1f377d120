#include "executor/stream_places.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

namespace nitinol {

bool any_behind(const std::vector<StreamPlace>& some, const std::vector<StreamPlace>& others) {
  return std::any_of(some.begin(), some.end(), [&](const StreamPlace& one) {
    return std::any_of(others.begin(), others.end(), [&](const StreamPlace& other) { return one.behind(other); });
  });
}

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
    : self_((registry().ranks.fetch_add(1) + 1) & ((uint64_t{1} << (64 - Queue::kTurnBits)) - 1)), log_{}, joins_{} {}

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

StreamPlace StreamPlaces::take_turn(Queue& queue) const {
  constexpr uint64_t kTurns = (uint64_t{1} << Queue::kTurnBits) - 1;
  uint64_t before = queue.holder_and_turn.load();
  uint64_t after = 0;
  do {
    after = self_ << Queue::kTurnBits | ((before + 1) & kTurns);
  } while (!queue.holder_and_turn.compare_exchange_weak(before, after));
  return {queue.name, after & kTurns};
}

void StreamPlaces::enter(uint64_t launch, const StreamName& name) {
  if (name != name_) {
    queue_ = name.known() ? find_queue(name) : nullptr;
    name_ = name;
  }
  const StreamPlace place = queue_ != nullptr ? take_turn(*queue_) : StreamPlace{};
  log_.add(log_.last() + 1, {launch, place.stream, place.turn});
}

void StreamPlaces::join(uint64_t launch, const StreamName& name) {
  if (!name.known()) return;
  if (std::exchange(last_joined_, launch) != launch) joined_.clear();
  const std::shared_ptr<Queue>& queue = joined_.emplace_back(find_queue(name));
  const StreamPlace place = take_turn(*queue);
  joins_.add(joins_.last() + 1, {launch, place.stream, place.turn});
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

std::vector<StreamPlace> StreamPlaces::find_all(uint64_t launch) const {
  std::vector<StreamPlace> places;
  if (const auto main = find(launch)) places.push_back(*main);
  const uint64_t last = joins_.last();
  for (uint64_t number = last; number > 0 && last - number < joins_.kKept; --number) {
    const auto words = joins_.find(number);
    if (!words || (*words)[0] < launch) break;
    if ((*words)[0] == launch) places.push_back({(*words)[1], (*words)[2]});
  }
  return places;
}

}  // namespace nitinol
