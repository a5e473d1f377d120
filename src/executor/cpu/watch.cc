#include "executor/cpu/watch.h"

#include "base/error.h"
#include "base/host.h"
#include "base/process_state.h"

namespace nitinol::cpu {

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
