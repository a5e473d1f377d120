// Processes of this test that run, are stopped, and end.
#include "base/process_state.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

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

}  // namespace
}  // namespace nitinol
