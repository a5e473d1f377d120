#include "comm/idle_question.h"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>
#include <thread>

namespace nitinol {
namespace {

using Answer = IdleQuestion::Answer;

Answer answer_to(IdleQuestion& question) {
  Answer last = question.ask_again();
  while (last == Answer::kNotAsked || last == Answer::kNotAnswered) {
    std::this_thread::yield();
    last = question.ask_again();
  }
  return last;
}

TEST(IdleQuestion, IsAnsweredLater) {
  std::promise<bool> idle;
  IdleQuestion question([answer = std::make_shared<std::future<bool>>(idle.get_future())] { return answer->get(); }, 0);
  EXPECT_EQ(question.ask_again(), Answer::kNotAsked);
  EXPECT_EQ(question.ask_again(), Answer::kNotAnswered);
  idle.set_value(false);
  EXPECT_EQ(answer_to(question), Answer::kBusy);
}

TEST(IdleQuestion, IsAskedOnceMoreWhenTheAnswerWasYes) {
  std::atomic<int> asked{0};
  IdleQuestion question([&] { return ++asked < 3; }, 0);
  EXPECT_EQ(answer_to(question), Answer::kIdle);
  EXPECT_EQ(answer_to(question), Answer::kIdle);
  EXPECT_EQ(answer_to(question), Answer::kBusy);
  EXPECT_EQ(question.ask_again(), Answer::kBusy);
  EXPECT_EQ(asked, 3);
}

TEST(IdleQuestion, ThatFailsIsAnsweredWithNo) {
  IdleQuestion question([]() -> bool { throw std::runtime_error("CUDA is of no more use"); }, 0);
  EXPECT_EQ(answer_to(question), Answer::kBusy);
}

TEST(IdleQuestion, MayBeAnsweredWhenWhoHasAskedIsGone) {
  std::promise<void> gone;
  std::promise<void> answered;
  {
    IdleQuestion question(
        [&] {
          gone.get_future().wait();
          answered.set_value();
          return true;
        },
        0);
    EXPECT_EQ(question.ask_again(), Answer::kNotAsked);
  }
  gone.set_value();
  answered.get_future().wait();
}

}  // namespace
}  // namespace nitinol
