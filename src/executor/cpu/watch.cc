#include "executor/cpu/watch.h"

#include "base/host.h"
#include "executor/call_words.h"

namespace nitinol::cpu {

std::string describe(int rank, const Arena& arena) {
  return describe_rank(rank, host_name(), arena.header().pid, arena.header().device);
}

std::string describe_doings(int rank, const Arena& arena, bool same_process) {
  const OperationTimes& calls = arena.header().calls;
  Doings doings;
  doings.process = same_process ? ProcessState::kRunning : process_state(arena.header().pid);
  doings.begun = calls.begun();
  doings.running = calls.ended() < doings.begun;
  doings.last = calls.find(doings.begun);
  doings.in_messages = arena.header().in_messages.load(std::memory_order_relaxed) != 0;
  return doings_text(describe(rank, arena), doings);
}

}  // namespace nitinol::cpu
