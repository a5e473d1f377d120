#include "executor/cpu/occupancy.h"

#include <vgpu.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/registry.h"
#include "executor/cpu/host_waits.h"

namespace nitinol::cpu {

namespace {

/// The ranks of this process.
Registry<Occupancy>& registry() { return Registry<Occupancy>::of_process(); }

}  // namespace

Occupancy::Occupancy(std::shared_ptr<Arena> own, int rank, std::array<uint64_t, 2> identity, Asking asking)
    : own_(std::move(own)),
      rank_(rank),
      identity_(identity),
      asking_(std::move(asking)),
      counts_(own_->header().launches) {
  const std::lock_guard lock(registry().mutex);
  registry().all.push_back(this);
}

Occupancy::~Occupancy() {
  const std::lock_guard lock(registry().mutex);
  std::erase(registry().all, this);
  for (Occupancy* const other : registry().all) {
    if (other->teller_ == this || other->teller_ == &asking_) other->tell_free();
  }
}

void Occupancy::issue_elsewhere(const LaunchStreams& streams, uint64_t number) {
  const StreamName& stream = streams.main;
  if (!stream.known()) return capture();
  std::unique_lock<std::mutex> lock;
  if (!streams.joined.empty() || !joined_.empty()) lock = std::unique_lock(registry().mutex);
  const bool same = stream == StreamName{stream_.load(), device_.load()} && streams.joined == joined_;
  // In this order: whoever sees the stream sees since when.
  if (!same) first_there_.store(number);
  if (lock.owns_lock()) joined_ = streams.joined;  // else both are empty
  device_.store(stream.device);
  stream_.store(stream.id);
  counts_.issued.store(number, std::memory_order_release);
}

/// Whether all that the rank has still to run stands behind a launch that runs in the streams: what was put into them
/// earlier has run. The caller has the registry's lock.
bool Occupancy::waits_behind(const LaunchStreams& streams) const {
  if (counts_.captured.load() != 0) return false;
  const uint64_t issued = counts_.issued.load();
  const auto holds = [&streams](const StreamName& name) { return streams.hold(name); };
  const bool there = holds({stream_.load(), device_.load()}) || std::any_of(joined_.begin(), joined_.end(), holds);
  const uint64_t first = first_there_.load();
  const uint64_t begun = counts_.begun.load();
  const bool runs = counts_.ended.load() != begun;
  return there && !runs && begun < issued && begun + 1 >= first && counts_.issued.load() == issued;
}

void Occupancy::hold_up_others(uint64_t label, const Call& call) {
  const auto thread = thread_that_waits_for_launch();
  const bool host_waits = thread && std::exchange(waiting_thread_, thread) == thread;
  if (!thread) waiting_thread_.reset();
  const HeldProgram held{label, {identity_, rank_, call.collective, call.message}};
  told_of_program_ = told_of_program_ || host_waits;
  if (asking_.program_waits) asking_.program_waits(host_waits ? &held : nullptr);
  const std::lock_guard lock(registry().mutex);
  for (Occupancy* const other : registry().all) {
    if (other == this) continue;
    const bool behind = runs_in_->main.known() && other->waits_behind(*runs_in_);
    const bool uncalled = host_waits && other->all_through();
    if (behind || uncalled) other->tell_held_up(held, this, uncalled);
    if (!behind && !uncalled && other->teller_ == this) other->tell_free();
  }
}

/// The program's one thread, if it waits for any of the streams. Graphs run what they hold in that of their launch, but
/// for what may run beside that: whoever waits for the graph waits for its streams in turn.
std::optional<int> Occupancy::thread_that_waits_for_launch() const {
  if (!runs_in_->main.known()) return only_thread_if_it_waits_for({vgpuRunningStream(), own_->header().device});
  auto thread = only_thread_if_it_waits_for(runs_in_->main);
  for (const StreamName& joined : runs_in_->joined) {
    if (!thread) thread = only_thread_if_it_waits_for(joined);
  }
  return thread;
}

bool Occupancy::all_through() const {
  if (counts_.captured.load() != 0) return asking_.idle && asking_.idle();
  return counts_.ended.load() == counts_.issued.load();
}

void Occupancy::let_others_go() {
  waiting_thread_.reset();
  if (std::exchange(told_of_program_, false) && asking_.program_waits) asking_.program_waits(nullptr);
  const std::lock_guard lock(registry().mutex);
  for (Occupancy* const other : registry().all) {
    if (other->teller_ == this) other->tell_free();
  }
}

void Occupancy::hold_up_program(const HeldProgram& held) {
  const std::lock_guard lock(registry().mutex);
  for (Occupancy* const each : registry().all) {
    if (each->all_through()) {
      each->tell_held_up(held, &asking_, true);
    } else if (each->teller_ == &asking_) {
      each->tell_free();
    }
  }
}

void Occupancy::let_program_go() {
  const std::lock_guard lock(registry().mutex);
  for (Occupancy* const each : registry().all) {
    if (each->teller_ == &asking_) each->tell_free();
  }
}

void Occupancy::tell_held_up(const HeldProgram& held, const void* teller, bool on_host) {
  own_->header().held_on_host.store(on_host ? 1 : 0);
  own_->header().holder.tell(held.label, held.holder);
  teller_ = teller;
}

void Occupancy::tell_free() {
  own_->header().holder.label.clear();
  teller_ = nullptr;
}

}  // namespace nitinol::cpu
