#include "comm/group.h"

#include <cxxabi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "comm/carry_out.h"
#include "comm/departure.h"
#include "comm/estimate.h"
#include "device/run_together_on.h"

/// Stands for this library: it stays loaded while threads have to end what is theirs.
extern "C" __attribute__((visibility("hidden"))) void* __dso_handle;

namespace nitinol {
namespace {

struct State {
  int depth = 0;
  std::vector<Job> jobs;
  std::vector<Task> tasks;
  std::vector<std::shared_ptr<Communicator>> held;     ///< those of the tasks, which may be destroyed before the end
  std::vector<std::shared_ptr<Communicator>> leaving;  ///< those that are destroyed at its end
  ncclResult_t error = ncclSuccess;
  std::string sentence;  ///< what the error was
};

/// What a thread keeps from call to call.
struct ThreadState {
  State group;
  Batch batch;  ///< for its memory
};

/// What is checked of a group as a whole before any of it is done.
void check(const State& group, const char* function) {
  if (group.error != ncclSuccess) fail(group.error, "{}: a call inside the group failed: {}", function, group.sentence);
  if (!group.jobs.empty() && !group.tasks.empty()) {
    fail(ncclInvalidUsage, "{}: a group may not hold both communication and making or ending communicators", function);
  }
}

/// Of what the group has recorded; null if that is nothing.
const Communicator* first_communicator(const State& group) {
  if (!group.jobs.empty()) return group.jobs.front().communicator.get();
  return group.tasks.empty() ? nullptr : group.tasks.front().communicator;
}

/// The group is not carried out, so what other ranks call with its communicators waits for ever. An invalid argument is
/// the caller's alone: what was not touched stays usable.
void fail_communicators(const State& group, const Error& error) {
  const auto fail_one = [&](Communicator& communicator) {
    if (error.code() == ncclInvalidArgument) return communicator.note_failed_call(error);
    fail_communicator(communicator, error);
  };
  for (const Job& job : group.jobs) fail_one(*job.communicator);
  for (const Task& task : group.tasks) fail_one(*task.communicator);
}

/// The same, without taking memory where there is none.
void fail_for(const State& group, const std::exception& thrown) noexcept {
  try {
    return fail_communicators(group, as_error(thrown));
  } catch (const std::exception&) {  // now there is none
  }
  const std::bad_alloc lack;
  for (const Job& job : group.jobs) job.communicator->fail_because(lack);
  for (const Task& task : group.tasks) task.communicator->fail_because(lack);
}

/// Whether the group has more to do with it than to finalise it.
bool uses(const State& group, const Communicator& communicator) {
  const auto is_it = [&](const std::shared_ptr<Communicator>& other) { return other.get() == &communicator; };
  const bool in_jobs = std::any_of(group.jobs.begin(), group.jobs.end(), [&](const Job& job) {
    return is_it(job.made) || (is_it(job.communicator) && job.leads_to != Stage::kFinalising);
  });
  return in_jobs || std::any_of(group.held.begin(), group.held.end(), is_it);
}

/// At the same time, since other processes may destroy them in another order. Without threads one after the other.
void destroy_all(const std::vector<std::shared_ptr<Communicator>>& leaving) noexcept {
  const auto destroy_one = [&](size_t i) {
    try {
      destroy(leaving[i]);
    } catch (const std::exception&) {  // no memory for what goes on: it is left as it is
    }
  };
  try {
    run_together_on(
        leaving.size(), [&](size_t i) { return leaving[i]->device(); }, destroy_one);
  } catch (const std::exception&) {
    for (size_t i = 0; i < leaving.size(); ++i) destroy_one(i);
  }
}

/// Destroys what leaves with the group, however its end goes.
class Leaving {
 public:
  explicit Leaving(const State& group) : group_(group) {}
  ~Leaving() { destroy_all(group_.leaving); }
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;

 private:
  const State& group_;
};

/// Whether there are jobs, and nobody can ask any more how they go on.
bool all_have_left(const State& group) {
  return !group.jobs.empty() && std::all_of(group.jobs.begin(), group.jobs.end(), [&](const Job& job) {
    return std::find(group.leaving.begin(), group.leaving.end(), job.communicator) != group.leaving.end();
  });
}

/// The thread ends, and nobody will ever end its group. With the main thread ends the process, which others see (or
/// only the thread, by pthread_exit: that cannot be told apart). In a forked child, too, whose group is its parent's,
/// it is the main thread.
void abandon(const State& group) noexcept {
  if (gettid() == getpid()) return;
  destroy_all(group.leaving);
  try {
    const Error error(ncclInvalidUsage,
                      "a group was not carried out: its thread has ended without the call of ncclGroupEnd");
    drop_jobs(group.jobs, error);
    fail_communicators(group, error);
  } catch (const std::exception& lack) {  // no memory
    tell_of_drop(group.jobs, &lack);
  }
}

constinit thread_local ThreadState* t_state = nullptr;
/// Takes no memory: a thread's first call, which others may wait for, would fail before it knew whom to tell.
alignas(ThreadState) constinit thread_local std::array<std::byte, sizeof(ThreadState)> t_room{};

void end_thread_state(void*) {
  if (t_state->group.depth > 0) abandon(t_state->group);
  std::destroy_at(t_state);
  t_state = nullptr;
}

/// A thread that has ended its state may still call, out of another object's destructor, and starts a new one. An owner
/// in a thread_local would not be made again for that.
ThreadState& make_thread_state() {
  t_state = new (t_room.data()) ThreadState;
  abi::__cxa_thread_atexit(end_thread_state, nullptr, &__dso_handle);
  return *t_state;
}

/// Every call asks for it, several times: a pointer costs one look-up, an object with a constructor several.
ThreadState& thread_state() { return t_state != nullptr ? *t_state : make_thread_state(); }

State& state() { return thread_state().group; }

/// Of what the program groups itself; a call of its own ends at once.
bool outlasts_the_call(const State& group) { return group.depth > 1; }

/// Out of the way of a call that is no part of a group.
[[gnu::noinline]] void hold(State& group, Communicator& communicator) {
  const bool held = !group.held.empty() && group.held.back().get() == &communicator;
  if (!held) group.held.push_back(communicator.shared_from_this());
}

bool is_single_call(const State& group) {
  return group.tasks.size() == 1 && group.jobs.empty() && group.error == ncclSuccess && group.held.empty() &&
         group.leaving.empty();
}

/// The next group uses the memory of these tasks again.
void keep_memory(std::vector<Task>& tasks, State& next) {
  tasks.clear();
  if (next.tasks.empty()) next.tasks.swap(tasks);
}

/// Of more than a single call. The next group may use its memory again.
ncclResult_t end_outermost(State& group, State& next) {
  try {
    check(group, "ncclGroupEnd");
  } catch (const Error& error) {
    drop_jobs(group.jobs, error);
    fail_communicators(group, error);
    throw;
  } catch (const std::bad_alloc& lack) {
    drop_jobs(group.jobs, lack);
    fail_for(group, lack);
    throw;
  }
  if (!group.jobs.empty()) return run_jobs(group.jobs);
  try {
    const ncclResult_t result = carry_out(group.tasks, thread_state().batch);
    keep_memory(group.tasks, next);
    return result;
  } catch (const std::exception& thrown) {
    fail_for(group, thrown);  // perhaps only some have their calls
    throw;
  }
}

group::Simulated simulate_outermost(const State& group) {
  drop_jobs(group.jobs, Error(ncclInvalidUsage, "ncclGroupSimulateEnd: the call was not carried out"), true);
  check(group, "ncclGroupSimulateEnd");
  group::Simulated simulated{.outermost = true, .jobs = !group.jobs.empty()};
  if (!group.tasks.empty()) simulated.us = estimate(group.tasks);
  return simulated;
}

}  // namespace

namespace group {

void start() { ++state().depth; }

ncclResult_t end() {
  State& current = state();
  if (current.depth == 0) fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--current.depth > 0) return ncclSuccess;
  if (is_single_call(current)) {  // most calls
    std::vector<Task> tasks;
    tasks.swap(current.tasks);
    try {
      const ncclResult_t result = carry_out(tasks, thread_state().batch);
      keep_memory(tasks, current);
      return result;
    } catch (const std::bad_alloc& lack) {
      tasks.front().communicator->fail_because(lack);
      throw;
    } catch (const std::exception& thrown) {
      tasks.front().communicator->note_failed_call(thrown);
      throw;
    }
  }
  State group = std::exchange(current, State{});
  const Leaving leaving(group);
  const ncclResult_t result = end_outermost(group, current);
  return result == ncclInProgress && all_have_left(group) ? ncclSuccess : result;
}

Simulated simulate() {
  State& current = state();
  if (current.depth == 0) fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--current.depth > 0) return {};
  const State group = std::exchange(current, State{});
  const Leaving leaving(group);
  return simulate_outermost(group);
}

void require_same_blocking(const Config& config, const char* function) {
  const Communicator* const first = first_communicator(state());
  if (first != nullptr && first->config().blocking != config.blocking) {
    fail(ncclInvalidArgument, "{} : a group may not mix blocking and non-blocking communicators", function);
  }
}

void require_ready(const Communicator& communicator, const char* function) {
  communicator.require_ready(function);
  require_same_blocking(communicator.config(), function);
}

bool require(const Communicator& communicator, Call call, const char* function) {
  if (!communicator.require(call, function)) return false;
  require_same_blocking(communicator.config(), function);
  const std::vector<Job>& jobs = state().jobs;
  const auto last = std::find_if(jobs.rbegin(), jobs.rend(), [&](const Job& job) {
    return job.leads_to && job.communicator.get() == &communicator;
  });
  return last == jobs.rend() || permits(call, *last->leads_to, function);
}

void begin_early(const Communicator& communicator) noexcept {
  if (t_state == nullptr) return;
  try {
    for (const Job& job : state().jobs) {
      if (job.communicator.get() == &communicator) begin(job);
    }
  } catch (const std::exception&) {  // no memory; it ends now, whether it has said that it is revoked or not
  }
}

void add(Job job) {
  try {
    state().jobs.push_back(std::move(job));  // takes the memory before it moves
  } catch (const std::exception& thrown) {
    give_up_making(job, thrown);
    throw;
  }
}

bool outlasts_the_call() { return outlasts_the_call(state()); }

void add_task(const Task& task) {
  State& current = state();
  if (outlasts_the_call(current)) hold(current, *task.communicator);
  current.tasks.push_back(task);
}

bool leave_at_the_end(const std::shared_ptr<Communicator>& communicator) noexcept {
  if (t_state == nullptr || t_state->group.depth == 0) return false;
  State& current = t_state->group;
  try {
    if (uses(current, *communicator)) {
      log_note(
          "ncclCommDestroy: what the open group has recorded for this communicator is not carried out: is the call "
          "of ncclGroupEnd missing?");
      return false;
    }
    current.leaving.push_back(communicator);
    return true;
  } catch (const std::exception&) {  // no memory for it
    return false;
  }
}

void note_error(ncclResult_t code, const char* sentence) noexcept {
  if (t_state == nullptr) return;
  State& current = t_state->group;
  if (current.depth == 0 || current.error != ncclSuccess) return;
  current.error = code == ncclInProgress ? ncclInvalidUsage : code;  // the group does not go on
  try {
    current.sentence = sentence;
  } catch (const std::exception&) {  // no memory for it
    current.sentence.clear();
  }
}

void note_lost_record(Communicator& communicator, const std::exception& thrown) noexcept {
  const ncclResult_t code = code_of(thrown);
  if (code != ncclSystemError && code != ncclInternalError) return;
  if (lacks_memory(thrown)) return communicator.fail_because(thrown);
  try {
    communicator.fail_with(code, thrown.what(), true);
  } catch (const std::exception& lack) {
    communicator.fail_because(lack);
  }
}

}  // namespace group
}  // namespace nitinol
