// Reads /proc.
#include "base/process_state.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
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

/// Of a process or a thread, from its file `stat`; nothing if there is none.
std::optional<ProcessState> state_in(const std::string& stat_file) {
  std::ifstream file(stat_file);
  std::string line;
  if (!file || !std::getline(file, line)) return std::nullopt;
  const std::size_t end_of_name = line.rfind(')');
  if (end_of_name == std::string::npos || end_of_name + 2 >= line.size()) return ProcessState::kUnknown;
  switch (line[end_of_name + 2]) {
    case 'T':
    case 't': return ProcessState::kStopped;
    case 'Z':
    case 'X': return ProcessState::kDead;
    default: return ProcessState::kRunning;
  }
}

/// One whose first thread alone has ended looks as if it were dead as a whole.
ProcessState state_of_threads(int pid) {
  std::error_code ended;
  for (std::filesystem::directory_iterator thread(formatted("/proc/{}/task", pid), ended), end; !ended && thread != end;
       thread.increment(ended)) {
    const ProcessState state = state_in(thread->path() / "stat").value_or(ProcessState::kDead);
    if (state != ProcessState::kDead) return state;
  }
  return ProcessState::kDead;
}

}  // namespace

ProcessState process_state(int pid, std::uint64_t in_namespace) {
  if (in_namespace != pid_namespace()) return ProcessState::kUnknown;
  const auto state = state_in(formatted("/proc/{}/stat", pid));
  if (!state) return kill(pid, 0) != 0 && errno == ESRCH ? ProcessState::kDead : ProcessState::kUnknown;
  return *state == ProcessState::kDead ? state_of_threads(pid) : *state;
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
