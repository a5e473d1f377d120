// NITINOL_CHECK=strict compares calls on the host: programs that use communicators in different orders wait there for
// each other, and are told.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "cluster.h"
#include "devices.h"
#include "nccl.h"
#include "scarcity.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

class StrictCircle : public ::testing::Test {
 protected:
  StrictCircle() { setenv("NITINOL_CHECK", "strict", 1); }
  ~StrictCircle() override { unsetenv("NITINOL_CHECK"); }
};

/// Communicators of all processes, and something to call on them.
struct Scene {
  static constexpr int kComms = 3;
  ncclComm_t comms[kComms] = {};
  float* data = nullptr;
  cudaStream_t stream = nullptr;

  Scene(int ranks, int rank, const ncclUniqueId& id) {
    use_device_of(rank);
    EXPECT_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
    EXPECT_CALL(ncclCommInitRank(&comms[0], ranks, id, rank));
    for (int i = 1; i < kComms; ++i) EXPECT_CALL(ncclCommSplit(comms[0], 0, rank, &comms[i], nullptr));
  }
  ncclResult_t all_reduce(int comm) const {
    return ncclAllReduce(data, data, 10, ncclFloat, ncclSum, comms[comm], stream);
  }
  void end() const {
    EXPECT_CALL(cudaStreamSynchronize(stream));
    for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommAbort(comm));
    EXPECT_CALL(cudaFree(data));
    EXPECT_CALL(cudaStreamDestroy(stream));
  }
};

bool heard_of_a_circle(ncclResult_t called, ncclComm_t comm) {
  const std::string sentence = ncclGetLastError(comm);
  return called == ncclInvalidUsage && sentence.find("in a circle over waits on the host") != std::string::npos;
}

void must_have(bool heard) {
  if (!heard) throw std::runtime_error(std::string("no circle was told of: ") + ncclGetLastError(nullptr));
}

/// What is called in another order on each rank; of each circle that comes of it one communicator hears.
TEST_F(StrictCircle, OfCommunicatorsInDifferentOrders) {
  if (!kThreadsAreKnown) GTEST_SKIP();
  constexpr int kRanks = 3;
  EXPECT_EQ("", run_processes(kRanks, [](int rank, const ncclUniqueId& id) {
              const Scene s(kRanks, rank, id);
              bool heard = false;
              for (int i = 0; i < Scene::kComms; ++i) {
                const int comm = (rank + i) % Scene::kComms;
                heard = heard_of_a_circle(s.all_reduce(comm), s.comms[comm]) || heard;
              }
              must_have(heard);
              s.end();
            }));
}

TEST_F(StrictCircle, OfAMessageAndACollective) {
  if (!kThreadsAreKnown) GTEST_SKIP();
  EXPECT_EQ("", run_processes(2, [](int rank, const ncclUniqueId& id) {
              const Scene s(2, rank, id);
              const auto message = [&] {
                return rank == 0 ? ncclRecv(s.data, 10, ncclFloat, 1, s.comms[0], s.stream)
                                 : ncclSend(s.data, 10, ncclFloat, 0, s.comms[0], s.stream);
              };
              const bool first = heard_of_a_circle(rank == 0 ? message() : s.all_reduce(1), s.comms[rank]);
              const bool then = heard_of_a_circle(rank == 0 ? s.all_reduce(1) : message(), s.comms[1 - rank]);
              must_have(first || then);
              s.end();
            }));
}

TEST_F(StrictCircle, OfOneThreadWithSeveralRanksThatForgetsTheGroup) {
  if (!kThreadsAreKnown) GTEST_SKIP();
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              ncclComm_t comms[2] = {};
              float* data = nullptr;
              const int devices[2] = {0, devices_here() > 1 ? 1 : 0};
              EXPECT_CALL(ncclCommInitAll(comms, 2, devices));
              EXPECT_CALL(cudaSetDevice(0));
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              const ncclResult_t called = ncclAllReduce(data, data, 10, ncclFloat, ncclSum, comms[0], nullptr);
              must_have(heard_of_a_circle(called, comms[0]));
              for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommAbort(comm));
              EXPECT_CALL(cudaFree(data));
            }));
}

/// Once the process's log tells that its first rank waits.
std::string await_warning(const std::string& path) {
  std::string log;
  while (log.find("have waited 10 s to be compared with the calls of others") == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::ifstream file(path);
    log.assign(std::istreambuf_iterator<char>(file), {});
  }
  return log;
}

/// Which of the program's threads calls next, and when, is not known: it is not failed for that.
TEST_F(StrictCircle, IsOnlyWarnedOfIfProgramsHaveSeveralThreads) {
  const TemporaryFolder folder;
  const SharedCount warned;
  const SharedCount looked;
  setenv("NCCL_DEBUG", "WARN", 1);
  setenv("NCCL_DEBUG_FILE", folder.file("%p").c_str(), 1);
  EXPECT_EQ("", run_processes(2, [&](int rank, const ncclUniqueId& id) {
              const Scene s(2, rank, id);
              ncclResult_t called = ncclSuccess;
              std::thread caller([&] { called = s.all_reduce(rank); });
              const std::string log = await_warning(folder.file(std::to_string(getpid())));
              warned.meet(2);
              const ncclResult_t state = state_of(s.comms[rank]);
              looked.meet(2);
              EXPECT_CALL(ncclCommAbort(s.comms[rank]));
              caller.join();
              expect_that(state == ncclSuccess, "it has failed");
              const char* const what = "AllReduce number 1 (count 10, type float32, op sum) of communicator";
              expect_that(log.find(what) != std::string::npos, log);
              expect_that(called != ncclSuccess, "it was compared");
              for (const int other : {1 - rank, 2}) EXPECT_CALL(ncclCommAbort(s.comms[other]));
              EXPECT_CALL(cudaFree(s.data));
            }));
  for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_FILE"}) unsetenv(name);
}

TEST_F(StrictCircle, IsNotWhatARankIsInThatWaitsForOneThatHasLeft) {
  const auto body = [](Rank& self, int leaver, const SharedCount& told) {
    float* data = nullptr;
    ncclComm_t comm = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
    EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
    const auto reduce = [&] { return ncclAllReduce(data, data, 10, ncclFloat, ncclSum, comm, self.stream); };
    EXPECT_CALL(reduce());
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
    if (self.rank == leaver) {
      static_cast<void>(ncclCommFinalize(comm));  // in one process nobody waits for the others
      told.wait_for(1);
    } else {
      const ncclResult_t called = reduce();
      const std::string sentence = ncclGetLastError(comm);
      told.add();
      expect_that(called == ncclInvalidUsage, "the call");
      expect_that(sentence.find("rank " + std::to_string(leaver)) != std::string::npos &&
                      (sentence.find("ncclCommFinalize or ncclCommDestroy") != std::string::npos ||
                       sentence.find("finalizes or destroys its communicator") != std::string::npos),
                  sentence);
    }
    EXPECT_CALL(ncclCommAbort(comm));
    EXPECT_CALL(cudaFree(data));
  };
  for (const std::vector<int>& processes : {std::vector<int>{1, 1}, {2}}) {
    for (const int leaver : {0, 1}) {
      const SharedCount told;
      EXPECT_EQ("", run_ranks(processes, [&](Rank& self) { body(self, leaver, told); }));
    }
  }
}

TEST_F(StrictCircle, IsNoneIfAnotherThreadMakesTheCall) {
  EXPECT_EQ("", run_processes(2, [](int rank, const ncclUniqueId& id) {
              const Scene s(2, rank, id);
              if (rank == 0) {
                std::thread other([&] {
                  use_device_of(0);
                  std::this_thread::sleep_for(std::chrono::seconds(2));
                  EXPECT_CALL(s.all_reduce(1));
                });
                EXPECT_CALL(s.all_reduce(0));
                other.join();
              } else {
                EXPECT_CALL(s.all_reduce(1));
                EXPECT_CALL(s.all_reduce(0));
              }
              s.end();
            }));
}

TEST_F(StrictCircle, IsNoneWhileALateRankIsBusy) {
  EXPECT_EQ("", run_processes(3, [](int rank, const ncclUniqueId& id) {
              const Scene s(3, rank, id);
              if (rank == 2) std::this_thread::sleep_for(std::chrono::seconds(2));
              for (int i = 0; i < Scene::kComms; ++i) EXPECT_CALL(s.all_reduce(i));
              s.end();
            }));
}

}  // namespace
}  // namespace nitinol::testing
