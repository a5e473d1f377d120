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
  doings.reaching = arena.header().reaching.load() != 0;
  doings.stopped = arena.header().aborted.load() != 0;
  look_at_launches(arena.header(), doings);
  return doings;
}

std::string describe_doings(int rank, const Arena& arena, bool same_process) {
  Doings doings = look_at(arena);
  doings.process =
      same_process ? ProcessState::kRunning : process_state(arena.header().pid, arena.header().pid_namespace);
  return doings_text(describe(rank, arena), doings);
}

namespace {

/// What the owner tells whoever looks for circles. Nothing if its group of messages ends meanwhile.
std::vector<PeerMessage> awaited_messages(const Arena& arena, int ranks) {
  std::vector<PeerMessage> all;
  const uint64_t group = arena.header().waits_in.load();
  if (group == 0) return all;
  for (int peer = 0; peer < ranks; ++peer) {
    const Connection& from = arena.from(peer, Lane::kMessages);
    const uint32_t what = from.awaited.load();
    if ((what & kAwaitsFilled) != 0) all.push_back({.sends = false, .peer = peer, .message = from.receives.read()});
    if ((what & kAwaitsFreed) != 0) all.push_back({.sends = true, .peer = peer, .message = from.sends.read()});
  }
  return arena.header().waits_in.load() == group ? all : std::vector<PeerMessage>{};
}

}  // namespace

Executor::Passed passed_of(const Arena& arena, int ranks) {
  Executor::Passed passed;
  passed.awaited = awaited_messages(arena, ranks);
  const LaunchCounts& launches = arena.header().launches;
  const uint64_t ended = launches.ended.load();
  const uint64_t begun = launches.begun.load();
  if (launches.captured.load() != 0) return passed;
  passed.launches = ended;
  passed.begun = begun;
  return passed;
}

}  // namespace nitinol::cpu
