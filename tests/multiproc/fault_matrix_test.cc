// Every fault at every moment: whatever one rank does or fails to do, the others get an error that names it, in time,
// and can go on with new communicators.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "cluster.h"
#include "nccl.h"

namespace nitinol::testing {
namespace {

constexpr int kProcesses = 3;
constexpr std::chrono::seconds kInTime{20};  // deadlines are 1 and 2 s; the rest is for busy machines

enum class Fault { kKill, kStop, kExit, kNeverCalls, kWrongCall, kWrongSize };
constexpr const char* kFaults[] = {"Kill", "Stop", "Exit", "NeverCalls", "WrongCall", "WrongSize"};
enum class Moment { kInit, kFirstUse, kSteady, kGroup, kSplit, kFinalize, kDestroy };
constexpr const char* kMoments[] = {"Init", "FirstUse", "Steady", "Group", "Split", "Finalize", "Destroy"};

struct Case {
  Fault fault = Fault::kKill;
  Moment moment = Moment::kInit;
  int victim = 1;
};

bool makes_sense(const Case& c) {
  if (c.fault == Fault::kWrongSize) return c.moment <= Moment::kGroup && c.moment != Moment::kInit;
  if (c.fault == Fault::kWrongCall) return c.moment != Moment::kInit && c.moment != Moment::kDestroy;
  return true;
}

void expect_that(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what + " (last error: " + ncclGetLastError(nullptr) + ")");
}

/// Through this pipe the survivors say that they are done: one byte each.
struct Done {
  int ends[2] = {-1, -1};
  Done() {
    if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
  }
  ~Done() {
    close(ends[0]);
    close(ends[1]);
  }
  void say() const {
    if (write(ends[1], "x", 1) != 1) throw std::runtime_error("write failed");
  }
  void wait_for_survivors() const {
    for (int i = 0; i + 1 < kProcesses; ++i) {
      pollfd waiting{ends[0], POLLIN, 0};
      char byte = 0;
      if (poll(&waiting, 1, 60'000) != 1 || read(ends[0], &byte, 1) != 1) return;
    }
  }
};

struct Scene {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* data = nullptr;
};

ncclResult_t all_reduce(const Scene& s, size_t count) {
  return ncclAllReduce(s.data, s.data, count, ncclFloat, ncclSum, s.comm, s.stream);
}

ncclResult_t group(const Scene& s, size_t count) {
  EXPECT_CALL(ncclGroupStart());
  static_cast<void>(all_reduce(s, 50));
  static_cast<void>(ncclBroadcast(s.data, s.data, count, ncclFloat, 0, s.comm, s.stream));
  return ncclGroupEnd();
}

/// The call of the moment, as it should be.
ncclResult_t call(Moment moment, Scene& s, int process, const ncclUniqueId& id) {
  switch (moment) {
    case Moment::kInit: return ncclCommInitRank(&s.comm, kProcesses, id, process);
    case Moment::kFirstUse:
    case Moment::kSteady: return all_reduce(s, 300);
    case Moment::kGroup: return group(s, 20);
    case Moment::kSplit: {
      ncclComm_t child = nullptr;
      const ncclResult_t result = ncclCommSplit(s.comm, 0, process, &child, nullptr);
      if (child != nullptr) EXPECT_CALL(ncclCommAbort(child));
      return result;
    }
    case Moment::kFinalize: return ncclCommFinalize(s.comm);
    case Moment::kDestroy: return ncclCommDestroy(std::exchange(s.comm, nullptr));
  }
  return ncclInternalError;
}

void use_a_communicator_alone() {
  Scene s;
  ncclUniqueId id;
  EXPECT_CALL(ncclGetUniqueId(&id));
  EXPECT_CALL(ncclCommInitRank(&s.comm, 1, id, 0));
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&s.data), 4096));
  EXPECT_CALL(all_reduce(s, 10));
  EXPECT_CALL(cudaDeviceSynchronize());
  EXPECT_CALL(cudaFree(s.data));
  EXPECT_CALL(ncclCommDestroy(s.comm));
}

ncclResult_t state_after(const Scene& s, ncclResult_t called) {
  const auto deadline = std::chrono::steady_clock::now() + kInTime;
  ncclResult_t state = called;
  while (state == ncclSuccess && s.comm != nullptr && std::chrono::steady_clock::now() < deadline) {
    EXPECT_CALL(ncclCommGetAsyncError(s.comm, &state));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return state;
}

void must_name(const Case& c, const char* where) {
  const std::string sentence = where;
  const std::string number = std::to_string(c.victim);
  const bool named =
      sentence.find("rank " + number) != std::string::npos || sentence.find("ranks " + number) != std::string::npos;
  expect_that(named, "'" + sentence + "' does not name the victim");
}

void survive(const Case& c, Scene& s, int process, const ncclUniqueId& id) {
  const auto begin = std::chrono::steady_clock::now();
  const ncclResult_t called = call(c.moment, s, process, id);
  if (c.moment != Moment::kDestroy) {
    expect_that(state_after(s, called) != ncclSuccess, "no error");
    must_name(c, ncclGetLastError(s.comm));
  }
  expect_that(std::chrono::steady_clock::now() - begin < kInTime, "it took too long");
  if (s.comm != nullptr) EXPECT_CALL(ncclCommAbort(s.comm));
  EXPECT_CALL(cudaStreamSynchronize(s.stream));
  use_a_communicator_alone();
}

void misbehave(const Case& c, Scene& s, const Done& done) {
  switch (c.fault) {
    case Fault::kKill: raise(SIGKILL); break;
    case Fault::kStop: raise(SIGSTOP); break;  // its helper kills it in the end
    case Fault::kExit: _exit(0);
    case Fault::kNeverCalls: break;
    case Fault::kWrongCall:
      static_cast<void>(ncclReduceScatter(s.data, s.data, 8, ncclFloat, ncclMax, s.comm, s.stream));
      break;
    case Fault::kWrongSize: static_cast<void>(c.moment == Moment::kGroup ? group(s, 19) : all_reduce(s, 301)); break;
  }
  done.wait_for_survivors();
  if (s.comm != nullptr) EXPECT_CALL(ncclCommAbort(s.comm));
  EXPECT_CALL(cudaStreamSynchronize(s.stream));
}

/// Kills this process, which will be stopped, when the survivors are done.
void start_helper(const Done& done) {
  const pid_t self = getpid();
  if (fork() != 0) return;
  done.wait_for_survivors();
  kill(self, SIGKILL);
  _exit(0);
}

void run_process(const Case& c, int process, const ncclUniqueId& id, const Done& done) {
  const bool bad = process == c.victim;
  if (bad && c.fault == Fault::kStop) start_helper(done);
  Scene s;
  EXPECT_CALL(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking));
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&s.data), 1 << 16));
  if (c.moment != Moment::kInit) {
    const ncclResult_t joined = call(Moment::kInit, s, process, id);
    if (joined != ncclSuccess) {  // the victim was through with its part, and gone, before this rank
      must_name(c, ncclGetLastError(nullptr));
      return done.say();
    }
  }
  if (c.moment > Moment::kFirstUse) {
    for (int i = 0; i < 3; ++i) EXPECT_CALL(all_reduce(s, 100));
    EXPECT_CALL(cudaStreamSynchronize(s.stream));
    // Nobody may begin to misbehave before all are through the last of these: whoever has done one more knows.
    EXPECT_CALL(all_reduce(s, 1));
    if (bad) EXPECT_CALL(cudaStreamSynchronize(s.stream));
  }
  if (bad) return misbehave(c, s, done);
  try {
    survive(c, s, process, id);
  } catch (...) {
    done.say();
    throw;
  }
  done.say();
}

std::string run(const Case& c) {
  setenv("NITINOL_TIMEOUT", "1", 1);
  setenv("NITINOL_INIT_TIMEOUT", "2", 1);
  setenv("NCCL_SOCKET_RETRY_CNT", "3", 1);
  setenv("NCCL_SOCKET_RETRY_SLEEP_MSEC", "10", 1);
  const Done done;
  return run_processes(kProcesses, [&](int process, const ncclUniqueId& id) { run_process(c, process, id, done); });
}

std::string wanted(const Case& c) {
  const bool killed = c.fault == Fault::kKill || c.fault == Fault::kStop;
  return killed ? "process " + std::to_string(c.victim) + " ended by signal 9\n" : "";
}

class FaultMatrix : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(FaultMatrix, EndsInAnErrorThatNamesTheRank) {
  const Case c{static_cast<Fault>(std::get<0>(GetParam())), static_cast<Moment>(std::get<1>(GetParam())), 1};
  if (!makes_sense(c)) GTEST_SKIP() << "there is no such case";
  EXPECT_EQ(run(c), wanted(c));
}

INSTANTIATE_TEST_SUITE_P(All, FaultMatrix, ::testing::Combine(::testing::Range(0, 6), ::testing::Range(0, 7)),
                         [](const ::testing::TestParamInfo<std::tuple<int, int>>& which) {
                           return std::string(kFaults[std::get<0>(which.param)]) + kMoments[std::get<1>(which.param)];
                         });

// NITINOL_TEST_FAULTS: how many.
TEST(RandomFaults, NeverHang) {
  const char* const wish = getenv("NITINOL_TEST_FAULTS");
  const int faults = wish != nullptr ? std::atoi(wish) : 30;
  std::mt19937 random(20'26);
  for (int i = 0; i < faults;) {
    const Case c{static_cast<Fault>(random() % 6), static_cast<Moment>(random() % 7),
                 1 + static_cast<int>(random() % 2)};
    if (!makes_sense(c)) continue;
    EXPECT_EQ(run(c), wanted(c)) << kFaults[static_cast<int>(c.fault)] << " at " << kMoments[static_cast<int>(c.moment)]
                                 << ", rank " << c.victim;
    ++i;
  }
}

}  // namespace
}  // namespace nitinol::testing
