#include "failing_allocation.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace nitinol::testing {
namespace {

constexpr int kNever = -1;
constinit std::atomic<bool> armed{false};
constinit std::atomic<bool> everywhere{false};
constinit std::atomic<int> left{kNever};  // before the one that fails
constinit std::atomic<bool> all{false};   // behind it, too
constinit thread_local bool t_concerned = false;

bool is_the_one() {
  if (!armed.load(std::memory_order_relaxed) || !(t_concerned || everywhere)) return false;
  int now = left;
  while (now != kNever && !left.compare_exchange_weak(now, now - 1)) {
  }
  return now == 0 || (now == kNever && all);
}

}  // namespace

FailingAllocation::FailingAllocation(int nth, FailsIn where, Fails which) {
  t_concerned = true;
  everywhere = where == FailsIn::kEveryThread;
  all = which == Fails::kAllFromThere;
  left = nth;
  armed = true;
}

FailingAllocation::~FailingAllocation() {
  armed = false;
  t_concerned = false;
}

bool FailingAllocation::has_failed() const { return left == kNever; }

}  // namespace nitinol::testing

void* operator new(std::size_t size) {
  void* const memory = nitinol::testing::is_the_one() ? nullptr : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
/// AddressSanitizer has one of its own, whose memory the following must not free.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return nitinol::testing::is_the_one() ? nullptr : std::malloc(size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
