// Ranks whose calls do not match: every rank hears of it within a second, with both calls.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "nccl.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

constexpr int kOdd = 2;  // the rank that does something else

using Step = std::function<ncclResult_t(Rank& self, float* data)>;

ncclResult_t all_reduce(Rank& self, float* data, size_t count, ncclRedOp_t op = ncclSum) {
  return ncclAllReduce(data, data, count, ncclFloat, op, self.comm, self.stream);
}

struct Mismatch {
  const char* name;
  Step usual;
  Step odd;
  std::vector<const char*> words;  // of both calls
};

const std::vector<Mismatch>& mismatches() {
  static const std::vector<Mismatch> all = {
      {"Operation",
       [](Rank& r, float* d) { return all_reduce(r, d, 100); },
       [](Rank& r, float* d) { return ncclBroadcast(d, d, 100, ncclFloat, 0, r.comm, r.stream); },
       {"AllReduce number 3 (count 100, type float32, op sum)",
        "Broadcast number 3 (count 100, type float32, root 0)"}},
      {"Count",
       [](Rank& r, float* d) { return all_reduce(r, d, 100); },
       [](Rank& r, float* d) { return all_reduce(r, d, 99); },
       {"count 100", "count 99"}},
      {"LargeCount",
       [](Rank& r, float* d) { return all_reduce(r, d, 400'000); },
       [](Rank& r, float* d) { return all_reduce(r, d, 400'001); },
       {"count 400000", "count 400001"}},
      {"NoElements",
       [](Rank& r, float* d) { return all_reduce(r, d, 100); },
       [](Rank& r, float* d) { return all_reduce(r, d, 0); },
       {"count 100", "count 0"}},
      {"Operator",
       [](Rank& r, float* d) { return all_reduce(r, d, 100); },
       [](Rank& r, float* d) { return all_reduce(r, d, 100, ncclMax); },
       {"op sum", "op max"}},
      {"Type",
       [](Rank& r, float* d) { return all_reduce(r, d, 100); },
       [](Rank& r, float* d) { return ncclAllReduce(d, d, 100, ncclInt32, ncclSum, r.comm, r.stream); },
       {"type float32", "type int32"}},
      {"TypeOfBytes",
       [](Rank& r, float* d) { return ncclBroadcast(d, d, 50, ncclFloat, 0, r.comm, r.stream); },
       [](Rank& r, float* d) { return ncclBroadcast(d, d, 100, ncclFloat16, 0, r.comm, r.stream); },
       {"count 50, type float32", "count 100, type float16"}},
      // Nobody sends anything: the ranks' records tell.
      {"Root",
       [](Rank& r, float* d) { return ncclBroadcast(d, d, 100, ncclFloat, kOdd, r.comm, r.stream); },
       [](Rank& r, float* d) { return ncclBroadcast(d, d, 100, ncclFloat, 1, r.comm, r.stream); },
       {"root 2", "root 1"}},
      {"Order",
       [](Rank& r, float* d) {
         EXPECT_CALL(ncclGroupStart());
         static_cast<void>(all_reduce(r, d, 100));  // another rank's failure may be known already
         static_cast<void>(ncclReduce(d, d, 100, ncclFloat, ncclSum, 1, r.comm, r.stream));
         return ncclGroupEnd();
       },
       [](Rank& r, float* d) {
         EXPECT_CALL(ncclGroupStart());
         static_cast<void>(ncclReduce(d, d, 100, ncclFloat, ncclSum, 1, r.comm, r.stream));
         static_cast<void>(all_reduce(r, d, 100));
         return ncclGroupEnd();
       },
       {"AllReduce number 3", "Reduce number 3"}},
  };
  return all;
}

void must_hear(const Mismatch& mismatch, ncclComm_t comm) {
  const std::string sentence = ncclGetLastError(comm);
  for (const char* word : mismatch.words) {
    if (sentence.find(word) == std::string::npos) {
      throw std::runtime_error(std::string(mismatch.name) + ": '" + sentence + "' lacks '" + word + "'");
    }
  }
  if (sentence.find("rank 2 ") == std::string::npos) throw std::runtime_error(sentence + ": lacks the odd rank");
}

void differ(const Mismatch& mismatch, Rank& self, float* data) {
  Rank mine = self;
  EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &mine.comm, nullptr));
  for (int i = 0; i < 2; ++i) EXPECT_CALL(all_reduce(mine, data, 10));
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  const ncclResult_t called = (self.rank == kOdd ? mismatch.odd : mismatch.usual)(mine, data);
  if (called != ncclSuccess && called != ncclInvalidUsage)
    throw std::runtime_error("called: " + std::to_string(called));
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  ncclResult_t state = ncclSuccess;
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::seconds(30);  // for slow machines; it takes 0.1 s
  while (state == ncclSuccess && std::chrono::steady_clock::now() < deadline) {
    EXPECT_CALL(ncclCommGetAsyncError(mine.comm, &state));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (state != ncclInvalidUsage) throw std::runtime_error(std::string(mismatch.name) + ": " + std::to_string(state));
  must_hear(mismatch, mine.comm);
  EXPECT_CALL(ncclCommAbort(mine.comm));
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
}

std::string run(const std::vector<int>& processes) {
  return run_ranks(processes, [](Rank& self) {
    float* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4 << 20));
    for (const Mismatch& mismatch : mismatches()) differ(mismatch, self, data);
    EXPECT_CALL(all_reduce(self, data, 10));  // the parent is as good as ever
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
    EXPECT_CALL(cudaFree(data));
  });
}

TEST(Mismatch, IsHeardOnEveryRankOfSeveralProcesses) { EXPECT_EQ("", run({1, 1, 1, 1})); }
TEST(Mismatch, IsHeardByThreadsToo) { EXPECT_EQ("", run({2, 2})); }
TEST(Mismatch, IsHeardInOneProcess) { EXPECT_EQ("", run({3})); }

/// All but rank 2 wait for what it does not do; nobody has set a deadline.
std::string hear_of_the_odd_rank(const Step& usual, const Step& odd, const char* words) {
  return run_processes(3, [&](int process, const ncclUniqueId& id) {
    Rank self{process, 3, nullptr, nullptr};
    float* data = nullptr;
    use_device_of(process);
    EXPECT_CALL(cudaStreamCreateWithFlags(&self.stream, cudaStreamNonBlocking));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 20'000'000));
    EXPECT_CALL(ncclCommInitRank(&self.comm, 3, id, process));
    EXPECT_CALL(all_reduce(self, data, 10));
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
    static_cast<void>((process == kOdd ? odd : usual)(self, data));
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) EXPECT_CALL(ncclCommGetAsyncError(self.comm, &state));
    const std::string sentence = ncclGetLastError(self.comm);
    const bool said = sentence.find(words) != std::string::npos && sentence.find("rank 2") != std::string::npos;
    if (state != ncclInvalidUsage || !said) throw std::runtime_error(std::to_string(state) + ": " + sentence);
    EXPECT_CALL(ncclCommAbort(self.comm));
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
  });
}

TEST(Mismatch, OfAMessageWithACollectiveThatWaits) {
  const Step collective = [](Rank& r, float* d) { return all_reduce(r, d, 100); };
  const Step receive = [](Rank& r, float* d) {
    return r.rank == 0 ? ncclRecv(d, 10, ncclFloat, kOdd, r.comm, r.stream) : all_reduce(r, d, 100);
  };
  EXPECT_EQ("", hear_of_the_odd_rank(receive, collective, "cannot leave it before rank 0 has joined it"));
  const Step send = [](Rank& r, float* d) {  // more than fits into the queue
    return r.rank == 0 ? ncclSend(d, 5'000'000, ncclFloat, kOdd, r.comm, r.stream) : all_reduce(r, d, 100);
  };
  setenv("NCCL_BUFFSIZE", "1024", 1);
  EXPECT_EQ("", hear_of_the_odd_rank(send, collective, "cannot leave it before rank 0 has joined it"));
  unsetenv("NCCL_BUFFSIZE");
}

TEST(Mismatch, OfTheSizesOfMessages) {
  const Step odd = [](Rank& r, float* d) { return ncclSend(d, 30'000, ncclFloat, 0, r.comm, r.stream); };
  const Step receive = [](Rank& r, float* d) {
    return r.rank == 0 ? ncclRecv(d, 40'000, ncclFloat, kOdd, r.comm, r.stream) : ncclSuccess;
  };
  // Whoever of the two notices says its own call last.
  EXPECT_EQ("", hear_of_the_odd_rank(receive, odd, "calls Recv number 1 from rank 2 (count 40000, type float32)"));
}

TEST(Mismatch, OfTheTypesOfMessages) {
  const Step odd = [](Rank& r, float* d) { return ncclSend(d, 6, ncclFloat16, 0, r.comm, r.stream); };
  const Step same_count = [](Rank& r, float* d) {
    return r.rank == 0 ? ncclRecv(d, 6, ncclBfloat16, kOdd, r.comm, r.stream) : ncclSuccess;
  };
  const char* const words = "calls Send number 1 to rank 0 (count 6, type float16)";
  EXPECT_EQ("", hear_of_the_odd_rank(same_count, odd, words));
  const Step same_bytes = [](Rank& r, float* d) {
    return r.rank == 0 ? ncclRecv(d, 3, ncclInt32, kOdd, r.comm, r.stream) : ncclSuccess;
  };
  EXPECT_EQ("", hear_of_the_odd_rank(same_bytes, odd, words));
}

TEST(Mismatch, OfMessagesToOneself) {
  EXPECT_EQ(
      "", run_ranks({1}, [](Rank& self) {
        float* data = nullptr;
        EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
        EXPECT_CALL(ncclGroupStart());
        EXPECT_CALL(ncclSend(data, 4, ncclFloat, 0, self.comm, self.stream));
        EXPECT_CALL(ncclRecv(data, 4, ncclInt32, 0, self.comm, self.stream));
        if (ncclGroupEnd() != ncclInvalidUsage) throw std::runtime_error("accepted");
        const std::string sentence = ncclGetLastError(self.comm);
        if (sentence.find("Send number 1 to rank 0 (count 4, type float32) and Recv number 1 from rank 0 (count 4, "
                          "type int32)") == std::string::npos) {
          throw std::runtime_error(sentence);
        }
        EXPECT_CALL(cudaFree(data));
      }));
}

TEST(Mismatch, OfASplitWithLeaving) {
  const Step split = [](Rank& r, float*) {
    ncclComm_t child = nullptr;
    return ncclCommSplit(r.comm, 0, 0, &child, nullptr);
  };
  const Step leave = [](Rank& r, float*) { return ncclCommFinalize(r.comm); };
  EXPECT_EQ("", hear_of_the_odd_rank(split, leave, "in ncclCommFinalize or ncclCommDestroy"));
}

TEST(Mismatch, OfACallWithLeaving) {
  const Step collective = [](Rank& r, float* d) { return all_reduce(r, d, 100); };
  const Step receive = [](Rank& r, float* d) { return ncclRecv(d, 10, ncclFloat, kOdd, r.comm, r.stream); };
  const Step leave = [](Rank& r, float*) { return ncclCommFinalize(r.comm); };
  EXPECT_EQ("", hear_of_the_odd_rank(collective, leave, "finalizes or destroys its communicator"));
  EXPECT_EQ("", hear_of_the_odd_rank(receive, leave, "finalizes or destroys its communicator"));
}

const char* const kInACircle = "wait for each other in a circle: rank 0 ";

ncclResult_t receive_before_sending(Rank& r, float* d) {
  if (r.rank == 1) return ncclSuccess;  // hears of it all the same
  const ncclResult_t received = ncclRecv(d, 10, ncclFloat, 2 - r.rank, r.comm, r.stream);
  return received != ncclSuccess ? received : ncclSend(d, 10, ncclFloat, 2 - r.rank, r.comm, r.stream);
}

TEST(Mismatch, OfSendsAndReceivesThatWaitForEachOtherInACircle) {
  const Step send_first = [](Rank& r, float* d) {  // more than fits into the queue
    const ncclResult_t sent = ncclSend(d, 5'000'000, ncclFloat, (r.rank + 1) % 3, r.comm, r.stream);
    return sent != ncclSuccess ? sent : ncclRecv(d, 5'000'000, ncclFloat, (r.rank + 2) % 3, r.comm, r.stream);
  };
  setenv("NCCL_BUFFSIZE", "1024", 1);
  EXPECT_EQ("", hear_of_the_odd_rank(send_first, send_first, kInACircle));
  unsetenv("NCCL_BUFFSIZE");
  EXPECT_EQ("", hear_of_the_odd_rank(receive_before_sending, receive_before_sending, kInACircle));
}

TEST(Mismatch, OfMessagesInGraphsThatWaitForEachOtherInACircle) {
#if !defined(NITINOL_VGPU)
  GTEST_SKIP() << "GPUs do not tell: the host does not see launches of graphs";
#endif
  const Step in_graphs = [](Rank& r, float* d) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    EXPECT_CALL(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal));
    EXPECT_CALL(receive_before_sending(r, d));
    EXPECT_CALL(cudaStreamEndCapture(r.stream, &graph));
    EXPECT_CALL(cudaGraphInstantiate(&executable, graph, 0));
    EXPECT_CALL(cudaGraphLaunch(executable, r.stream));
    EXPECT_CALL(cudaGraphExecDestroy(executable));
    EXPECT_CALL(cudaGraphDestroy(graph));
    return ncclSuccess;
  };
  EXPECT_EQ("", hear_of_the_odd_rank(in_graphs, in_graphs, kInACircle));
}

TEST(Mismatch, ThatHoldsNobodyUpIsHeardWhenAllLeave) {
#if !defined(NITINOL_VGPU)
  GTEST_SKIP() << "GPUs tell at once";
#endif
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              ncclComm_t comm = nullptr;
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              // Each is the root that sends, and none receives.
              EXPECT_CALL(ncclBroadcast(data, data, 10, ncclFloat, self.rank, comm, self.stream));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              const ncclResult_t left = ncclCommFinalize(comm);
              const std::string sentence = ncclGetLastError(comm);
              const bool both =
                  sentence.find("root 0)") != std::string::npos && sentence.find("root 1)") != std::string::npos;
              if (left != ncclInvalidUsage || !both) throw std::runtime_error(std::to_string(left) + ": " + sentence);
              EXPECT_CALL(ncclCommDestroy(comm));
              EXPECT_CALL(cudaFree(data));
            }));
}

/// Each rank uses two communicators in an order of its own, in one stream. One of them fails; the other is as good as
/// ever.
void use_in_different_orders(Rank& self, bool grouped) {
  float* data = nullptr;
  ncclComm_t comms[2];
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
  for (ncclComm_t& comm : comms) EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
  if (grouped) EXPECT_CALL(ncclGroupStart());
  for (int i = 0; i < 2; ++i) {
    const ncclComm_t comm = comms[(i + self.rank) % 2];
    EXPECT_CALL(ncclAllReduce(data, data, 10, ncclFloat, ncclSum, comm, self.stream));
  }
  if (grouped) EXPECT_CALL(ncclGroupEnd());
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  ncclResult_t states[2] = {};
  while (states[0] == ncclSuccess && states[1] == ncclSuccess) {
    for (int i = 0; i < 2; ++i) EXPECT_CALL(ncclCommGetAsyncError(comms[i], &states[i]));
  }
  const int failed = states[0] == ncclSuccess ? 1 : 0;
  const std::string sentence = ncclGetLastError(comms[failed]);
  if (states[failed] != ncclInvalidUsage || sentence.find("circle over several communicators") == std::string::npos) {
    throw std::runtime_error(std::to_string(states[failed]) + ": " + sentence);
  }
  EXPECT_CALL(ncclAllReduce(data, data, 10, ncclFloat, ncclSum, comms[1 - failed], self.stream));
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  EXPECT_CALL(ncclCommAbort(comms[failed]));
  EXPECT_CALL(ncclCommDestroy(comms[1 - failed]));
  EXPECT_CALL(cudaFree(data));
}

TEST(Mismatch, OfTheOrderOfTwoCommunicatorsInAStream) {
#if !defined(NITINOL_VGPU)
  GTEST_SKIP() << "GPUs do not tell";
#endif
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) { use_in_different_orders(self, false); }));
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) { use_in_different_orders(self, true); }));
}

/// In strict mode ranks wait for each other on the host.
std::string hear_in_strict_mode(const Step& odd, const char* words, ncclResult_t code) {
  setenv("NITINOL_CHECK", "strict", 1);
  const SharedCount heard;
  const std::string wrong = run_processes(3, [&](int process, const ncclUniqueId& id) {
    Rank self{process, 3, nullptr, nullptr};
    float* data = nullptr;
    use_device_of(process);
    EXPECT_CALL(cudaStreamCreateWithFlags(&self.stream, cudaStreamNonBlocking));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
    EXPECT_CALL(ncclCommInitRank(&self.comm, 3, id, process));
    EXPECT_CALL(all_reduce(self, data, 10));
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
    const ncclResult_t called = process == kOdd ? odd(self, data) : all_reduce(self, data, 17);
    if (process == kOdd) {
      heard.wait_for(2);
    } else {
      const std::string sentence = ncclGetLastError(self.comm);
      heard.add();
      if (called != code || sentence.find(words) == std::string::npos || sentence.find("rank 2") == std::string::npos) {
        throw std::runtime_error(std::to_string(called) + ": " + sentence);
      }
    }
    EXPECT_CALL(all_reduce(self, data, 1) == ncclSuccess ? ncclInternalError : ncclSuccess);
    EXPECT_CALL(ncclCommAbort(self.comm));
  });
  unsetenv("NITINOL_CHECK");
  return wrong;
}

TEST(Mismatch, InStrictModeThoseWhoWaitHearWhatTheOddRankDoes) {
  const Step leave = [](Rank& r, float*) { return ncclCommFinalize(r.comm); };
  EXPECT_EQ("", hear_in_strict_mode(leave, "rank 2 in ncclCommFinalize or ncclCommDestroy", ncclInvalidUsage));
  const Step revoke = [](Rank& r, float*) { return ncclCommRevoke(r.comm, NCCL_REVOKE_DEFAULT); };
  EXPECT_EQ("", hear_in_strict_mode(revoke, "carries out nothing any more", ncclRemoteError));
  const Step nothing = [](Rank& r, float*) {
    ncclResult_t state = ncclSuccess;
    while (state == ncclSuccess) EXPECT_CALL(ncclCommGetAsyncError(r.comm, &state));
    return state;
  };
  const Step receive = [](Rank& r, float* d) { return ncclRecv(d, 4, ncclFloat, 0, r.comm, r.stream); };
  EXPECT_EQ("", hear_in_strict_mode(receive, "which calls AllReduce number 2 (count 17, type float32, op sum) next",
                                    ncclInvalidUsage));
  setenv("NITINOL_TIMEOUT", "1", 1);
  EXPECT_EQ("",
            hear_in_strict_mode(nothing,
                                "in AllReduce number 2 (count 17, type float32, op sum); its process is alive; idle, "
                                "its last collective was AllReduce number 1 (count 10, type float32, op sum)",
                                ncclRemoteError));
  unsetenv("NITINOL_TIMEOUT");
}

TEST(Mismatch, InStrictModeNothingRuns) {
  setenv("NITINOL_CHECK", "strict", 1);
  EXPECT_EQ("", run({1, 1, 1, 1}));
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              int* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              const int before = 41 + self.rank;
              EXPECT_CALL(cudaMemcpy(data, &before, sizeof(int), cudaMemcpyHostToDevice));
              Rank mine = self;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &mine.comm, nullptr));
              const ncclResult_t called =
                  ncclAllReduce(data, data, self.rank == 0 ? 1 : 2, ncclInt, ncclSum, mine.comm, self.stream);
              if (called != ncclInvalidUsage) throw std::runtime_error("accepted");
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              int after = 0;
              EXPECT_CALL(cudaMemcpy(&after, data, sizeof(int), cudaMemcpyDeviceToHost));
              if (after != before) throw std::runtime_error("it ran all the same");
              EXPECT_CALL(ncclCommAbort(mine.comm));
              EXPECT_CALL(cudaFree(data));
            }));
  unsetenv("NITINOL_CHECK");
}

}  // namespace
}  // namespace nitinol::testing
