#include "base/last_error.h"

#include <atomic>
#include <deque>
#include <mutex>
#include <string>

#include "base/fork_safe.h"

namespace nitinol {
namespace {

constexpr std::size_t kKept = 1000;

struct Sentences {
  std::mutex mutex;
  std::deque<std::string>
      kept;  // newest last; a deque's push and pop at its ends leave the other strings where they are
};

// Never destroyed: the pointers that programs hold must survive static destruction.
Sentences& sentences() {
  static Sentences& instance = make_free_across_forks<Sentences>();
  return instance;
}

std::atomic<const char*> latest{""};

const char* keep_locked(Sentences& all, std::string_view sentence) {
  all.kept.emplace_back(sentence);
  if (all.kept.size() > kKept + 1) all.kept.pop_front();
  return all.kept.back().c_str();
}

}  // namespace

void set_last_error(std::string_view sentence) {
  Sentences& all = sentences();
  const std::lock_guard lock(all.mutex);
  if (latest.load(std::memory_order_relaxed) == sentence) return;  // as from a loop that tries again
  latest.store(keep_locked(all, sentence), std::memory_order_release);
}

void set_last_error_text(const char* text) noexcept { latest.store(text, std::memory_order_release); }

const char* last_error() { return latest.load(std::memory_order_acquire); }

}  // namespace nitinol
