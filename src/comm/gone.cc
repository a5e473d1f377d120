// Ranks that are lost or have departed: what others still do with what such a one has sent them, or among themselves,
// is to end well. So it is a failure only to who waits for it.
#include <algorithm>
#include <mutex>
#include <vector>

#include "base/log.h"
#include "comm/communicator.h"

namespace nitinol {
namespace {

/// One that has not ended for so many looks, a fifth of a second apart, does not.
constexpr int kLooksAtACall = 5;

}  // namespace

void Communicator::follow_failures() {
  bootstrap_->watch([this](const Failure& failure) { fail_because_of(failure); },
                    [this](std::span<const Failure> gone) { return find_needed(gone); });
}

/// Of those that are gone, the one that an operation waits for; if a call has not ended for long, the first.
const Failure* Communicator::find_needed(std::span<const Failure> gone) {
  tell_of_gone(gone);
  if (is_stuck_in_a_call()) return gone.data();
  const std::unique_lock lock(executor_mutex_, std::try_to_lock);  // nobody may wait here
  if (!lock || !executor_) return nullptr;
  const std::vector<int> awaited = executor_->awaited();
  const auto needed = std::find_if(gone.begin(), gone.end(), [&](const Failure& each) {
    return std::find(awaited.begin(), awaited.end(), each.rank) != awaited.end();
  });
  return needed != gone.end() ? &*needed : nullptr;
}

/// Whoever looks for a process that has crashed is to find that in the log.
void Communicator::tell_of_gone(std::span<const Failure> gone) {
  const DeviceInLog of_rank(device_);
  for (; gone_.told < gone.size(); ++gone_.told) {
    const Failure& each = gone[gone_.told];
    constexpr const char* kText = "{}: {}; nothing here waits for it";
    if (each.parting == Parting::kLost) {
      log_note(kText, name_in_log(), each.sentence);
    } else {
      log_info(Subsystem::kInit, kText, name_in_log(), each.sentence);
    }
  }
}

bool Communicator::is_stuck_in_a_call() {
  const uint64_t ended = calls_ended_.load();
  const uint64_t begun = calls_begun_.load();
  if (begun == ended || std::exchange(gone_.last_call, begun) != begun) gone_.looks_at_call = 0;
  return begun != ended && ++gone_.looks_at_call >= kLooksAtACall;
}

}  // namespace nitinol
