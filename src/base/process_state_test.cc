// Processes of this test that run, are stopped, and end.
#include "base/process_state.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <system_error>
#include <thread>

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

/// A child with other threads.
pid_t forked_with_threads(int threads, const std::function<void()>& first_goes_on) {
  const pid_t child = fork();
  if (child != 0) return child;
  for (int i = 0; i < threads; ++i) {
    std::thread([] {
      while (true) pause();
    }).detach();
  }
  first_goes_on();
  _exit(1);
}

std::ptrdiff_t threads_of(pid_t process) {
  std::error_code none;
  const std::filesystem::directory_iterator threads("/proc/" + std::to_string(process) + "/task", none);
  return std::distance(begin(threads), end(threads));
}

void wait_until_first_thread_has_ended(pid_t child) {
  const std::string stat = "/proc/" + std::to_string(child) + "/stat";
  for (std::string line; line.find(") Z ") == std::string::npos;) {
    std::ifstream file(stat);
    std::getline(file, line);
  }
}

TEST(ProcessState, IsThatOfTheOtherThreadsWhereTheFirstHasEnded) {
  const pid_t child = forked_with_threads(1, [] { syscall(SYS_exit, 0); });  // of this thread alone
  wait_until_first_thread_has_ended(child);
  EXPECT_EQ(process_state(child, pid_namespace()), ProcessState::kRunning);
  kill(child, SIGSTOP);
  while (process_state(child, pid_namespace()) == ProcessState::kRunning) std::this_thread::yield();
  EXPECT_EQ(process_state(child, pid_namespace()), ProcessState::kStopped);
  kill(child, SIGKILL);
  siginfo_t died;
  waitid(P_PID, static_cast<id_t>(child), &died, WEXITED | WNOWAIT);
  EXPECT_EQ(process_state(child, pid_namespace()), ProcessState::kDead);
  waitpid(child, nullptr, 0);
}

/// Threads that are in the driver take seconds.
TEST(ProcessState, IsDeadOfOneThatWasKilledWhoseThreadsEndLater) {
  for (int i = 0; i < 20; ++i) {
    const pid_t child = forked_with_threads(50, [] {
      while (true) pause();
    });
    while (threads_of(child) < 51) std::this_thread::yield();
    kill(child, SIGKILL);
    wait_until_first_thread_has_ended(child);
    EXPECT_EQ(process_state(child, pid_namespace()), ProcessState::kDead);
    waitpid(child, nullptr, 0);
  }
}

TEST(ProcessState, IsUnknownOfAnotherNamespace) {
  EXPECT_NE(pid_namespace(), 0U);
  EXPECT_EQ(process_state(getpid(), pid_namespace() + 1), ProcessState::kUnknown);
}

/// The child of a fork, as long as this lives, and the number which it has of one that its parent has drawn.
class ChildWithNumber {
 public:
  /// Runs its argument in that child, or in one that it has itself.
  using Place = std::function<void(const std::function<void()>& tell_and_stay)>;

  explicit ChildWithNumber(const Place& in_child) {
    int told[2];
    int staying[2];
    EXPECT_EQ(pipe(told), 0);
    EXPECT_EQ(pipe(staying), 0);
    child_ = fork();
    if (child_ == 0) {
      close(staying[1]);
      in_child([&] {
        const std::uint64_t number = of_this_process(kDrawn);
        if (write(told[1], &number, sizeof(number)) != sizeof(number)) _exit(1);
        char none = 0;
        _exit(read(staying[0], &none, sizeof(none)) == 0 ? 0 : 1);
      });
      _exit(1);
    }
    close(told[1]);
    close(staying[0]);
    may_leave_ = staying[1];
    EXPECT_EQ(read(told[0], &number_, sizeof(number_)), static_cast<ssize_t>(sizeof(number_)));
    close(told[0]);
  }
  ~ChildWithNumber() {
    close(may_leave_);
    waitpid(child_, nullptr, 0);
  }
  ChildWithNumber(const ChildWithNumber&) = delete;
  ChildWithNumber& operator=(const ChildWithNumber&) = delete;

  std::uint64_t number() const { return number_; }

  static constexpr std::uint64_t kDrawn = 17;

 private:
  pid_t child_ = -1;
  int may_leave_ = -1;
  std::uint64_t number_ = 0;
};

TEST(OfThisProcess, AreNumbersThatStayAndThatChildrenDoNotShare) {
  constexpr std::uint64_t kDrawn = ChildWithNumber::kDrawn;
  EXPECT_EQ(of_this_process(kDrawn), of_this_process(kDrawn));
  EXPECT_NE(of_this_process(kDrawn), of_this_process(kDrawn + 1));
  const ChildWithNumber child([](const auto& tell_and_stay) { tell_and_stay(); });
  EXPECT_NE(of_this_process(kDrawn), child.number());
}

// At the same time: the system gives the number of a namespace that has ended to the next one.
TEST(OfThisProcess, AreNumbersThatChildrenInContainersDoNotShare) {
  if (testing::kAddressSanitizer) GTEST_SKIP() << "its look for leaks needs a process that this one can see";
  if (!testing::there_are_containers()) GTEST_SKIP() << "this system lets us have no processes of our own";
  const auto contained = [](const auto& tell_and_stay) { testing::status_in_a_container(tell_and_stay); };
  const ChildWithNumber one(contained);  // as process 1, as the next one is
  const ChildWithNumber other(contained);
  EXPECT_NE(one.number(), other.number());
}

}  // namespace
}  // namespace nitinol
