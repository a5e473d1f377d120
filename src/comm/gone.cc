// Ranks that are lost or have departed: what others still do with what such a one has sent them, or among themselves,
// is to end well. So it is a failure only to who waits for it.
#include <algorithm>
#include <mutex>
#include <vector>

#include "base/log.h"
#include "comm/communicator.h"
#include "comm/strict_check.h"

namespace nitinol {
namespace {

// In looks, a fifth of a second apart.
constexpr int kPatienceWithACall = 5;
constexpr int kPatienceWithTheUnheard = 25;

}  // namespace

void Communicator::follow_failures() {
  bootstrap_->watch([this](const Failure& failure) { fail_because_of(failure); },
                    [this](std::span<const Failure> gone) { return find_needed(gone); });
}

/// Of those that are gone, the one that this rank waits for, or that keeps it from hearing of another that it waits
/// for; if a call has not ended for long, the first.
const Failure* Communicator::find_needed(std::span<const Failure> gone) {
  if (is_stuck_in_a_call()) return gone.data();
  const std::unique_lock lock(executor_mutex_, std::try_to_lock);  // nobody may wait here
  if (!lock || !executor_) return nullptr;
  const std::vector<int> awaited = executor_->awaited();
  // What was told before one had gone may be of a wait that what it had sent has ended.
  const std::span<const Failure> before = gone.first(std::exchange(gone_.known, gone.size()));
  const auto needed = std::find_if(before.begin(), before.end(), [&](const Failure& each) {
    return std::find(awaited.begin(), awaited.end(), each.rank) != awaited.end();
  });
  if (needed != before.end()) return &*needed;
  if (waits_unheard(awaited)) return gone.data();
  tell_of_gone(before);
  return nullptr;
}

bool Communicator::is_stuck_in_a_call() {
  const uint64_t ended = calls_ended_.load();
  const uint64_t begun = calls_begun_.load();
  if (begun == ended || std::exchange(gone_.last_call, begun) != begun) gone_.looks_at_call = 0;
  return begun != ended && ++gone_.looks_at_call >= kPatienceWithACall;
}

/// For long, for a rank of which neither a word would come, as that leads over one that is gone, nor the executors
/// know.
bool Communicator::waits_unheard(const std::vector<int>& awaited) {
  const bool unheard = std::any_of(awaited.begin(), awaited.end(), [this](int rank) {
    if (bootstrap_->hears_of(rank)) return false;
    return !compares_calls() || !members_that_are(ProcessState::kUnknown, {rank}).empty();
  });
  gone_.looks_unheard = unheard ? gone_.looks_unheard + 1 : 0;
  return gone_.looks_unheard >= kPatienceWithTheUnheard;
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

/// Who fails as others are gone is gone in turn, and of the same cause: no failure to those that do not need it either.
void Communicator::fail_because_of(const Failure& known) {
  fail_with(known.result, known.sentence, false);
  if (known.parting == Parting::kFailed || phase_.load() == Phase::kInitialising) return;
  bootstrap_->report_failure({rank_, ncclRemoteError, known.sentence, Parting::kDeparted});
}

/// Whoever carries out nothing any more may have failed as others were gone before, of which it could not tell.
std::string Communicator::naming_the_gone(const std::string& sentence) const {
  if (!bootstrap_ || !bootstrap_->has_gone_rank() || cause_of(sentence)) return sentence;
  return formatted("{}; gone before that: {}", sentence, bootstrap_->gone().front().sentence);
}

/// The one that is gone of which the sentence speaks, if none worse has happened.
std::optional<Failure> Communicator::cause_of(const std::string& sentence) const {
  const auto first = bootstrap_->failure();
  if (!first || first->parting == Parting::kFailed) return first;
  for (const Failure& gone : bootstrap_->gone()) {
    if (sentence.find(formatted("rank {} (", gone.rank)) != std::string::npos) return gone;
  }
  return std::nullopt;
}

}  // namespace nitinol
