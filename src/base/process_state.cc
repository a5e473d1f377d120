// Reads /proc.
#include "base/process_state.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/host.h"

namespace nitinol {

// Not kept: a child of a process that has gone on in another namespace (unshare) is in that one.
std::uint64_t pid_namespace() {
  struct stat found {};
  return stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

// Children in namespaces of their own may have one number.
std::uint64_t of_this_process(std::uint64_t drawn) {
  return drawn ^ stable_hash(formatted("{} {}", getpid(), pid_namespace()));
}

namespace {

// Flags of a thread (linux/sched.h): PF_EXITING, PF_SIGNALED.
constexpr unsigned kIsExiting = 0x4;
constexpr unsigned kWasKilled = 0x400;  // with all of its process

struct Task {
  char state = ' ';
  unsigned flags = 0;

  bool has_ended() const { return state == 'Z' || state == 'X'; }
  bool was_killed() const { return (flags & kWasKilled) != 0; }
  bool is_exiting() const { return has_ended() || (flags & (kIsExiting | kWasKilled)) != 0; }
  bool is_stopped() const { return state == 'T' || state == 't'; }
};

/// A process's first thread, or another, from its file `stat`; nothing if there is none.
std::optional<Task> task_in(const std::string& stat_file) {
  std::ifstream file(stat_file);
  std::string line;
  if (!file || !std::getline(file, line)) return std::nullopt;
  Task task;
  const std::size_t end_of_name = line.rfind(')');
  if (end_of_name == std::string::npos) return task;
  int none = 0;
  std::istringstream fields(line.substr(end_of_name + 1));
  fields >> task.state >> none >> none >> none >> none >> none >> task.flags;
  return task;
}

/// Of one whose first thread has ended, and perhaps by itself.
ProcessState state_of_threads(int pid) {
  std::error_code ended;
  for (std::filesystem::directory_iterator thread(formatted("/proc/{}/task", pid), ended), end; !ended && thread != end;
       thread.increment(ended)) {
    const auto task = task_in(thread->path() / "stat");
    if (task && !task->is_exiting()) return task->is_stopped() ? ProcessState::kStopped : ProcessState::kRunning;
  }
  return ProcessState::kDead;
}

}  // namespace

ProcessState process_state(int pid, std::uint64_t in_namespace) {
  if (in_namespace != pid_namespace()) return ProcessState::kUnknown;
  const auto first = task_in(formatted("/proc/{}/stat", pid));
  if (!first) return kill(pid, 0) != 0 && errno == ESRCH ? ProcessState::kDead : ProcessState::kUnknown;
  if (first->is_exiting()) return first->was_killed() ? ProcessState::kDead : state_of_threads(pid);
  return first->is_stopped() ? ProcessState::kStopped : ProcessState::kRunning;
}

const char* words_for(ProcessState state) {
  switch (state) {
    case ProcessState::kRunning: return "its process is alive";
    case ProcessState::kStopped: return "its process is stopped (SIGSTOP, or a debugger)";
    case ProcessState::kDead: return "its process is dead";
    case ProcessState::kUnknown: return "its process cannot be seen from here";
  }
  return "";
}

}  // namespace nitinol
