// Processes of this test that run, are stopped, and end.
#include "base/process_state.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <functional>

#include "container.h"
#include "scarcity.h"

namespace nitinol {
namespace {

TEST(ProcessState, TellsRunningStoppedAndDead) {
  EXPECT_EQ(process_state(getpid(), pid_namespace()), ProcessState::kRunning);
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  EXPECT_EQ(process_state(child, pid_namespace()), ProcessState::kRunning);
  kill(child, SIGSTOP);
  waitpid(child, nullptr, WUNTRACED);
  EXPECT_EQ(process_state(child, pid_namespace()), ProcessState::kStopped);
  kill(child, SIGKILL);
  siginfo_t died;
  waitid(P_PID, static_cast<id_t>(child), &died, WEXITED | WNOWAIT);
  EXPECT_EQ(process_state(child, pid_namespace()), ProcessState::kDead);  // not yet reaped
  waitpid(child, nullptr, 0);
  EXPECT_EQ(process_state(child, pid_namespace()), ProcessState::kDead);
}

TEST(ProcessState, IsUnknownOfAnotherNamespace) {
  EXPECT_NE(pid_namespace(), 0U);
  EXPECT_EQ(process_state(getpid(), pid_namespace() + 1), ProcessState::kUnknown);
}

/// What `in_child` runs in the child of a fork tells of the number that the parent has drawn.
std::uint64_t number_in_child(const std::function<void(const std::function<void()>& tell)>& in_child) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    in_child([&] {
      const std::uint64_t number = of_this_process(17);
      if (write(ends[1], &number, sizeof(number)) != sizeof(number)) _exit(1);
    });
    _exit(0);
  }
  close(ends[1]);
  std::uint64_t number = 0;
  EXPECT_EQ(read(ends[0], &number, sizeof(number)), static_cast<ssize_t>(sizeof(number)));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return number;
}

TEST(OfThisProcess, AreNumbersThatStayAndThatChildrenDoNotShare) {
  const auto plainly = [](const std::function<void()>& tell) { tell(); };
  EXPECT_EQ(of_this_process(17), of_this_process(17));
  EXPECT_NE(of_this_process(17), of_this_process(18));
  EXPECT_NE(of_this_process(17), number_in_child(plainly));
}

TEST(OfThisProcess, AreNumbersThatChildrenInContainersDoNotShare) {
  if (testing::kAddressSanitizer) GTEST_SKIP() << "its look for leaks needs a process that this one can see";
  if (!testing::there_are_containers()) GTEST_SKIP() << "this system lets us have no processes of our own";
  const auto contained = [](const std::function<void()>& tell) { testing::status_in_a_container(tell); };
  const std::uint64_t one = number_in_child(contained);  // as process 1, as the next one is
  EXPECT_NE(one, number_in_child(contained));
}

}  // namespace
}  // namespace nitinol
