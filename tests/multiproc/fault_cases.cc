#include "fault_cases.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster.h"
#include "device_memory.h"
#include "nccl.h"
#include "nitinol.h"
#include "pipe.h"
#include "scarcity.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

constexpr std::chrono::seconds kInTime{40};  // deadlines are shorter; the rest is for busy machines
constexpr std::chrono::milliseconds kSlowness{300};

// Seconds that a rank may be late. Many processes share few processors: only what a deadline is to end has a short one.
constexpr int kDeadline = kShortTime;
constexpr int kPatience = 15;
#if defined(NITINOL_CUDA)
constexpr int kInitDeadline = kPatience;  // GPUs take some time to start up
#else
constexpr int kInitDeadline = kDeadline;
#endif

/// Whether the survivors of an operation hear of the fault by its deadline alone.
bool ends_by_deadline(Fault fault) {
  switch (fault) {
    case Fault::kStop:
    case Fault::kNeverCalls:
    case Fault::kWrongCall:
    case Fault::kWrongOrder: return true;
    case Fault::kKill:
    case Fault::kExit:
    case Fault::kWrongSize:
    case Fault::kClosesSockets:
    case Fault::kFullDescriptors:
    case Fault::kOutOfMemory:
    case Fault::kSlow: break;
  }
  return false;
}

int timeout_of(const Case& c) { return ends_by_deadline(c.fault) ? kDeadline : kPatience; }

int init_timeout_of(const Case& c) { return c.moment == Moment::kInit ? kInitDeadline : kPatience; }

/// What the processes of a case tell each other beside the library.
struct Signals {
  Pipe done;            // one byte from each survivor that is through
  Pipe other_id;        // of a second communicator
  SharedCount started;  // how many are ready to make the communicator: on GPUs that takes its time
  SharedCount joined;   // how many have the communicator
  SharedCount through;  // how many survivors are
  void say_done(int process) const {
    done.put("x", 1);
    through.add();
    if (process == 0) through.wait_for(kProcesses - 1);  // it hosts the rendezvous, to which others may come late
  }
  void wait_for_survivors() const {
    char byte = 0;
    for (int i = 0; i + 1 < kProcesses; ++i) {
      if (!done.get(&byte, 1)) return;
    }
  }
};

struct Scene {
  ncclComm_t comm = nullptr;
  ncclComm_t other = nullptr;  // for calls in the wrong order
  cudaStream_t stream = nullptr;
  float* data = nullptr;
};

bool needs_other_communicator(const Case& c) { return c.fault == Fault::kWrongOrder && c.moment >= Moment::kSplit; }

/// What a call on a non-blocking communicator has come to in the end.
ncclResult_t finish(ncclResult_t called, ncclComm_t comm) {
  const auto deadline = std::chrono::steady_clock::now() + kInTime;
  while (called == ncclInProgress && comm != nullptr && std::chrono::steady_clock::now() < deadline) {
    EXPECT_CALL(ncclCommGetAsyncError(comm, &called));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return called;
}

ncclResult_t all_reduce(const Scene& s, size_t count) {
  return finish(ncclAllReduce(s.data, s.data, count, ncclFloat, ncclSum, s.comm, s.stream), s.comm);
}

ncclResult_t broadcast(const Scene& s, size_t count) {
  return finish(ncclBroadcast(s.data, s.data, count, ncclFloat, 0, s.comm, s.stream), s.comm);
}

/// Two collectives, in a group or one after the other.
ncclResult_t two_calls(const Scene& s, bool grouped, bool swapped, size_t count = 20) {
  if (grouped) EXPECT_CALL(ncclGroupStart());
  const ncclResult_t first = swapped ? broadcast(s, count) : all_reduce(s, 50);
  const ncclResult_t second = swapped ? all_reduce(s, 50) : broadcast(s, count);
  if (grouped) return finish(ncclGroupEnd(), s.comm);
  return first != ncclSuccess ? first : second;
}

ncclResult_t split(const Case& c, ncclComm_t comm, int process) {
  ncclComm_t child = nullptr;
  ncclResult_t result = finish(ncclCommSplit(comm, 0, process, &child, nullptr), comm);
  if (result == ncclSuccess && child != nullptr) result = finish(ncclInProgress, child);
  // Else others may not even have it.
  const bool all_is_well = outcome_of(c) == Outcome::kSuccess || (c.delay.count() >= 0 && result == ncclSuccess);
  if (child != nullptr) EXPECT_CALL(all_is_well ? ncclCommDestroy(child) : ncclCommAbort(child));
  return result;
}

/// The call of the moment, as it should be.
ncclResult_t right_call(const Case& c, Scene& s, int process, const ncclUniqueId& id) {
  switch (c.moment) {
    case Moment::kInit: {
      const ncclResult_t called = ncclCommInitRank(&s.comm, kProcesses, id, process);
      return finish(called, s.comm);
    }
    case Moment::kFirstUse:
    case Moment::kSteady: return c.fault == Fault::kWrongOrder ? two_calls(s, false, false) : all_reduce(s, 300);
    case Moment::kGroup: return two_calls(s, true, false);
    case Moment::kSplit: return split(c, s.comm, process);
    case Moment::kFinalize: return finish(ncclCommFinalize(s.comm), s.comm);
    case Moment::kDestroy: return ncclCommDestroy(std::exchange(s.comm, nullptr));
  }
  return ncclInternalError;
}

/// The same again and again until it fails, if the fault strikes later.
ncclResult_t right_calls(const Case& c, Scene& s, int process, const ncclUniqueId& id) {
  ncclResult_t result = right_call(c, s, process, id);
  while (c.delay.count() >= 0 && result == ncclSuccess) {
    EXPECT_CALL(cudaStreamSynchronize(s.stream));
    result = right_call(c, s, process, id);
  }
  return result;
}

void use_a_communicator_alone() {
  Scene s;
  ncclUniqueId id;
  EXPECT_CALL(ncclGetUniqueId(&id));
  const ncclResult_t called = ncclCommInitRank(&s.comm, 1, id, 0);
  EXPECT_CALL(finish(called, s.comm));
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&s.data), 4096));
  EXPECT_CALL(all_reduce(s, 10));
  EXPECT_CALL(cudaDeviceSynchronize());
  EXPECT_CALL(cudaFree(s.data));
  EXPECT_CALL(ncclCommDestroy(s.comm));
}

/// Those who are left go on together.
void go_on_without(int victim, Scene& s) {
  ncclComm_t smaller = nullptr;
  EXPECT_CALL(finish(ncclCommShrink(s.comm, &victim, 1, &smaller, nullptr, NCCL_SHRINK_ABORT), s.comm));
  EXPECT_CALL(finish(ncclInProgress, smaller));
  EXPECT_CALL(ncclCommAbort(std::exchange(s.comm, smaller)));
  EXPECT_CALL(nitinolCommSetTimeout(s.comm, kPatience));
  const float one = 1;
  float sum = 0;
  EXPECT_CALL(copy_to_device(s.data, &one, sizeof(one)));
  EXPECT_CALL(all_reduce(s, 1));
  EXPECT_CALL(cudaStreamSynchronize(s.stream));
  EXPECT_CALL(cudaMemcpy(&sum, s.data, sizeof(sum), cudaMemcpyDeviceToHost));
  expect_that(sum == kProcesses - 1, "the survivors' sum is " + std::to_string(sum));
  EXPECT_CALL(ncclCommDestroy(std::exchange(s.comm, nullptr)));
}

ncclResult_t state_after(const Scene& s, ncclResult_t called) {
  const auto deadline = std::chrono::steady_clock::now() + kInTime;
  ncclResult_t state = called;
  while ((state == ncclSuccess || state == ncclInProgress) && s.comm != nullptr &&
         std::chrono::steady_clock::now() < deadline) {
    EXPECT_CALL(ncclCommGetAsyncError(s.comm, &state));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return state;
}

void survive(const Case& c, Scene& s, int process, const ncclUniqueId& id) {
  const auto begin = std::chrono::steady_clock::now();
  ncclResult_t called = right_calls(c, s, process, id);
  // A fault that came when all had joined is one to those who need the victim.
  if (c.moment == Moment::kInit && called == ncclSuccess) called = all_reduce(s, 10);
  if (c.moment != Moment::kDestroy) {
    const ncclResult_t state = state_after(s, called);
    expect_that(state != ncclSuccess && state != ncclInProgress, "no error");
    const std::string lacking = what_lacks(c, ncclGetLastError(s.comm));
    expect_that(lacking.empty(), lacking);
  }
  expect_that(std::chrono::steady_clock::now() - begin < kInTime, "it took too long");
  if (s.other != nullptr) EXPECT_CALL(ncclCommAbort(s.other));
  EXPECT_CALL(cudaStreamSynchronize(s.stream));
  if (s.comm != nullptr && c.moment != Moment::kInit) go_on_without(c.victim, s);
  if (s.comm != nullptr) EXPECT_CALL(ncclCommAbort(s.comm));
  EXPECT_CALL(cudaStreamSynchronize(s.stream));
  use_a_communicator_alone();
}

void succeed(const Case& c, Scene& s, int process, const ncclUniqueId& id) {
  EXPECT_CALL(right_call(c, s, process, id));
  EXPECT_CALL(cudaStreamSynchronize(s.stream));
  if (s.comm == nullptr) return;
  ncclResult_t state = ncclSuccess;
  EXPECT_CALL(ncclCommGetAsyncError(s.comm, &state));
  EXPECT_CALL(state);
  EXPECT_CALL(ncclCommDestroy(s.comm));
}

/// Again and again until the init has ended, and then once more.
void close_sockets_during_init(Scene& s, int process, const ncclUniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  static_cast<void>(ncclCommInitRankConfig(&s.comm, kProcesses, id, process, &config));
  for (ncclResult_t state = ncclInProgress; state == ncclInProgress;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_CALL(ncclCommGetAsyncError(s.comm, &state));
    close_all_sockets();
  }
}

void call_wrongly(const Case& c, Scene& s, int process, const ncclUniqueId& id) {
  if (c.moment == Moment::kInit) {
    static_cast<void>(ncclCommInitRank(&s.comm, kProcesses, id, (process + 1) % kProcesses));
  } else {
    static_cast<void>(ncclReduceScatter(s.data, s.data, 8, ncclFloat, ncclMax, s.comm, s.stream));
  }
}

void call_in_wrong_order(const Case& c, Scene& s, int process, const Signals& signals) {
  switch (c.moment) {
    case Moment::kInit: {
      ncclUniqueId other;
      expect_that(signals.other_id.get(&other, sizeof(other)), "no second id");
      static_cast<void>(ncclCommInitRank(&s.other, kProcesses, other, process));
      break;
    }
    case Moment::kFirstUse:
    case Moment::kSteady: static_cast<void>(two_calls(s, false, true)); break;
    case Moment::kGroup: static_cast<void>(two_calls(s, true, true)); break;
    case Moment::kSplit: static_cast<void>(split(c, s.other, process)); break;
    case Moment::kFinalize: static_cast<void>(ncclCommFinalize(s.other)); break;
    case Moment::kDestroy: static_cast<void>(ncclCommDestroy(std::exchange(s.other, nullptr))); break;
  }
}

void call_with_wrong_size(const Case& c, Scene& s, int process, const ncclUniqueId& id) {
  if (c.moment == Moment::kInit) {
    static_cast<void>(ncclCommInitRank(&s.comm, kProcesses + 1, id, process));
  } else if (c.moment == Moment::kGroup) {
    static_cast<void>(two_calls(s, true, false, 19));
  } else {
    static_cast<void>(all_reduce(s, 301));
  }
}

void strike_later(const Case& c, Scene& s, int process, const ncclUniqueId& id) {
  std::thread([c] {
    std::this_thread::sleep_for(c.delay);
    if (c.fault == Fault::kKill) raise(SIGKILL);
    if (c.fault == Fault::kStop) kill(getpid(), SIGSTOP);
    if (c.fault == Fault::kExit) syscall(SYS_exit_group, 0);
  }).detach();
  static_cast<void>(right_calls(c, s, process, id));
}

void misbehave(const Case& c, Scene& s, int process, const ncclUniqueId& id, const Signals& signals) {
  if (c.delay.count() >= 0) strike_later(c, s, process, id);
  switch (c.fault) {
    case Fault::kKill: raise(SIGKILL); break;
    case Fault::kStop: raise(SIGSTOP); break;              // its helper kills it in the end
    case Fault::kExit: syscall(SYS_exit_group, 0); break;  // at once, which a sanitizer would not
    case Fault::kNeverCalls: break;
    case Fault::kWrongCall: call_wrongly(c, s, process, id); break;
    case Fault::kWrongOrder: call_in_wrong_order(c, s, process, signals); break;
    case Fault::kWrongSize: call_with_wrong_size(c, s, process, id); break;
    case Fault::kClosesSockets:
      if (c.moment == Moment::kInit) {
        close_sockets_during_init(s, process, id);
      } else {
        close_all_sockets();
      }
      break;
    case Fault::kFullDescriptors: {
      const FullDescriptors full;
      expect_that(right_call(c, s, process, id) != ncclSuccess, "no error without descriptors");
      break;
    }
    case Fault::kOutOfMemory: {
      const NoMemory none;
      expect_that(right_call(c, s, process, id) != ncclSuccess, "no error without memory");
      break;
    }
    case Fault::kSlow: break;
  }
  signals.wait_for_survivors();
  if (s.other != nullptr) EXPECT_CALL(ncclCommAbort(s.other));
  if (s.comm != nullptr) EXPECT_CALL(ncclCommAbort(s.comm));
  EXPECT_CALL(cudaStreamSynchronize(s.stream));
}

/// The victim where its fault does no harm.
void misbehave_and_succeed(const Case& c, Scene& s, int process, const ncclUniqueId& id) {
  if (c.fault == Fault::kFullDescriptors) {
    const FullDescriptors full;
    return succeed(c, s, process, id);
  }
  if (c.fault == Fault::kOutOfMemory) {
    const NoMemory none;
    return succeed(c, s, process, id);
  }
  std::this_thread::sleep_for(kSlowness);
  succeed(c, s, process, id);
}

/// Kills this process, which will be stopped, when the survivors are done.
void start_helper(const Signals& signals) {
  const pid_t self = getpid();
  if (fork() != 0) return;
  signals.wait_for_survivors();
  kill(self, SIGKILL);
  _exit(0);
}

void reach_the_moment(const Case& c, Scene& s, int process, const ncclUniqueId& id, const Signals& signals) {
  if (c.moment == Moment::kInit) return;
  const ncclResult_t called = ncclCommInitRank(&s.comm, kProcesses, id, process);
  EXPECT_CALL(finish(called, s.comm));
  signals.joined.meet(kProcesses);  // nobody may misbehave before
  if (needs_other_communicator(c)) {
    EXPECT_CALL(finish(ncclCommSplit(s.comm, 0, process, &s.other, nullptr), s.comm));
    EXPECT_CALL(finish(ncclInProgress, s.other));
  }
  if (c.moment == Moment::kFirstUse) return;
  const bool has_deadline = c.fault != Fault::kSlow;
  if (has_deadline) EXPECT_CALL(nitinolCommSetTimeout(s.comm, kPatience));
  for (int i = 0; i < 3; ++i) EXPECT_CALL(two_calls(s, true, false));
  EXPECT_CALL(cudaStreamSynchronize(s.stream));
  if (has_deadline) EXPECT_CALL(nitinolCommSetTimeout(s.comm, timeout_of(c)));
  // Nobody may begin to misbehave before all are through the last of these: whoever has done one more knows.
  EXPECT_CALL(all_reduce(s, 1));
  if (process == c.victim || outcome_of(c) == Outcome::kSuccess) EXPECT_CALL(cudaStreamSynchronize(s.stream));
}

void run_process(const Case& c, int process, const ncclUniqueId& id, const Signals& signals) {
  const bool bad = process == c.victim;
  if (bad && c.fault == Fault::kStop) start_helper(signals);
  Scene s;
  use_device_of(process);
  EXPECT_CALL(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking));
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&s.data), 1 << 16));
  if (process == 0 && c.fault == Fault::kWrongOrder && c.moment == Moment::kInit) {
    ncclUniqueId other;
    EXPECT_CALL(ncclGetUniqueId(&other));
    signals.other_id.put(&other, sizeof(other));
  }
  signals.started.meet(kProcesses);
  reach_the_moment(c, s, process, id, signals);
  if (outcome_of(c) == Outcome::kSuccess) {
    return bad ? misbehave_and_succeed(c, s, process, id) : succeed(c, s, process, id);
  }
  if (bad) return misbehave(c, s, process, id, signals);
  try {
    survive(c, s, process, id);
  } catch (...) {
    signals.say_done(process);
    throw;
  }
  signals.say_done(process);
}

std::string wanted(const Case& c) {
  const bool killed = c.fault == Fault::kKill || c.fault == Fault::kStop;
  return killed ? "process " + std::to_string(c.victim) + " ended by signal 9\n" : "";
}

}  // namespace

std::string run_case(const Case& c) {
  if (c.fault != Fault::kSlow) {
    setenv("NITINOL_TIMEOUT", std::to_string(timeout_of(c)).c_str(), 1);
    setenv("NITINOL_INIT_TIMEOUT", std::to_string(init_timeout_of(c)).c_str(), 1);
  }
  if (!c.blocking) setenv("NCCL_COMM_BLOCKING", "0", 1);
  setenv("NCCL_SOCKET_RETRY_CNT", "3", 1);
  setenv("NCCL_SOCKET_RETRY_SLEEP_MSEC", "10", 1);
  const Signals signals;
  const std::string text =
      run_processes(kProcesses, [&](int process, const ncclUniqueId& id) { run_process(c, process, id, signals); });
  return text == wanted(c) ? "" : name_of(c) + ": " + (text.empty() ? "the victim lives\n" : text);
}

}  // namespace nitinol::testing
