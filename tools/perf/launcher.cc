// Fork and exec of this program, once per process, each with its ends of the sockets that connect it to process 0.
#include "launcher.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "channel.h"
#include "library.h"

namespace nitinol::perf {
namespace {

// hub[i] and leaf[i] are the two ends between process 0 and process i + 1.
struct Star {
  std::vector<Socket> hub;
  std::vector<Socket> leaf;
};

Star make_star(int processes) {
  Star star;
  for (int i = 1; i < processes; ++i) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      throw PerfError(std::string("socketpair: ") + std::strerror(errno));
    }
    star.hub.emplace_back(ends[0]);
    star.leaf.emplace_back(ends[1]);
  }
  return star;
}

std::vector<int> sockets_of(const Star& star, int process) {
  if (process != 0) return {star.leaf[static_cast<size_t>(process - 1)].get()};
  std::vector<int> fds;
  for (const Socket& socket : star.hub) fds.push_back(socket.get());
  return fds;
}

pid_t start(int process, int processes, const Star& star, const std::vector<char*>& arguments) {
  const std::vector<int> fds = sockets_of(star, process);
  std::string worker = std::to_string(process) + " " + std::to_string(processes);
  for (const int fd : fds) worker += " " + std::to_string(fd);
  std::string option = "--worker=" + worker;
  std::vector<char*> full = arguments;
  full.push_back(option.data());
  full.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw PerfError(std::string("fork: ") + std::strerror(errno));
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(2);
  for (const int fd : fds) fcntl(fd, F_SETFD, 0);
  execv("/proc/self/exe", full.data());
  _exit(127);
}

int code_of(int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return 2;
}

void describe_death(int process, int status) {
  if (WIFSIGNALED(status)) {
    std::fprintf(stderr, "nitinol-perf: process %d was killed by signal %d (%s)\n", process, WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
  }
}

// Reaps all; after the first failure the others get a moment to say what they saw, then they are ended. A program that
// became this one by exec may have left others' children.
int wait_for(std::vector<pid_t>& pids) {
  using Clock = std::chrono::steady_clock;
  int code = 0;
  bool ending = false;
  Clock::time_point deadline;
  size_t left = pids.size();
  while (left > 0) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, code > 1 ? WNOHANG : 0);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) throw PerfError(std::string("waitpid: ") + std::strerror(errno));
    if (pid > 0) {
      const auto own = std::ranges::find(pids, pid);
      if (own == pids.end()) continue;
      *own = 0;
      if (!ending) describe_death(static_cast<int>(own - pids.begin()), status);
      --left;
      if (code == 0 || (code == 1 && code_of(status) > 1)) code = code_of(status);
      if (code > 1 && deadline == Clock::time_point()) deadline = Clock::now() + std::chrono::seconds(2);
      continue;
    }
    if (!ending && Clock::now() > deadline) {
      ending = true;
      for (const pid_t other : pids) {
        if (other > 0) kill(other, SIGKILL);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return code;
}

}  // namespace

int launch_processes(int processes, int argc, char** argv) {
  const std::vector<char*> arguments(argv, argv + argc);
  std::signal(SIGCHLD, SIG_DFL);  // whoever started this may have had it ignored, and then nobody learns how they end
  std::vector<pid_t> pids;
  {
    const Star star = make_star(processes);
    for (int i = 0; i < processes; ++i) pids.push_back(start(i, processes, star, arguments));
  }
  return wait_for(pids);
}

}  // namespace nitinol::perf
