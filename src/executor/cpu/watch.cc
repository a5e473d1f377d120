#include "executor/cpu/watch.h"

#include "base/host.h"

namespace nitinol::cpu {

std::string describe(int rank, const Arena& arena) {
  return describe_rank(rank, host_name(), arena.header().pid, arena.header().device);
}

namespace {

/// What does not run may still stand in its stream. Of graphs that is not known.
void look_at_launches(const ArenaHeader& header, Doings& doings) {
  const bool any_in_graphs = header.launches.captured.load() != 0;
  const bool runs = doings.in_messages || *doings.running;
  if (!runs && any_in_graphs) doings.running.reset();
  if (!any_in_graphs) doings.launches_ended = header.launches.ended.load();
  const uint64_t issued = header.launches.issued.load();
  const uint64_t begun = header.launches.begun.load();
  doings.launches_held = begun < issued ? issued - begun : 0;
  const bool held_in_stream = header.holder.label.look() && header.held_on_host.load() == 0;
  if (doings.launches_held > 0 && held_in_stream) doings.holder = header.holder.holder();
}

}  // namespace

Doings look_at(const Arena& arena) {
  const OperationTimes& calls = arena.header().calls;
  Doings doings;
  doings.begun = calls.begun();
  doings.running = calls.ended() < doings.begun;
  doings.last = calls.find(doings.begun);
  doings.in_messages = arena.header().in_messages.load(std::memory_order_relaxed) != 0;
  doings.stopped = arena.header().aborted.load() != 0;
  look_at_launches(arena.header(), doings);
  return doings;
}

std::string describe_doings(int rank, const Arena& arena, bool same_process) {
  Doings doings = look_at(arena);
  doings.process = same_process ? ProcessState::kRunning : process_state(arena.header().pid);
  return doings_text(describe(rank, arena), doings);
}

}  // namespace nitinol::cpu
