#include "comm/strict_check.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "base/attendance.h"
#include "base/run_together.h"
#include "base/settings.h"
#include "comm/communicator.h"
#include "comm/strict_circle.h"
#include "executor/call_words.h"
#include "model/signature.h"

namespace nitinol {
namespace {

/// Word of a peer that carries out nothing any more waits for what that says itself.
constexpr std::chrono::milliseconds kPatienceWithStoppedPeer{1000};
constexpr std::chrono::milliseconds kBetweenLooksAtPeer{50};

/// Peers are to know what this rank waits to call.
class Announcement {
 public:
  struct Next {
    const CollectiveWork& work;
    const Signature& signature;
    bool captured = false;
  };
  Announcement(Communicator& communicator, const Next& next) : communicator_(communicator), captured_(next.captured) {
    if (!captured_) communicator.announce(&next.work);
    communicator.strict_board()->wait_to_call(&next.signature);
  }
  ~Announcement() {
    communicator_.strict_board()->wait_to_call(nullptr);
    if (!captured_) communicator_.announce(nullptr);
  }
  Announcement(const Announcement&) = delete;
  Announcement& operator=(const Announcement&) = delete;

 private:
  Communicator& communicator_;
  const bool captured_;
};

void compare_one(const Batch& batch, const CollectiveWork& work, bool captured, StrictCircle& circle) {
  Communicator& communicator = *batch.communicator;
  const Signature mine = Signature::of(work, communicator.next_strict_check());
  const Announcement announcement(communicator, {work, mine, captured});
  circle.wait_for(communicator, mine);
  const std::vector<Signature> all =
      communicator.bootstrap().all_gather_value(mine, {Operation::kCompare, mine.text()});
  const auto other = std::find_if(all.begin(), all.end(), [&](const Signature& each) { return each != all.front(); });
  if (other == all.end()) return;
  fail(ncclInvalidUsage, "the ranks' calls do not match: rank 0 calls {}, rank {} calls {} (NITINOL_CHECK=strict)",
       all.front().text(), other - all.begin(), other->text());
}

/// While a rank waits for the other end of a message: throws if it is to wait no more.
class Patience {
 public:
  explicit Patience(Communicator& communicator) : communicator_(communicator) {}

  void check(const StrictBoard::Unmatched& message, std::chrono::milliseconds waited) {
    communicator_.throw_if_stopped();
    const auto missed = attendance_.missed(Attendance::Clock::now());
    away_ += std::chrono::duration_cast<std::chrono::milliseconds>(missed);
    waited -= away_;
    if (waited < next_look_) return;
    next_look_ = waited + kBetweenLooksAtPeer;
    const int peer = message.work.peer;
    const DoingsOfRank doings = communicator_.doings_of(peer);
    if (!doings.stopped) stopped_since_.reset();
    if (doings.stopped && !stopped_since_) stopped_since_ = waited;
    const std::string who = communicator_.strict_board()->describe(peer);
    if (stopped_since_ && waited - *stopped_since_ >= kPatienceWithStoppedPeer) {
      give_up(stopped_sentence(communicator_.rank(), message.message().text(), who));
    }
    const std::chrono::milliseconds limit = communicator_.timeout();
    if (limit.count() <= 0 || waited < limit) return;
    give_up(formatted("rank {} waited {} ms (NITINOL_TIMEOUT) for {} to make the call that matches {}; {}{}{}",
                      communicator_.rank(), waited.count(), who, message.message().text(),
                      words_for(communicator_.strict_board()->process_of(peer)), doings.text.empty() ? "" : "; ",
                      doings.text));
  }

 private:
  [[noreturn]] void give_up(const std::string& sentence) const {
    fail(ncclRemoteError, "{}", communicator_.naming_the_stopped(sentence));
  }

  Communicator& communicator_;
  Attendance attendance_;
  std::chrono::milliseconds away_{};
  std::chrono::milliseconds next_look_ = kBetweenLooksAtPeer;
  std::optional<std::chrono::milliseconds> stopped_since_;
};

void compare(const Batch& batch, StrictCircle& circle) {
  Communicator& communicator = *batch.communicator;
  const Communicator::Visit visit(communicator, Communicator::Needs::kAllRanks);
  try {
    StrictBoard& board = *communicator.strict_board();
    const bool captured = batch.is_captured();
    auto unmatched = board.note(batch.launch.messages, captured);
    for (const CollectiveWork& each : batch.launch.collectives) compare_one(batch, each, captured, circle);
    circle.wait_for(communicator, unmatched);
    Patience patience(communicator);
    board.wait(std::move(unmatched), [&](const StrictBoard::Unmatched& message, std::chrono::milliseconds waited) {
      patience.check(message, waited);
    });
  } catch (const std::exception& thrown) {
    const Error error = as_error(thrown);
    communicator.fail_with(error.code(), error.what(), true);
    throw error;
  }
}

}  // namespace

bool checks_strictly() {
  static const bool strict = settings().text_if_set(Setting::kCheck).value_or("") == "strict" ||
                             settings().text_if_set(Setting::kCheckMode).value_or("") == "DEBUG_GLOBAL";
  return strict;
}

bool compares_calls() { return settings().text_if_set(Setting::kCheck).value_or("") != "off"; }

bool checks_strictly(const Communicator& communicator) { return checks_strictly() && communicator.ranks() > 1; }

void compare_calls(std::span<const Batch> batches) {
  std::vector<const Batch*> compared;
  for (const Batch& batch : batches) {
    if (checks_strictly(*batch.communicator)) compared.push_back(&batch);
  }
  if (compared.empty()) return;
  StrictCircle circle(compared);
  std::vector<std::exception_ptr> errors(compared.size());
  run_together(compared.size(), [&](size_t i) {
    try {
      compare(*compared[i], circle);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace nitinol
