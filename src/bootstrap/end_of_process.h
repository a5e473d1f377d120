// A process that ends by exit(), or by the return of main, is no crash: who is left in a communicator then says so.
#pragma once

#include <memory>

namespace nitinol {

class EndOfProcess {
 public:
  virtual ~EndOfProcess() = default;
  /// On the thread that ends the process, once all else of the program has ended, objects of static duration included;
  /// other threads may still run.
  virtual void on_end_of_process() noexcept = 0;
};

/// Whoever is told of the end of a process, but not of that of its forked children. Throws std::bad_alloc.
void tell_of_end_of_process(const std::shared_ptr<EndOfProcess>& listener);

}  // namespace nitinol
