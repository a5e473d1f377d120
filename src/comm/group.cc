#include "comm/group.h"

#include <cxxabi.h>

#include <algorithm>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include "base/run_together.h"
#include "comm/strict_check.h"
#include "model/signature.h"

/// Stands for this library: it stays loaded while threads have to end what is theirs.
extern "C" __attribute__((visibility("hidden"))) void* __dso_handle;

namespace nitinol {
namespace {

/// The tasks of one communicator, and their streams.
struct Batch {
  Communicator* communicator = nullptr;
  Launch launch;
  std::vector<cudaStream_t> streams;

  void add(const Task& task) {
    if (const auto* const collective = std::get_if<CollectiveWork>(&task.work)) {
      launch.collectives.push_back(*collective);
    } else {
      launch.messages.push_back(std::get<MessageWork>(task.work));
    }
    if (std::find(streams.begin(), streams.end(), task.stream) == streams.end()) streams.push_back(task.stream);
  }
};

struct State {
  int depth = 0;
  std::vector<Job> jobs;
  std::vector<Task> tasks;
  ncclResult_t error = ncclSuccess;
  std::string sentence;  ///< what the error was
};

/// What a thread keeps from call to call.
struct ThreadState {
  State group;
  Batch batch;  ///< for its memory
};

constinit thread_local ThreadState* t_state = nullptr;

void end_thread_state(void*) {
  delete t_state;
  t_state = nullptr;
}

/// A thread that has ended its state may still call, out of another object's destructor, and starts a new one. An owner
/// in a thread_local would not be made again for that.
ThreadState& make_thread_state() {
  t_state = new ThreadState;
  abi::__cxa_thread_atexit(end_thread_state, nullptr, &__dso_handle);
  return *t_state;
}

/// Every call asks for it, several times: a pointer costs one look-up, an object with a constructor several.
ThreadState& thread_state() { return t_state != nullptr ? *t_state : make_thread_state(); }

State& state() { return thread_state().group; }

void fail_if_a_call_failed(const State& group) {
  if (group.error != ncclSuccess) fail(group.error, "ncclGroupEnd: a call inside the group failed: {}", group.sentence);
}

/// What is checked of a group as a whole before any of it is done.
void check(const State& group) {
  if (!group.jobs.empty() && !group.tasks.empty()) {
    fail(ncclInvalidUsage, "ncclGroupEnd: a group may not hold both communication and making or ending communicators");
  }
  bool blocking = false;
  bool background = false;
  const auto look_at = [&](const Communicator& communicator) {
    (communicator.config().blocking ? blocking : background) = true;
  };
  for (const Job& job : group.jobs) look_at(*job.communicator);
  for (const Task& task : group.tasks) look_at(*task.communicator);
  if (blocking && background) {
    fail(ncclInvalidArgument, "ncclGroupEnd: a group may not mix blocking and non-blocking communicators");
  }
}

/// Runs all jobs at the same time, since they wait for each other; throws the first error.
void run_and_wait(std::vector<Job>& jobs) {
  std::vector<std::exception_ptr> errors(jobs.size());
  const auto run = [&](size_t i) {
    try {
      jobs[i].run();
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  try {
    run_together(jobs.size(), run);
  } catch (...) {
    for (std::exception_ptr& error : errors) error = std::current_exception();
  }
  std::exception_ptr first;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (jobs[i].finished) jobs[i].finished(errors[i] == nullptr);
    if (errors[i] && !first) first = errors[i];
  }
  if (first) std::rethrow_exception(first);
}

/// They will never run: whoever polls is not to wait for them.
void drop_jobs(std::span<Job> jobs, const Error& error) {
  for (Job& job : jobs) {
    if (job.finished) job.finished(false);
    if (job.dropped) job.dropped(error);
  }
}

ncclResult_t run_jobs(std::vector<Job>& jobs) {
  if (jobs.empty()) return ncclSuccess;
  if (jobs.front().communicator->config().blocking) {
    run_and_wait(jobs);
    return ncclSuccess;
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    try {
      jobs[i].communicator->run_in_background(std::move(jobs[i].run));
    } catch (const std::exception& thrown) {
      const Error error = as_error(thrown);
      drop_jobs(std::span(jobs).subspan(i), error);
      throw error;
    }
  }
  return ncclInProgress;
}

/// Sends to oneself need their receives in the same group, in the same order and of the same count and type.
void check_messages_to_self(const Communicator& communicator, const Launch& launch) {
  std::vector<MessageSignature> all[2];
  if (launch.messages.empty()) return;
  const int self = communicator.rank();
  for (const MessageWork& message : launch.messages) {
    std::vector<MessageSignature>& alike = all[static_cast<int>(message.direction)];
    if (message.peer == self) alike.push_back({alike.size() + 1, message.bytes, message.stated});
  }
  if (all[0].size() != all[1].size()) {
    fail(ncclInvalidUsage,
         "rank {} sends {} messages to itself and receives {}: each needs its match in the same group", self,
         all[0].size(), all[1].size());
  }
  for (size_t i = 0; i < all[0].size(); ++i) {
    if (all[0][i].packed() == all[1][i].packed()) continue;
    fail(ncclInvalidUsage, "rank {}'s messages to itself do not match: {} and {}", self, all[0][i].text(true, self),
         all[1][i].text(false, self));
  }
}

void run_on_one(std::span<const Task> tasks) {
  Batch& batch = thread_state().batch;
  batch.launch.clear();
  batch.streams.clear();
  for (const Task& task : tasks) batch.add(task);
  Communicator& communicator = *tasks.front().communicator;
  check_messages_to_self(communicator, batch.launch);
  communicator.run(batch.launch, batch.streams);
}

void run_on_many(std::span<const Task> tasks) {
  std::vector<Batch> batches;
  for (const Task& task : tasks) {
    auto batch = std::find_if(batches.begin(), batches.end(),
                              [&](const Batch& one) { return one.communicator == task.communicator; });
    if (batch == batches.end()) batch = batches.insert(batch, Batch{task.communicator, {}, {}});
    batch->add(task);
  }
  // Ranks may name communicators in different orders, in a group: kernels are to begin in one.
  std::stable_sort(batches.begin(), batches.end(), [](const Batch& one, const Batch& other) {
    return one.communicator->identity() < other.communicator->identity();
  });
  for (const Batch& batch : batches) check_messages_to_self(*batch.communicator, batch.launch);
  // What is needed for the first time may have to wait for running operations, which wait for those of this thread.
  for (Batch& batch : batches) batch.communicator->get_ready(batch.launch, batch.streams.front());
  for (const Batch& batch : batches) batch.communicator->submit(batch.launch, batch.streams);
}

void run_tasks(std::span<const Task> tasks) {
  if (tasks.empty()) return;
  if (checks_strictly()) compare_calls(tasks);
  const auto same_communicator = [&](const Task& task) { return task.communicator == tasks.front().communicator; };
  const bool one = tasks.size() == 1 || std::all_of(tasks.begin(), tasks.end(), same_communicator);  // most groups
  one ? run_on_one(tasks) : run_on_many(tasks);
}

/// The next group uses the memory of these tasks again.
void keep_memory(std::vector<Task>& tasks, State& next) {
  tasks.clear();
  if (next.tasks.empty()) next.tasks.swap(tasks);
}

}  // namespace

namespace group {

bool open() { return state().depth > 0; }

void start() { ++state().depth; }

ncclResult_t end() {
  State& current = state();
  if (current.depth == 0) fail(ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (--current.depth > 0) return ncclSuccess;
  if (current.tasks.size() == 1 && current.jobs.empty() && current.error == ncclSuccess) {  // most calls
    std::vector<Task> tasks;
    tasks.swap(current.tasks);
    run_tasks(tasks);
    keep_memory(tasks, current);
    return ncclSuccess;
  }
  State group = std::exchange(current, State{});
  try {
    fail_if_a_call_failed(group);
    check(group);
  } catch (const Error& error) {
    drop_jobs(group.jobs, error);
    throw;
  }
  const ncclResult_t result = run_jobs(group.jobs);
  run_tasks(group.tasks);
  keep_memory(group.tasks, current);
  return result;
}

bool drop() {
  State& current = state();
  if (current.depth == 0) fail(ncclInvalidUsage, "ncclGroupSimulateEnd: not in a group call.");
  if (--current.depth > 0) return false;
  State group = std::exchange(current, State{});
  drop_jobs(group.jobs, Error(ncclInvalidUsage, "ncclGroupSimulateEnd: the call was not carried out"));
  fail_if_a_call_failed(group);
  return !group.tasks.empty();
}

void add(Job job) { state().jobs.push_back(std::move(job)); }
void add_task(const Task& task) { state().tasks.push_back(task); }

void note_error(ncclResult_t code, const char* sentence) noexcept {
  if (t_state == nullptr) return;
  State& current = t_state->group;
  if (current.depth == 0 || current.error != ncclSuccess) return;
  current.error = code;
  try {
    current.sentence = sentence;
  } catch (const std::exception&) {  // no memory for it
    current.sentence.clear();
  }
}

}  // namespace group
}  // namespace nitinol
