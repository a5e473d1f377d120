// Ranks whose calls do not match: every rank hears of it within a second, with both calls.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "nccl.h"
#include "nitinol.h"
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
  /// What every rank hears, each of the same rank: of one that is not the odd one, and of that. "N" stands for the
  /// former, the odd rank is rank 2. Where ranks live is left out.
  std::vector<const char*> words;
};

const std::vector<Mismatch>& mismatches() {
  static const std::vector<Mismatch> all = {
      {"Operation",
       [](Rank& r, float* d) { return all_reduce(r, d, 100); },
       [](Rank& r, float* d) { return ncclBroadcast(d, d, 100, ncclFloat, 0, r.comm, r.stream); },
       {"rank N calls AllReduce number 3 (count 100, type float32, op sum)",
        "rank 2 calls Broadcast number 3 (count 100, type float32, root 0)"}},
      {"Count",
       [](Rank& r, float* d) { return all_reduce(r, d, 100); },
       [](Rank& r, float* d) { return all_reduce(r, d, 99); },
       {"rank N calls AllReduce number 3 (count 100, type float32, op sum)",
        "rank 2 calls AllReduce number 3 (count 99, type float32, op sum)"}},
      {"LargeCount",
       [](Rank& r, float* d) { return all_reduce(r, d, 400'000); },
       [](Rank& r, float* d) { return all_reduce(r, d, 400'001); },
       {"rank N calls AllReduce number 3 (count 400000, type float32, op sum)",
        "rank 2 calls AllReduce number 3 (count 400001, type float32, op sum)"}},
      {"NoElements",
       [](Rank& r, float* d) { return all_reduce(r, d, 100); },
       [](Rank& r, float* d) { return all_reduce(r, d, 0); },
       {"rank N calls AllReduce number 3 (count 100, type float32, op sum)",
        "rank 2 calls AllReduce number 3 (count 0, type float32, op sum)"}},
      {"Operator",
       [](Rank& r, float* d) { return all_reduce(r, d, 100); },
       [](Rank& r, float* d) { return all_reduce(r, d, 100, ncclMax); },
       {"rank N calls AllReduce number 3 (count 100, type float32, op sum)",
        "rank 2 calls AllReduce number 3 (count 100, type float32, op max)"}},
      {"Type",
       [](Rank& r, float* d) { return all_reduce(r, d, 100); },
       [](Rank& r, float* d) { return ncclAllReduce(d, d, 100, ncclInt32, ncclSum, r.comm, r.stream); },
       {"rank N calls AllReduce number 3 (count 100, type float32, op sum)",
        "rank 2 calls AllReduce number 3 (count 100, type int32, op sum)"}},
      {"TypeOfBytes",
       [](Rank& r, float* d) { return ncclBroadcast(d, d, 50, ncclFloat, 0, r.comm, r.stream); },
       [](Rank& r, float* d) { return ncclBroadcast(d, d, 100, ncclFloat16, 0, r.comm, r.stream); },
       {"rank N calls Broadcast number 3 (count 50, type float32, root 0)",
        "rank 2 calls Broadcast number 3 (count 100, type float16, root 0)"}},
      // Nobody sends anything: the ranks' records tell.
      {"Root",
       [](Rank& r, float* d) { return ncclBroadcast(d, d, 100, ncclFloat, kOdd, r.comm, r.stream); },
       [](Rank& r, float* d) { return ncclBroadcast(d, d, 100, ncclFloat, 1, r.comm, r.stream); },
       {"rank N calls Broadcast number 3 (count 100, type float32, root 2)",
        "rank 2 calls Broadcast number 3 (count 100, type float32, root 1)"}},
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
       {"rank N calls AllReduce number 3 (count 100, type float32, op sum)",
        "rank 2 calls Reduce number 3 (count 100, type float32, op sum, root 1)"}},
  };
  return all;
}

/// Whether the sentence has the words, with the number of some rank for N.
bool tells(const std::string& sentence, std::string words) {
  const size_t any = words.find("rank N");
  if (any == std::string::npos) return sentence.find(words) != std::string::npos;
  for (const char rank : {'0', '1', '3'}) {
    words[any + 5] = rank;
    if (sentence.find(words) != std::string::npos) return true;
  }
  return false;
}

/// By hand: regular expressions of several threads are a data race in the C++ library, as ThreadSanitizer sees it.
std::string without_places(std::string sentence) {
  for (size_t begin; (begin = sentence.find(" (host ")) != std::string::npos;) {
    sentence.erase(begin, sentence.find(')', begin) - begin + 1);
  }
  return sentence;
}

void must_hear(const Mismatch& mismatch, ncclComm_t comm) {
  const std::string sentence = ncclGetLastError(comm);
  for (const char* word : mismatch.words) {
    if (!tells(without_places(sentence), word)) {
      throw std::runtime_error(std::string(mismatch.name) + ": '" + sentence + "' lacks '" + word + "'");
    }
  }
}

void differ(const Mismatch& mismatch, Rank& self, float* data) {
  Rank mine = self;
  EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &mine.comm, nullptr));
  for (int i = 0; i < 2; ++i) EXPECT_CALL(all_reduce(mine, data, 10));
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  const ncclResult_t called = (self.rank == kOdd ? mismatch.odd : mismatch.usual)(mine, data);
  if (called != ncclSuccess && called != ncclInvalidUsage)
    throw std::runtime_error(std::string(mismatch.name) + " called: " + std::to_string(called));
  ncclResult_t state = ncclSuccess;
  const auto start = std::chrono::steady_clock::now();
  const auto deadline = start + std::chrono::seconds(30);  // for slow machines; it takes less than one
  while (state == ncclSuccess && std::chrono::steady_clock::now() < deadline) {
    EXPECT_CALL(ncclCommGetAsyncError(mine.comm, &state));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (state != ncclInvalidUsage) throw std::runtime_error(std::string(mismatch.name) + ": " + std::to_string(state));
  const std::chrono::duration<double, std::milli> heard_after = std::chrono::steady_clock::now() - start;
  std::printf("%s: rank %d heard of it after %.0f ms\n", mismatch.name, self.rank, heard_after.count());
  must_hear(mismatch, mine.comm);
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  EXPECT_CALL(ncclCommAbort(mine.comm));
}

/// All in one set of processes: starting up GPUs takes long.
std::string run(const std::vector<int>& processes, const std::vector<Mismatch>& all) {
  return run_ranks(processes, [&](Rank& self) {
    float* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 20'000'000));
    for (const Mismatch& mismatch : all) differ(mismatch, self, data);
    EXPECT_CALL(all_reduce(self, data, 10));  // the parent is as good as ever
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
    EXPECT_CALL(cudaFree(data));
  });
}

TEST(Mismatch, IsHeardOnEveryRankOfSeveralProcesses) { EXPECT_EQ("", run({1, 1, 1, 1}, mismatches())); }
TEST(Mismatch, IsHeardByThreadsToo) { EXPECT_EQ("", run({2, 2}, mismatches())); }
TEST(Mismatch, IsHeardInOneProcess) { EXPECT_EQ("", run({3}, mismatches())); }

ncclResult_t usual_all_reduce(Rank& r, float* d) { return all_reduce(r, d, 100); }
ncclResult_t leave(Rank& r, float*) { return ncclCommFinalize(r.comm); }
ncclResult_t nothing(Rank&, float*) { return ncclSuccess; }

ncclResult_t split(Rank& r, float*) {
  ncclComm_t child = nullptr;
  return ncclCommSplit(r.comm, 0, 0, &child, nullptr);
}

ncclResult_t shrink_without_rank_1(Rank& r, float*) {
  int excluded = 1;
  ncclComm_t child = nullptr;
  return ncclCommShrink(r.comm, &excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT);
}

ncclResult_t receive_from_the_odd_rank(Rank& r, float* d, size_t count, ncclDataType_t type) {
  return r.rank == 0 ? ncclRecv(d, count, type, kOdd, r.comm, r.stream) : ncclSuccess;
}

/// Messages, where nobody has set a deadline and some wait for what others do not do.
const std::vector<Mismatch>& mismatches_of_messages() {
  static const std::vector<Mismatch> all = {
      {"ReceiveAndCollective",
       [](Rank& r, float* d) {
         return r.rank == 0 ? ncclRecv(d, 10, ncclFloat, kOdd, r.comm, r.stream) : all_reduce(r, d, 100);
       },
       usual_all_reduce,
       {"rank 0 waits in Recv number 1 from rank 2 (count 10, type float32) for rank 2, which is in AllReduce number 3 "
        "(count 100, type float32, op sum) and cannot leave it before rank 0 has joined it"}},
      {"SendAndCollective",
       [](Rank& r, float* d) {  // more than fits into the queue
         return r.rank == 0 ? ncclSend(d, 5'000'000, ncclFloat, kOdd, r.comm, r.stream) : all_reduce(r, d, 100);
       },
       usual_all_reduce,
       {"rank 0 waits in Send number 1 to rank 2 (count 5000000, type float32) for rank 2, which is in AllReduce "
        "number "
        "3 (count 100, type float32, op sum) and cannot leave it before rank 0 has joined it"}},
      {"ReceiveAndRootWithoutRoom",
       [](Rank& r, float* d) {
         return r.rank == 0 ? ncclRecv(d, 10, ncclFloat, kOdd, r.comm, r.stream)
                            : ncclBroadcast(d, d, 5'000'000, ncclFloat, kOdd, r.comm, r.stream);
       },
       [](Rank& r, float* d) { return ncclBroadcast(d, d, 5'000'000, ncclFloat, kOdd, r.comm, r.stream); },
       {"rank 0 waits in Recv number 1 from rank 2 (count 10, type float32) for rank 2, which is in Broadcast number 3 "
        "(count 5000000, type float32, root 2) and cannot leave it before rank 0 has joined it"}},
      {"Sizes",
       [](Rank& r, float* d) { return receive_from_the_odd_rank(r, d, 40'000, ncclFloat); },
       [](Rank& r, float* d) { return ncclSend(d, 30'000, ncclFloat, 0, r.comm, r.stream); },
       {"rank 0 calls Recv number 1 from rank 2 (count 40000, type float32)",
        "rank 2 calls Send number 1 to rank 0 (count 30000, type float32)"}},
      {"TypesOfOneSize",
       [](Rank& r, float* d) { return receive_from_the_odd_rank(r, d, 6, ncclBfloat16); },
       [](Rank& r, float* d) { return ncclSend(d, 6, ncclFloat16, 0, r.comm, r.stream); },
       {"rank 0 calls Recv number 1 from rank 2 (count 6, type bfloat16)",
        "rank 2 calls Send number 1 to rank 0 (count 6, type float16)"}},
      {"TypesOfTheSameBytes",
       [](Rank& r, float* d) { return receive_from_the_odd_rank(r, d, 3, ncclInt32); },
       [](Rank& r, float* d) { return ncclSend(d, 6, ncclFloat16, 0, r.comm, r.stream); },
       {"rank 0 calls Recv number 1 from rank 2 (count 3, type int32)",
        "rank 2 calls Send number 1 to rank 0 (count 6, type float16)"}},
      {"SplitAndLeaving",
       split,
       leave,
       {"rank N is in ncclCommSplit", "rank 2 in ncclCommFinalize or ncclCommDestroy"}},
      {"CollectivesAndSplit",
       usual_all_reduce,
       split,
       {"rank N calls AllReduce number 3 (count 100, type float32, op sum)", "rank 2 calls ncclCommSplit"}},
      {"SplitsAndCollective",
       split,
       usual_all_reduce,
       {"rank N calls ncclCommSplit", "rank 2 calls AllReduce number 3 (count 100, type float32, op sum)"}},
      {"CollectiveAndShrink",
       [](Rank& r, float* d) { return r.rank == 0 ? all_reduce(r, d, 100) : ncclSuccess; },
       shrink_without_rank_1,
       {"rank 0 calls AllReduce number 3 (count 100, type float32, op sum)", "rank 2 calls ncclCommShrink"}},
      {"CollectiveAndLeaving",
       usual_all_reduce,
       leave,
       {"rank N calls AllReduce number 3 (count 100, type float32, op sum), but rank 2 finalizes or destroys its "
        "communicator"}},
      {"ReceiveAndLeaving",
       [](Rank& r, float* d) { return ncclRecv(d, 10, ncclFloat, kOdd, r.comm, r.stream); },
       leave,
       {"rank N waits in Recv number 1 from rank 2 (count 10, type float32) for rank 2, which finalizes or destroys "
        "its "
        "communicator"}},
  };
  return all;
}

ncclResult_t send_around(Rank& r, float* d) {  // more than fits into the queue
  const ncclResult_t sent = ncclSend(d, 5'000'000, ncclFloat, (r.rank + 1) % 3, r.comm, r.stream);
  return sent != ncclSuccess ? sent : ncclRecv(d, 5'000'000, ncclFloat, (r.rank + 2) % 3, r.comm, r.stream);
}

const char* const kReceiveFirst =
    "wait for each other in a circle: rank 0 waits in Recv number 1 from rank 2 (count 10, type float32) for rank 2, "
    "which waits in Recv number 1 from rank 0 (count 10, type float32) for rank 0;";

ncclResult_t receive_first(Rank& r, float* d) {
  if (r.rank == 1) return ncclSuccess;  // hears of it all the same
  const ncclResult_t received = ncclRecv(d, 10, ncclFloat, 2 - r.rank, r.comm, r.stream);
  return received != ncclSuccess ? received : ncclSend(d, 10, ncclFloat, 2 - r.rank, r.comm, r.stream);
}

ncclResult_t receive_first_in_graphs(Rank& r, float* d) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  EXPECT_CALL(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_CALL(receive_first(r, d));
  EXPECT_CALL(cudaStreamEndCapture(r.stream, &graph));
  EXPECT_CALL(cudaGraphInstantiate(&executable, graph, 0));
  EXPECT_CALL(cudaGraphLaunch(executable, r.stream));
  EXPECT_CALL(cudaGraphExecDestroy(executable));
  EXPECT_CALL(cudaGraphDestroy(graph));
  return ncclSuccess;
}

const std::vector<Mismatch>& circles() {
  static const std::vector<Mismatch> all = {
      {"SendsAround",
       send_around,
       send_around,
       {"wait for each other in a circle: rank 0 waits in Send number 1 to rank 1 (count 5000000, type float32) for "
        "rank 1, which waits in Send number 1 to rank 2 (count 5000000, type float32) for rank 2, which waits in Send "
        "number 1 to rank 0 (count 5000000, type float32) for rank 0;"}},
      {"ReceivesFirst", receive_first, receive_first, {kReceiveFirst}},
  };
  return all;
}

TEST(Mismatch, OfMessagesIsHeard) {
  setenv("NCCL_BUFFSIZE", "1024", 1);
  EXPECT_EQ("", run({1, 1, 1}, mismatches_of_messages()));
  unsetenv("NCCL_BUFFSIZE");
}

TEST(Mismatch, OfSendsAndReceivesThatWaitForEachOtherInACircle) {
  setenv("NCCL_BUFFSIZE", "1024", 1);
  EXPECT_EQ("", run({1, 1, 1}, circles()));
  unsetenv("NCCL_BUFFSIZE");
}

TEST(Mismatch, OfMessagesInGraphsThatWaitForEachOtherInACircle) {
#if !defined(NITINOL_VGPU)
  GTEST_SKIP() << "GPUs do not tell: the host does not see launches of graphs";
#endif
  EXPECT_EQ("", run({1, 1, 1}, {{"InGraphs", receive_first_in_graphs, receive_first_in_graphs, {kReceiveFirst}}}));
}

TEST(Mismatch, IsNoneIfAnExcludedRankCallsWhileOthersTakeLongToShrink) {
  EXPECT_EQ("", run_ranks({1, 1, 1}, [](Rank& self) {
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              EXPECT_CALL(all_reduce(self, data, 10));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              if (self.rank == 2) std::this_thread::sleep_for(std::chrono::seconds(2));
              if (self.rank != 1) {
                int excluded = 1;
                ncclComm_t child = nullptr;
                EXPECT_CALL(ncclCommShrink(self.comm, &excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT));
                EXPECT_CALL(ncclCommDestroy(child));
              }
              EXPECT_CALL(all_reduce(self, data, 10));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              ncclResult_t state = ncclSuccess;
              EXPECT_CALL(ncclCommGetAsyncError(self.comm, &state));
              EXPECT_CALL(state);
              EXPECT_CALL(cudaFree(data));
            }));
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

TEST(Mismatch, ThatHoldsNobodyUpIsHeardWhenAllLeave) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              ncclComm_t comm = nullptr;
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              // Each is the root that sends, and none receives.
              static_cast<void>(ncclBroadcast(data, data, 10, ncclFloat, self.rank, comm, self.stream));  // or at once
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

/// Two communicators that have been used.
struct TwoCommunicators {
  ncclComm_t comms[2] = {};
  float* data = nullptr;

  explicit TwoCommunicators(Rank& self, size_t bytes = 4096) {
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), bytes));
    for (ncclComm_t& comm : comms) EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
    for (ncclComm_t comm : comms) EXPECT_CALL(ncclAllReduce(data, data, 10, ncclFloat, ncclSum, comm, self.stream));
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
  }
  /// Both in one stream, on each rank in another order.
  void call_in_own_order(Rank& self) const {
    for (int i = 0; i < 2; ++i) {
      const ncclComm_t comm = comms[(i + self.rank) % 2];
      EXPECT_CALL(ncclAllReduce(data, data, 10, ncclFloat, ncclSum, comm, self.stream));
    }
  }
};

/// One of them fails; the other is as good as ever.
void must_hear_of_a_circle(Rank& self, const TwoCommunicators& two) {
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  ncclResult_t states[2] = {};
  while (states[0] == ncclSuccess && states[1] == ncclSuccess) {
    for (int i = 0; i < 2; ++i) EXPECT_CALL(ncclCommGetAsyncError(two.comms[i], &states[i]));
  }
  const int failed = states[0] == ncclSuccess ? 1 : 0;
  const std::string sentence = ncclGetLastError(two.comms[failed]);
  if (states[failed] != ncclInvalidUsage || sentence.find("circle over several communicators") == std::string::npos) {
    throw std::runtime_error(std::to_string(states[failed]) + ": " + sentence);
  }
  EXPECT_CALL(ncclAllReduce(two.data, two.data, 10, ncclFloat, ncclSum, two.comms[1 - failed], self.stream));
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  EXPECT_CALL(ncclCommAbort(two.comms[failed]));
  EXPECT_CALL(ncclCommDestroy(two.comms[1 - failed]));
  EXPECT_CALL(cudaFree(two.data));
}

TEST(Mismatch, OfTheOrderOfTwoCommunicatorsInAStream) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              const TwoCommunicators two(self);
              two.call_in_own_order(self);
              must_hear_of_a_circle(self, two);
            }));
}

TEST(Mismatch, OfTheOrderWithARootThatHasNoRoom) {
  setenv("NCCL_BUFFSIZE", "1024", 1);
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              constexpr size_t kCount = 5'000'000;
              const TwoCommunicators two(self, kCount * sizeof(float));
              const auto broadcast = [&] {
                EXPECT_CALL(ncclBroadcast(two.data, two.data, kCount, ncclFloat, 0, two.comms[0], self.stream));
              };
              if (self.rank == 0) broadcast();
              EXPECT_CALL(ncclAllReduce(two.data, two.data, 10, ncclFloat, ncclSum, two.comms[1], self.stream));
              if (self.rank == 1) broadcast();
              must_hear_of_a_circle(self, two);
            }));
  unsetenv("NCCL_BUFFSIZE");
}

TEST(Mismatch, IsNoneIfAGroupNamesCommunicatorsInAnotherOrder) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              const TwoCommunicators two(self);
              EXPECT_CALL(ncclGroupStart());
              two.call_in_own_order(self);
              EXPECT_CALL(ncclGroupEnd());
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              for (const ncclComm_t comm : two.comms) {
                ncclResult_t state = ncclSuccess;
                EXPECT_CALL(ncclCommGetAsyncError(comm, &state));
                EXPECT_CALL(state);
                EXPECT_CALL(ncclCommDestroy(comm));
              }
              EXPECT_CALL(cudaFree(two.data));
            }));
}

/// What the odd rank does while the others wait in strict mode, on the host.
struct Instead {
  Step odd;
  const char* words;
  ncclResult_t code;
  double timeout = 0;
};

const std::vector<Instead>& done_instead() {
  static const std::vector<Instead> all = {
      {leave, "rank 2 in ncclCommFinalize or ncclCommDestroy", ncclInvalidUsage},
      {[](Rank& r, float*) { return ncclCommRevoke(r.comm, NCCL_REVOKE_DEFAULT); }, "carries out nothing any more",
       ncclRemoteError},
      {[](Rank& r, float* d) { return ncclRecv(d, 4, ncclFloat, 0, r.comm, r.stream); },
       "which calls AllReduce number 2 (count 17, type float32, op sum) next", ncclInvalidUsage},
      {nothing,
       "in AllReduce number 2 (count 17, type float32, op sum); its process is alive; idle, its last collective was "
       "AllReduce number 1 (count 10, type float32, op sum)",
       ncclRemoteError, 2},
  };
  return all;
}

void do_instead(const Instead& instead, Rank& self, float* data, const SharedCount& ready, const SharedCount& heard) {
  Rank mine = self;
  EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &mine.comm, nullptr));
  EXPECT_CALL(all_reduce(mine, data, 10));
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  EXPECT_CALL(nitinolCommSetTimeout(mine.comm, instead.timeout));
  ready.meet(3);
  const ncclResult_t called = self.rank == kOdd ? instead.odd(mine, data) : all_reduce(mine, data, 17);
  if (self.rank == kOdd) {
    heard.wait_for(2);
  } else {
    const std::string sentence = ncclGetLastError(mine.comm);
    heard.add();
    const bool told = sentence.find(instead.words) != std::string::npos && sentence.find("rank 2") != std::string::npos;
    if (called != instead.code || !told) throw std::runtime_error(std::to_string(called) + ": " + sentence);
  }
  EXPECT_CALL(all_reduce(mine, data, 1) == ncclSuccess ? ncclInternalError : ncclSuccess);
  EXPECT_CALL(ncclCommAbort(mine.comm));
}

TEST(Mismatch, InStrictModeThoseWhoWaitHearWhatTheOddRankDoes) {
  setenv("NITINOL_CHECK", "strict", 1);
  const std::vector<SharedCount> ready(done_instead().size());
  const std::vector<SharedCount> heard(done_instead().size());
  EXPECT_EQ("", run_ranks({1, 1, 1}, [&](Rank& self) {
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              for (size_t i = 0; i < heard.size(); ++i) {
                do_instead(done_instead()[i], self, data, ready[i], heard[i]);
              }
              EXPECT_CALL(cudaFree(data));
            }));
  unsetenv("NITINOL_CHECK");
}

void must_not_run(Rank& self, int* data) {
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
}

TEST(Mismatch, InStrictModeNothingRuns) {
  setenv("NITINOL_CHECK", "strict", 1);
  EXPECT_EQ("", run_ranks({1, 1, 1, 1}, [](Rank& self) {
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 2'000'000));
              for (const Mismatch& mismatch : mismatches()) differ(mismatch, self, data);
              must_not_run(self, reinterpret_cast<int*>(data));
              EXPECT_CALL(cudaFree(data));
            }));
  unsetenv("NITINOL_CHECK");
}

}  // namespace
}  // namespace nitinol::testing
