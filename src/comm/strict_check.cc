#include "comm/strict_check.h"

#include <algorithm>
#include <exception>

#include "base/run_together.h"
#include "base/settings.h"
#include "model/signature.h"

namespace nitinol {
namespace {

/// Peers are to know what this rank waits to call.
class Announcement {
 public:
  Announcement(Communicator& communicator, const CollectiveWork& work) : communicator_(communicator) {
    communicator.announce(&work);
  }
  ~Announcement() { communicator_.announce(nullptr); }
  Announcement(const Announcement&) = delete;
  Announcement& operator=(const Announcement&) = delete;

 private:
  Communicator& communicator_;
};

void compare_one(Communicator& communicator, const CollectiveWork& work) {
  const Signature mine = Signature::of(work, communicator.next_strict_check());
  const Announcement announcement(communicator, work);
  const std::vector<Signature> all =
      communicator.bootstrap().all_gather_value(mine, {Operation::kCompare, mine.text()});
  const auto other = std::find_if(all.begin(), all.end(), [&](const Signature& each) { return each != all.front(); });
  if (other == all.end()) return;
  fail(ncclInvalidUsage, "the ranks' calls do not match: rank 0 calls {}, rank {} calls {} (NITINOL_CHECK=strict)",
       all.front().text(), other - all.begin(), other->text());
}

void compare(std::span<const Task> tasks, Communicator& communicator) {
  const Communicator::Visit visit(communicator);
  try {
    for (const Task& task : tasks) {
      const auto* const collective = std::get_if<CollectiveWork>(&task.work);
      if (task.communicator == &communicator && collective != nullptr) compare_one(communicator, *collective);
    }
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

void compare_calls(std::span<const Task> tasks) {
  std::vector<Communicator*> communicators;
  for (const Task& task : tasks) {
    if (std::holds_alternative<MessageWork>(task.work) || task.communicator->ranks() == 1) continue;
    if (std::find(communicators.begin(), communicators.end(), task.communicator) != communicators.end()) continue;
    communicators.push_back(task.communicator);
  }
  std::vector<std::exception_ptr> errors(communicators.size());
  run_together(communicators.size(), [&](size_t i) {
    try {
      compare(tasks, *communicators[i]);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace nitinol
