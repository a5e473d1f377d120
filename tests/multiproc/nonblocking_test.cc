// Communicators that do not block, one rank of which is stopped before they are used for the first time: what reaches
// for its memory waits in the background, and ends with the communicator or its group.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "cluster.h"
#include "must_work.h"
#include "nccl.h"
#include "observe.h"
#include "pipe.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kProcesses = 3;
constexpr int kVictim = 1;
constexpr size_t kCount = 100;

/// What `call` returns, which is to take no longer than an abort may.
template <class Call>
auto in_time(Call&& call) {
  const auto begin = Clock::now();
  const auto result = call();
  expect_that(Clock::now() - begin < kAbortTime, "it took too long");
  return result;
}

struct Scene {
  ncclComm_t all = nullptr;   ///< of all processes
  ncclComm_t pair = nullptr;  ///< of all but the victim
  cudaStream_t stream = nullptr;
  float* data = nullptr;

  ncclResult_t use(ncclComm_t comm) const {
    return ncclAllReduce(data, data, kCount, ncclFloat, ncclSum, comm, stream);
  }
  /// Begins to use `all` for the first time, which goes on until the communicator ends.
  void begin_to_use_all() const {
    expect_that(in_time([&] { return use(all); }) == ncclInProgress, "the call waited for the stopped process");
    must_be_in_progress(all);
  }
  static void must_be_in_progress(ncclComm_t comm) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    expect_that(state_of(comm) == ncclInProgress, "not in progress");
  }
};

/// Nothing of the communicators has been used.
Scene join(int process, const ncclUniqueId& id) {
  Scene s;
  use_device_of(process);
  EXPECT_CALL(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking));
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&s.data), kCount * sizeof(float)));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t begun = ncclCommInitRankConfig(&s.all, kProcesses, id, process, &config);
  EXPECT_CALL(settled(begun, s.all));
  const int color = process == kVictim ? NCCL_SPLIT_NOCOLOR : 0;
  const ncclResult_t split = ncclCommSplit(s.all, color, process, &s.pair, nullptr);
  EXPECT_CALL(settled(split, s.all));
  if (s.pair != nullptr) EXPECT_CALL(settled(ncclInProgress, s.pair));
  return s;
}

/// Stops this process for ever; somebody else ends it when the others are through.
void stop(const SharedCount& through) {
  const pid_t self = getpid();
  if (fork() == 0) {
    through.wait_for(kProcesses - 1);
    kill(self, SIGKILL);
    _exit(0);
  }
  raise(SIGSTOP);
}

/// Process 0 runs `body` once the victim is stopped, and process 2 `other`.
std::string beside_a_stopped_rank(const std::function<void(Scene& s)>& body,
                                  const std::function<void(Scene& s)>& other) {
  const Pipe victims;
  const SharedCount joined;
  const SharedCount through;
  return run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
    Scene s = join(process, id);
    joined.meet(kProcesses);
    if (process == kVictim) {
      const pid_t self = getpid();
      for (int i = 1; i < kProcesses; ++i) victims.put(&self, sizeof(self));
      return stop(through);
    }
    pid_t victim = 0;
    expect_that(victims.get(&victim, sizeof(victim)), "the victim is silent");
    while (!is_stopped(victim)) usleep(1000);
    try {
      (process == 0 ? body : other)(s);
    } catch (...) {
      through.add();
      throw;
    }
    through.add();
    EXPECT_CALL(cudaStreamSynchronize(s.stream));
  });
}

const char* const kVictimIsKilled = "process 1 ended by signal 9\n";

void abort_all(Scene& s) {
  EXPECT_CALL(in_time([&] { return ncclCommAbort(std::exchange(s.all, nullptr)); }));
}
void abort_pair(Scene& s) {
  EXPECT_CALL(in_time([&] { return ncclCommAbort(std::exchange(s.pair, nullptr)); }));
}

/// Rank 0 aborts the communicator of the two last; who waits for it there hears of it, and ends both, too.
void hear_and_abort(Scene& s) {
  if (settled(s.use(s.pair), s.pair) == ncclSuccess) static_cast<void>(wait_for_failure(s.pair));
  abort_all(s);
  abort_pair(s);
}

TEST(NonBlocking, AFirstUseThatWaitsForAStoppedProcessIsEndedByAnAbort) {
  EXPECT_EQ(kVictimIsKilled, beside_a_stopped_rank(
                                 [](Scene& s) {
                                   s.begin_to_use_all();
                                   abort_all(s);
                                   abort_pair(s);
                                 },
                                 hear_and_abort));
}

/// Destroying waits for what is in progress, but not for a process that is stopped.
TEST(NonBlocking, AFirstUseThatWaitsForAStoppedProcessIsEndedByDestroying) {
  EXPECT_EQ(kVictimIsKilled, beside_a_stopped_rank(
                                 [](Scene& s) {
                                   s.begin_to_use_all();
                                   const auto begin = Clock::now();
                                   EXPECT_CALL(ncclCommDestroy(std::exchange(s.all, nullptr)));
                                   expect_that(Clock::now() - begin < 5 * kAbortTime, "it took too long");
                                   abort_pair(s);
                                 },
                                 hear_and_abort));
}

TEST(NonBlocking, AFirstUseThatWaitsForAStoppedProcessIsEndedByRevoking) {
  EXPECT_EQ(kVictimIsKilled,
            beside_a_stopped_rank(
                [](Scene& s) {
                  s.begin_to_use_all();
                  expect_that(ncclCommFinalize(s.all) == ncclInvalidArgument, "finalize is not refused");
                  const auto revoke = [&] { return ncclCommRevoke(s.all, NCCL_REVOKE_DEFAULT); };
                  expect_that(in_time(revoke) == ncclInProgress, "the revoke does not go on in the background");
                  EXPECT_CALL(in_time([&] { return settled(ncclInProgress, s.all); }));
                  expect_that(s.use(s.all) == ncclInvalidUsage, "used after the revoke");
                  abort_all(s);
                  abort_pair(s);
                },
                hear_and_abort));
}

/// Rank 0 begins a group on both communicators, of which one waits for the stopped process and the other for that one.
/// Whichever of them is aborted, the other one says why nothing comes of the group.
std::string abort_one_of_a_group(void (*abort_one)(Scene& s)) {
  return beside_a_stopped_rank(
      [&](Scene& s) {
        EXPECT_CALL(ncclGroupStart());
        EXPECT_CALL(s.use(s.all));
        EXPECT_CALL(s.use(s.pair));
        expect_that(in_time(ncclGroupEnd) == ncclInProgress, "the call waited for the stopped process");
        Scene::must_be_in_progress(s.all);
        Scene::must_be_in_progress(s.pair);
        abort_one(s);
        const ncclComm_t left = s.all != nullptr ? s.all : s.pair;
        expect_that(in_time([&] { return settled(ncclInProgress, left); }) == ncclRemoteError, "no remote error");
        const std::string sentence = ncclGetLastError(left);
        expect_that(sentence.find("a group was not carried out") != std::string::npos, "it says " + sentence);
        s.all != nullptr ? abort_all(s) : abort_pair(s);
      },
      [](Scene& s) {
        // The group that would match this is never carried out.
        const ncclResult_t called = s.use(s.pair);
        if (called != ncclInProgress) EXPECT_CALL(called);
        ncclResult_t state = ncclSuccess;
        while (state == ncclSuccess || state == ncclInProgress) {
          state = state_of(s.pair);
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        expect_that(state == ncclRemoteError, "the other rank does not hear of it");
        abort_pair(s);
        abort_all(s);
      });
}

TEST(NonBlocking, AbortingTheCommunicatorForWhichAGroupWaitsFailsTheOthersOfTheGroup) {
  EXPECT_EQ(kVictimIsKilled, abort_one_of_a_group(abort_all));
}

TEST(NonBlocking, AbortingACommunicatorThatIsReadyFailsTheOneForWhichItsGroupWaits) {
  EXPECT_EQ(kVictimIsKilled, abort_one_of_a_group(abort_pair));
}

}  // namespace
}  // namespace nitinol::testing
