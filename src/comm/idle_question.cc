#include "comm/idle_question.h"

#include <thread>
#include <utility>

#include "base/thread_name.h"
#include "device/guards.h"

namespace nitinol {
namespace {

using Answer = IdleQuestion::Answer;

void answer(const std::function<bool()>& idle, int device, std::atomic<Answer>& into) noexcept {
  try {
    set_thread_name("nitinol-idle");
    const PrimaryContextGuard primary(device);
    into.store(idle() ? Answer::kIdle : Answer::kBusy);
  } catch (const std::exception&) {  // CUDA is of no more use
    into.store(Answer::kBusy);
  }
}

}  // namespace

Answer IdleQuestion::ask_again() {
  const Answer last = asked_ ? asked_->load() : Answer::kNotAsked;
  if (last == Answer::kBusy || last == Answer::kNotAnswered) return last;
  asked_ = std::make_shared<std::atomic<Answer>>(Answer::kNotAnswered);
  std::thread([idle = idle_, device = device_, asked = asked_] { answer(idle, device, *asked); }).detach();
  return last;
}

}  // namespace nitinol
