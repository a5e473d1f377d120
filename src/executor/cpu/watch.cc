#include "executor/cpu/watch.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "base/error.h"
#include "base/host.h"

namespace nitinol::cpu {
namespace {

const char* words_for(ProcessState state) {
  switch (state) {
    case ProcessState::kRunning: return "its process is alive";
    case ProcessState::kStopped: return "its process is stopped (SIGSTOP, or a debugger)";
    case ProcessState::kDead: return "its process is dead";
    case ProcessState::kUnknown: return "its process cannot be seen from here";
  }
  return "";
}

}  // namespace

ProcessState process_state(int pid) {
  std::ifstream file(formatted("/proc/{}/stat", pid));
  std::string line;
  if (!file || !std::getline(file, line)) {
    return kill(pid, 0) != 0 && errno == ESRCH ? ProcessState::kDead : ProcessState::kUnknown;
  }
  const size_t end_of_name = line.rfind(')');
  if (end_of_name == std::string::npos || end_of_name + 2 >= line.size()) return ProcessState::kUnknown;
  switch (line[end_of_name + 2]) {
    case 'T':
    case 't': return ProcessState::kStopped;
    case 'Z':
    case 'X': return ProcessState::kDead;
    default: return ProcessState::kRunning;
  }
}

std::string describe(int rank, const Arena& arena) {
  return formatted("rank {} (host {}, pid {}, device {})", rank, host_name(), arena.header().pid,
                   arena.header().device);
}

std::string describe_doings(int rank, const Arena& arena, bool same_process) {
  const ProcessState state = same_process ? ProcessState::kRunning : process_state(arena.header().pid);
  const Records& records = arena.header().records;
  const uint64_t last = records.begun();
  const bool running = records.ended() < last;
  const auto signature = records.find(last);
  std::string doing =
      last == 0 ? "idle, it has not begun any collective" : formatted("its last collective was number {}", last);
  if (signature) doing = formatted("{} {}", running ? "it is in" : "idle, its last collective was", signature->text());
  if (arena.header().in_messages.load(std::memory_order_relaxed) != 0)
    doing += ", and in a group of sends and receives";
  return formatted("{}: {}; {}", describe(rank, arena), words_for(state), doing);
}

}  // namespace nitinol::cpu
