// Runs cases in processes of their own, several at a time.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>

#include "cluster.h"
#include "fault_cases.h"

namespace nitinol::testing {
namespace {

/// For a case: run_processes gives up before that.
constexpr std::chrono::milliseconds kMostTime = kMostTimeOfProcesses + std::chrono::seconds(20);

/// A case in a process group of its own, and where it writes what went wrong.
struct Running {
  Case c;
  pid_t pid = -1;
  int output = -1;
};

Running start(const Case& c) {
  Running running{c};
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  running.pid = fork();
  if (running.pid == 0) {
    setpgid(0, 0);
    const std::string text = run_case(c);
    const bool written = write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  running.output = ends[0];
  return running;
}

std::string finish(const Running& running) {
  std::string text;
  char buffer[4096];
  pollfd waiting{running.output, POLLIN, 0};
  const bool ended = poll(&waiting, 1, static_cast<int>(kMostTime.count())) == 1;
  if (!ended) {
    text = name_of(running.c) + ": it hangs\n";
    kill(-running.pid, SIGKILL);
  }
  for (ssize_t got; ended && (got = read(running.output, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  close(running.output);
  int status = 0;
  waitpid(running.pid, &status, 0);
  if (ended && status != 0) text += name_of(running.c) + ": its runner ended with status " + std::to_string(status);
  return text;
}

}  // namespace

std::string run_cases(const std::vector<Case>& cases, size_t at_once) {
  std::string text;
  std::vector<Running> running;
  for (const Case& c : cases) {
    if (outcome_of(c) == Outcome::kNoCase) continue;
    if (running.size() == at_once) {
      text += finish(running.front());
      running.erase(running.begin());
    }
    running.push_back(start(c));
  }
  for (const Running& each : running) text += finish(each);
  return text;
}

}  // namespace nitinol::testing
