#include "executor/cpu/watch.h"

#include "base/host.h"

namespace nitinol::cpu {

std::string describe(int rank, const Arena& arena) {
  return describe_rank(rank, host_name(), arena.header().pid, arena.header().device);
}

Doings look_at(const Arena& arena) {
  const OperationTimes& calls = arena.header().calls;
  Doings doings;
  doings.begun = calls.begun();
  doings.running = calls.ended() < doings.begun;
  doings.last = calls.find(doings.begun);
  doings.in_messages = arena.header().in_messages.load(std::memory_order_relaxed) != 0;
  doings.stopped = arena.header().aborted.load() != 0;
  return doings;
}

std::string describe_doings(int rank, const Arena& arena, bool same_process) {
  Doings doings = look_at(arena);
  doings.process = same_process ? ProcessState::kRunning : process_state(arena.header().pid);
  return doings_text(describe(rank, arena), doings);
}

}  // namespace nitinol::cpu
