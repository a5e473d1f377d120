// Asks whether a rank's operations are through where nobody may wait for the answer: CUDA may keep it back while a call
// of another thread waits for just these operations.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

namespace nitinol {

class IdleQuestion {
 public:
  /// `idle` may be called after this object has gone. `device`: whose context it is asked in.
  IdleQuestion(std::function<bool()> idle, int device) : idle_(std::move(idle)), device_(device) {}

  enum class Answer { kNotAsked, kNotAnswered, kIdle, kBusy };
  /// The answer to the question that was asked last. Asks for the first time, and once more where that was idle. One
  /// thread at a time. Throws std::system_error if no thread can be started.
  Answer ask_again();

 private:
  std::function<bool()> idle_;
  int device_;
  std::shared_ptr<std::atomic<Answer>> asked_;
};

}  // namespace nitinol
