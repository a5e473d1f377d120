// An allocation by operator new that fails. Only for test programs that link nitinol_failing_allocation, which replaces
// that operator.
#pragma once

#include <exception>

namespace nitinol::testing {

enum class FailsIn { kThisThread, kEveryThread };
enum class Fails { kOne, kAllFromThere };

/// Until it goes, the `nth` allocation (from 0) throws std::bad_alloc, and no other unless all behind it are to do so:
/// whatever the program does is to survive that. One at a time.
class FailingAllocation {
 public:
  explicit FailingAllocation(int nth, FailsIn where = FailsIn::kThisThread, Fails which = Fails::kOne);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;

  /// Whether there were so many allocations.
  bool has_failed() const;
};

/// Runs `action` again and again, with its first allocation failing, with its second, until it needs no more. What it
/// throws is dropped.
template <class Action>
void fail_each_allocation_of(const Action& action) {
  bool failed = true;
  for (int nth = 0; failed; ++nth) {
    const FailingAllocation failing(nth);
    try {
      action();
    } catch (const std::exception&) {
    }
    failed = failing.has_failed();
  }
}

}  // namespace nitinol::testing
