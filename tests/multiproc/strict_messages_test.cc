// NITINOL_CHECK=strict: sends and receives are compared before they run.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "device_memory.h"
#include "nccl.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

class StrictMessages : public ::testing::Test {
 protected:
  StrictMessages() { setenv("NITINOL_CHECK", "strict", 1); }
  ~StrictMessages() override {
    unsetenv("NITINOL_CHECK");
    unsetenv("NITINOL_TIMEOUT");
  }
};

constexpr int kValues = 64;

/// A communicator and a buffer of each rank.
struct Scene {
  Rank self;
  int* data = nullptr;
};

Scene make_scene(const Rank& rank) {
  Scene s{rank};
  EXPECT_CALL(ncclCommSplit(rank.comm, 0, rank.rank, &s.self.comm, nullptr));
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&s.data), kValues * sizeof(int)));
  const std::vector<int> values(kValues, rank.rank);
  EXPECT_CALL(copy_to_device(s.data, values.data(), kValues * sizeof(int)));
  return s;
}

void end_scene(const Scene& s) {
  EXPECT_CALL(cudaStreamSynchronize(s.self.stream));
  EXPECT_CALL(ncclCommDestroy(s.self.comm));
  EXPECT_CALL(cudaFree(s.data));
}

ncclResult_t send(const Scene& s, int peer, size_t count, int from = 0) {
  return ncclSend(s.data + from, count, ncclInt, peer, s.self.comm, s.self.stream);
}

ncclResult_t receive(const Scene& s, int peer, size_t count, int into = 0) {
  return ncclRecv(s.data + into, count, ncclInt, peer, s.self.comm, s.self.stream);
}

ncclResult_t all_reduce(const Scene& s) {
  return ncclAllReduce(s.data, s.data, 1, ncclInt, ncclSum, s.self.comm, s.self.stream);
}

/// Rounds of whatever is right: a ring in a group, pairs without one, with collectives and empty messages between.
void exchange_rightly(Rank& rank) {
  const Scene s = make_scene(rank);
  const int next = (rank.rank + 1) % rank.ranks;
  const int before = (rank.rank + rank.ranks - 1) % rank.ranks;
  for (size_t round = 1; round <= 20; ++round) {
    EXPECT_CALL(ncclGroupStart());
    EXPECT_CALL(send(s, next, round));
    EXPECT_CALL(receive(s, before, round, 32));
    EXPECT_CALL(send(s, rank.rank, 2));
    EXPECT_CALL(receive(s, rank.rank, 2, 60));
    if (rank.rank == 0) EXPECT_CALL(send(s, 1, 0));
    if (rank.rank == 1) EXPECT_CALL(receive(s, 0, 0));
    EXPECT_CALL(ncclGroupEnd());
    EXPECT_CALL(cudaStreamSynchronize(s.self.stream));
    int got = -1;
    EXPECT_CALL(cudaMemcpy(&got, s.data + 32, sizeof(int), cudaMemcpyDeviceToHost));
    if (got != before) throw std::runtime_error("received " + std::to_string(got));
    if (rank.rank == 0) EXPECT_CALL(send(s, 1, 3));
    if (rank.rank == 1) EXPECT_CALL(receive(s, 0, 3, 40));
    EXPECT_CALL(ncclAllReduce(s.data + 50, s.data + 50, 1, ncclInt, ncclSum, s.self.comm, s.self.stream));
    // The other end of a message in a group with a collective may come before the collective, or after it.
    const bool first = round % 2 == 0;
    if (rank.rank == 1) EXPECT_CALL(ncclGroupStart());
    if (rank.rank == 1) EXPECT_CALL(receive(s, 0, 1, 41));
    if (rank.rank == 0 && first) EXPECT_CALL(send(s, 1, 1));
    EXPECT_CALL(ncclAllReduce(s.data + 50, s.data + 50, 1, ncclInt, ncclSum, s.self.comm, s.self.stream));
    if (rank.rank == 1) EXPECT_CALL(ncclGroupEnd());
    if (rank.rank == 0 && !first) EXPECT_CALL(send(s, 1, 1));
  }
  end_scene(s);
}

TEST_F(StrictMessages, ThatMatchRunAsEver) {
  EXPECT_EQ("", run_ranks({1, 1, 1}, exchange_rightly));
  EXPECT_EQ("", run_ranks({2}, exchange_rightly));
  EXPECT_EQ("", run_ranks({2, 2}, exchange_rightly));
}

TEST_F(StrictMessages, OfSeveralRanksOfOneThreadRunInAGroup) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              ncclComm_t comms[2];
              int* data[2] = {};
              cudaStream_t streams[2] = {};
              make_communicators(comms, 2);
              EXPECT_CALL(ncclGroupStart());
              for (int rank = 0; rank < 2; ++rank) {
                use_device_of(rank);
                EXPECT_CALL(cudaStreamCreateWithFlags(&streams[rank], cudaStreamNonBlocking));
                EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data[rank]), 4096));
                EXPECT_CALL(ncclSend(data[rank], 4, ncclInt, 1 - rank, comms[rank], streams[rank]));
                EXPECT_CALL(ncclRecv(data[rank] + 4, 4, ncclInt, 1 - rank, comms[rank], streams[rank]));
              }
              EXPECT_CALL(ncclGroupEnd());
              for (int rank = 0; rank < 2; ++rank) {
                use_device_of(rank);
                EXPECT_CALL(cudaDeviceSynchronize());
                EXPECT_CALL(ncclCommDestroy(comms[rank]));
              }
            }));
}

/// One end captures its call once, and the other makes it as often as the graph is launched.
TEST_F(StrictMessages, OfGraphsAreLeftToWhenTheyRun) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& rank) {
              const Scene s = make_scene(rank);
              if (rank.rank == 0) {
                cudaGraph_t graph = nullptr;
                cudaGraphExec_t executable = nullptr;
                EXPECT_CALL(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeThreadLocal));
                EXPECT_CALL(send(s, 1, 5));
                EXPECT_CALL(cudaStreamEndCapture(rank.stream, &graph));
                EXPECT_CALL(cudaGraphInstantiate(&executable, graph, 0));
                for (int i = 0; i < 3; ++i) EXPECT_CALL(cudaGraphLaunch(executable, rank.stream));
                EXPECT_CALL(cudaStreamSynchronize(rank.stream));
                EXPECT_CALL(cudaGraphExecDestroy(executable));
                EXPECT_CALL(cudaGraphDestroy(graph));
              } else {
                for (int i = 0; i < 3; ++i) EXPECT_CALL(receive(s, 0, 5));
              }
              end_scene(s);
            }));
}

struct Wrong {
  std::function<ncclResult_t(const Scene& s)> call;
  std::vector<std::string> words;  ///< of which one stands in what each rank hears
  ncclResult_t code = ncclInvalidUsage;
};

/// Each rank calls, and hears of it; nothing has run.
std::string hear_of(const Wrong& wrong) {
  return run_ranks({1, 1, 1}, [&](Rank& rank) {
    const Scene s = make_scene(rank);
    static_cast<void>(wrong.call(s));
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) EXPECT_CALL(ncclCommGetAsyncError(s.self.comm, &state));
    const std::string sentence = ncclGetLastError(s.self.comm);
    bool said = false;
    for (const std::string& words : wrong.words) said = said || sentence.find(words) != std::string::npos;
    if (state != wrong.code || !said) throw std::runtime_error(std::to_string(state) + ": " + sentence);
    EXPECT_CALL(ncclCommAbort(s.self.comm));
    EXPECT_CALL(cudaStreamSynchronize(rank.stream));
    std::vector<int> values(kValues);
    EXPECT_CALL(cudaMemcpy(values.data(), s.data, kValues * sizeof(int), cudaMemcpyDeviceToHost));
    if (values != std::vector<int>(kValues, rank.rank)) throw std::runtime_error("something has run");
    EXPECT_CALL(cudaFree(s.data));
  });
}

TEST_F(StrictMessages, OfOtherSizesOrTypesAreTold) {
  EXPECT_EQ("", hear_of({[](const Scene& s) {
                           if (s.self.rank == 0) return send(s, 2, 7);
                           return s.self.rank == 2 ? receive(s, 0, 8) : ncclSuccess;
                         },
                         {"rank 0 calls Send number 1 to rank 2 (count 7, type int32), rank 2 ",
                          "rank 2 calls Recv number 1 from rank 0 (count 8, type int32), rank 0 "}}));
  EXPECT_EQ("", hear_of({[](const Scene& s) {
                           if (s.self.rank == 0) return send(s, 2, 7);
                           if (s.self.rank != 2) return ncclSuccess;
                           return ncclRecv(s.data, 7, ncclFloat, 0, s.self.comm, s.self.stream);
                         },
                         {"count 7, type float32"}}));
}

TEST_F(StrictMessages, ThatNobodyCanMakeAnyMoreAreTold) {
  const auto at_rank_0 = [](std::function<ncclResult_t(const Scene&)> other) {
    return [other = std::move(other)](const Scene& s) { return s.self.rank == 0 ? send(s, 1, 5) : other(s); };
  };
  EXPECT_EQ("",
            hear_of({at_rank_0(all_reduce), {"which calls AllReduce number 1 (count 1, type int32, op sum) next"}}));
  EXPECT_EQ(
      "",
      hear_of({at_rank_0([](const Scene& s) { return s.self.rank == 1 ? ncclCommFinalize(s.self.comm) : ncclSuccess; }),
               {"which finalizes or destroys its communicator: it calls Send number 1 to rank 1 (count 5",
                "finalizes or destroys"}}));
}

TEST_F(StrictMessages, ThatWaitForEachOtherInACircleAreTold) {
  for (const bool sends_first : {false, true}) {
    EXPECT_EQ("", hear_of({[&](const Scene& s) {
                             const int peer = (s.self.rank + (sends_first ? 1 : 2)) % 3;
                             return sends_first ? send(s, peer, 5) : receive(s, peer, 5);
                           },
                           {"wait for each other in a circle: rank 0 "}}));
  }
}

TEST_F(StrictMessages, OfARankThatDoesNotCallEndWithTheDeadline) {
  setenv("NITINOL_TIMEOUT", std::to_string(kShortTime).c_str(), 1);
  EXPECT_EQ("",
            hear_of({[](const Scene& s) { return s.self.rank == 0 ? receive(s, 1, 5) : ncclSuccess; },
                     {"to make the call that matches Recv number 1 from rank 1 (count 5, type int32); its process is "
                      "alive"},
                     ncclRemoteError}));
}

TEST_F(StrictMessages, OfARankThatRevokesEnd) {
  EXPECT_EQ(
      "", run_ranks({1, 1}, [](Rank& rank) {
        const Scene s = make_scene(rank);
        EXPECT_CALL(all_reduce(s));
        EXPECT_CALL(cudaStreamSynchronize(rank.stream));
        if (rank.rank == 1) {
          EXPECT_CALL(ncclCommRevoke(s.self.comm, NCCL_REVOKE_DEFAULT));
        } else if (receive(s, 1, 5) != ncclRemoteError ||
                   std::string(ncclGetLastError(s.self.comm)).find("carries out nothing any more") ==
                       std::string::npos) {
          throw std::runtime_error(ncclGetLastError(s.self.comm));
        }
        EXPECT_CALL(ncclAllReduce(s.data, s.data, 1, ncclInt, ncclSum, rank.comm, rank.stream));  // both are through
        EXPECT_CALL(cudaStreamSynchronize(rank.stream));
        EXPECT_CALL(ncclCommAbort(s.self.comm));
        EXPECT_CALL(cudaFree(s.data));
      }));
}

TEST_F(StrictMessages, OfACommunicatorThatIsAbortedEnd) {
  const SharedCount aborted;
  EXPECT_EQ("", run_ranks({2}, [&](Rank& rank) {
              const Scene s = make_scene(rank);
              if (rank.rank == 0) {
                std::atomic<bool> began{false};
                ncclResult_t called = ncclSuccess;
                std::thread other([&] {
                  use_device_of(rank.rank);
                  began = true;
                  called = receive(s, 1, 5);
                });
                while (!began) std::this_thread::yield();
                EXPECT_CALL(ncclCommAbort(s.self.comm));
                aborted.add();
                other.join();
                if (called == ncclSuccess) throw std::runtime_error("received nothing");
              } else {
                aborted.wait_for(1);
                EXPECT_CALL(ncclCommAbort(s.self.comm));
              }
              EXPECT_CALL(cudaFree(s.data));
            }));
}

TEST_F(StrictMessages, OfARankThatDiesEnd) {
  EXPECT_EQ("process 1 ended by signal 9\n", run_processes(2, [](int process, const ncclUniqueId& id) {
              Rank rank{process, 2, nullptr, nullptr};
              use_device_of(process);
              EXPECT_CALL(ncclCommInitRank(&rank.comm, 2, id, process));
              if (process == 1) raise(SIGKILL);
              int* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              if (ncclRecv(data, 5, ncclInt, 1, rank.comm, nullptr) != ncclRemoteError) {
                throw std::runtime_error(ncclGetLastError(rank.comm));
              }
              EXPECT_CALL(ncclCommAbort(rank.comm));
            }));
}

}  // namespace
}  // namespace nitinol::testing
