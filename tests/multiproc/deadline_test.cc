// Operations that do not finish in time: every rank hears which ranks have not come, and what they do instead.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "cluster.h"
#include "matches.h"
#include "must_work.h"
#include "nccl.h"
#include "nitinol.h"
#include "observe.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

constexpr int kProcesses = 3;
constexpr int kLate = 1;

void must_say(ncclComm_t comm, std::initializer_list<const char*> words) {
  const std::string sentence = ncclGetLastError(comm);
  for (const char* word : words) {
    if (sentence.find(word) == std::string::npos) throw std::runtime_error("'" + sentence + "' lacks '" + word + "'");
  }
}

enum class Trouble { kNeverCalls, kStopped, kNeverSends };

/// All have `met` once they are set up, and those who are not late once more when they have called; these wait for
/// `trouble_is_there` before.
void live_through(Trouble trouble, int process, const ncclUniqueId& id, const SharedCount& met,
                  const std::function<void()>& trouble_is_there) {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* data = nullptr;
  use_device_of(process);
  EXPECT_CALL(cudaStreamCreate(&stream));
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
  EXPECT_CALL(ncclCommInitRank(&comm, kProcesses, id, process));
  EXPECT_CALL(ncclAllReduce(data, data, 7, ncclFloat, ncclSum, comm, stream));
  EXPECT_CALL(ncclAllReduce(data, data, 9, ncclFloat, ncclMax, comm, stream));
  EXPECT_CALL(cudaStreamSynchronize(stream));
  met.meet(kProcesses);
  const bool late = process == kLate;
  if (late && trouble == Trouble::kStopped) raise(SIGSTOP);  // until the test lets it go on
  if (!late) {
    trouble_is_there();
    if (trouble == Trouble::kNeverSends) {
      if (process == 0) EXPECT_CALL(ncclRecv(data, 5, ncclFloat, kLate, comm, stream));
    } else {
      EXPECT_CALL(ncclAllReduce(data, data, 11, ncclFloat, ncclSum, comm, stream));
    }
    met.meet(kProcesses + kProcesses - 1);
    EXPECT_CALL(nitinolCommSetTimeout(comm, 2));
  }
  if (wait_for_failure(comm) != ncclRemoteError) throw std::runtime_error("not a remote error");
  EXPECT_CALL(cudaStreamSynchronize(stream));
  switch (trouble) {
    case Trouble::kNeverCalls:
      must_say(comm,
               {"AllReduce number 3 (count 11, type float32, op sum)", "not arrived: rank 1 (host", "process is alive",
                "idle, its last collective was AllReduce number 2 (count 9, type float32, op max)"});
      break;
    case Trouble::kStopped:
      must_say(comm, {"AllReduce number 3", "not arrived: rank 1 (host", "stopped (SIGSTOP"});
      break;
    case Trouble::kNeverSends:
      must_say(comm, {"rank 0: sends and receives",
                      "waiting for: Recv number 1 from rank 1 (count 5, type float32), rank 1 (host", "idle"});
      break;
  }
  EXPECT_CALL(ncclCommAbort(comm));
  EXPECT_CALL(cudaFree(data));
  EXPECT_CALL(cudaStreamDestroy(stream));
}

TEST(Deadline, NamesARankThatNeverCalls) {
  const SharedCount met;
  EXPECT_EQ("", run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
              live_through(Trouble::kNeverCalls, process, id, met, [] {});
            }));
}

/// Rank 1 calls nothing, rank 2 waits for rank 1, and the others for both.
TEST(Deadline, NamesAllRanksThatHaveNotComeAndWhatEachDoes) {
  const SharedCount met;
  const SharedCount called;
  EXPECT_EQ("", run_processes(4, [&](int process, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              float* data = nullptr;
              use_device_of(process);
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              EXPECT_CALL(ncclCommInitRank(&comm, 4, id, process));
              EXPECT_CALL(ncclAllReduce(data, data, 9, ncclFloat, ncclMax, comm, nullptr));
              EXPECT_CALL(cudaStreamSynchronize(nullptr));
              if (process == 2) EXPECT_CALL(ncclRecv(data, 5, ncclFloat, 1, comm, nullptr));
              met.meet(4);
              if (process == 0 || process == 3) {
                EXPECT_CALL(ncclAllReduce(data, data, 11, ncclFloat, ncclSum, comm, nullptr));
                called.meet(2);
              }
              if (process == 0) EXPECT_CALL(nitinolCommSetTimeout(comm, 2));  // one is to tell it
              if (wait_for_failure(comm) != ncclRemoteError) throw std::runtime_error("not a remote error");
              const std::string wanted =
                  "AllReduce number 2 \\(count 11, type float32, op sum\\) makes no progress .*"
                  "not arrived: rank 1 \\(host [^)]*\\): its process is alive; idle, its last "
                  "collective was AllReduce number 1 \\(count 9, type float32, op max\\); "
                  "rank 2 \\(host [^)]*\\): its process is alive; it is in a group of sends and receives, its last "
                  "collective was AllReduce number 1 .*";
              const std::string sentence = ncclGetLastError(comm);
              if (!matches(sentence, wanted)) throw std::runtime_error(sentence);
              EXPECT_CALL(cudaStreamSynchronize(nullptr));
              EXPECT_CALL(ncclCommAbort(comm));
              EXPECT_CALL(cudaFree(data));
            }));
}

TEST(Deadline, NamesARankThatNeverSends) {
  const SharedCount met;
  EXPECT_EQ("", run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
              live_through(Trouble::kNeverSends, process, id, met, [] {});
            }));
}

#if defined(NITINOL_VGPU)
/// A call that stands behind something in its stream has not begun, but the rank has called.
TEST(Deadline, SaysThatACallHasNotBegun) {
  const SharedCount called;
  EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              float* data = nullptr;
              SharedCount done;
              use_device_of(process);
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              EXPECT_CALL(ncclCommInitRank(&comm, 2, id, process));
              const auto wait_until_done = [](void* count) { static_cast<SharedCount*>(count)->wait_for(1); };
              if (process == 1) EXPECT_CALL(cudaLaunchHostFunc(nullptr, wait_until_done, &done));
              EXPECT_CALL(ncclAllReduce(data, data, 11, ncclFloat, ncclSum, comm, nullptr));
              called.meet(2);
              if (process == 0) EXPECT_CALL(nitinolCommSetTimeout(comm, 1));
              if (wait_for_failure(comm) != ncclRemoteError) throw std::runtime_error("not a remote error");
              must_say(comm, {"AllReduce number 1", "not arrived: rank 1 (host",
                              "; it has issued 1 launch that has not begun, it has not begun any collective"});
              done.add();
              EXPECT_CALL(cudaStreamSynchronize(nullptr));
              EXPECT_CALL(ncclCommAbort(comm));
              EXPECT_CALL(cudaFree(data));
            }));
}
#endif

/// Says once the process has stopped, and wakes it up some time after the others have given up on it; they do not wait
/// for that.
void look_after(pid_t process, const SharedCount& stopped) {
  if (fork() != 0) return;
  while (!is_stopped(process) && kill(process, 0) == 0) usleep(1000);
  stopped.add();
  sleep(5);
  kill(process, SIGCONT);
  _exit(0);
}

/// Whoever waits for the stream and asks then must not take what it has left for a result.
TEST(Deadline, EndsNoStreamBeforeItsCommunicatorHasFailed) {
  const SharedCount met;
  EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              float* data = nullptr;
              use_device_of(process);
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              EXPECT_CALL(ncclCommInitRank(&comm, 2, id, process));
              EXPECT_CALL(ncclAllReduce(data, data, 9, ncclFloat, ncclMax, comm, nullptr));
              EXPECT_CALL(cudaStreamSynchronize(nullptr));
              met.meet(2);
              if (process == 0) {
                EXPECT_CALL(nitinolCommSetTimeout(comm, 0.5));
                EXPECT_CALL(ncclAllReduce(data, data, 11, ncclFloat, ncclSum, comm, nullptr));
                EXPECT_CALL(cudaStreamSynchronize(nullptr));
                ncclResult_t state = ncclSuccess;
                EXPECT_CALL(ncclCommGetAsyncError(comm, &state));
                if (state != ncclRemoteError) throw std::runtime_error("the stream has ended, but nothing has failed");
              }
              if (wait_for_failure(comm) != ncclRemoteError) throw std::runtime_error("not a remote error");
              EXPECT_CALL(ncclCommAbort(comm));
              EXPECT_CALL(cudaFree(data));
            }));
}

TEST(Deadline, TellsAStoppedRankFromASlowOne) {
  const SharedCount met;
  const SharedCount stopped;
  EXPECT_EQ("", run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
              if (process == kLate) look_after(getpid(), stopped);
              live_through(Trouble::kStopped, process, id, met, [&] { stopped.wait_for(1); });
            }));
}

/// Suspends them all for a while.
void suspend(const pid_t (&processes)[kProcesses]) {
  for (const pid_t process : processes) kill(process, SIGSTOP);
  sleep(5);
  for (const pid_t process : processes) kill(process, SIGCONT);
}

TEST(Deadline, TimeInWhichTheWholeJobIsSuspendedDoesNotCount) {
  struct Job {
    SharedCount waiting;
    SharedCount resumed;
  } job;
  auto& pids = *static_cast<pid_t(*)[kProcesses]>(
      mmap(nullptr, sizeof(pid_t[kProcesses]), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  EXPECT_EQ("", run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              float* data = nullptr;
              pids[process] = getpid();
              use_device_of(process);
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              EXPECT_CALL(ncclCommInitRank(&comm, kProcesses, id, process));
              EXPECT_CALL(ncclAllReduce(data, data, 9, ncclFloat, ncclMax, comm, nullptr));
              EXPECT_CALL(cudaStreamSynchronize(nullptr));
              EXPECT_CALL(nitinolCommSetTimeout(comm, 3));
              if (process == kLate) {
                job.waiting.wait_for(kProcesses - 1);
                usleep(300'000);  // so that the others wait
                if (fork() == 0) {
                  suspend(pids);
                  job.resumed.add();
                  _exit(0);
                }
                job.resumed.wait_for(1);
                usleep(300'000);
              } else {
                job.waiting.add();
              }
              EXPECT_CALL(ncclAllReduce(data, data, 11, ncclFloat, ncclSum, comm, nullptr));
              EXPECT_CALL(cudaStreamSynchronize(nullptr));
              ncclResult_t state = ncclSuccess;
              EXPECT_CALL(ncclCommGetAsyncError(comm, &state));
              if (state != ncclSuccess) throw std::runtime_error(ncclGetLastError(comm));
              EXPECT_CALL(ncclCommDestroy(comm));
              EXPECT_CALL(cudaFree(data));
            }));
  munmap(pids, sizeof(pids));
}

TEST(Deadline, TheSettingHoldsForEveryCommunicator) {
  setenv("NITINOL_TIMEOUT", std::to_string(kShortTime).c_str(), 1);
  EXPECT_EQ("", run_ranks({2, 1}, [](Rank& self) {
              ncclComm_t comm = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              if (self.rank != 2) EXPECT_CALL(ncclAllGather(data, data, 3, ncclFloat, comm, self.stream));
              if (wait_for_failure(comm) != ncclRemoteError) throw std::runtime_error("not a remote error");
              must_say(comm, {"AllGather number 1 (count 3, type float32)", "not arrived: rank 2", "not begun any"});
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              EXPECT_CALL(ncclCommAbort(comm));
              EXPECT_CALL(cudaFree(data));
            }));
  unsetenv("NITINOL_TIMEOUT");
}

TEST(Deadline, IsCheckedForSense) {
  EXPECT_EQ("", run_ranks({1}, [](Rank& self) {
              if (nitinolCommSetTimeout(self.comm, -1) != ncclInvalidArgument) throw std::runtime_error("-1");
              if (nitinolCommSetTimeout(nullptr, 1) != ncclInvalidArgument) throw std::runtime_error("NULL");
              EXPECT_CALL(nitinolCommSetTimeout(self.comm, 0));
            }));
}

}  // namespace
}  // namespace nitinol::testing
