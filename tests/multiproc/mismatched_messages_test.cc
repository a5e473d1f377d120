// Ranks whose calls do not match, where nobody has set a deadline and some wait for what others do not do: in messages,
// on the host, or in a circle.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "mismatches.h"
#include "nccl.h"

namespace nitinol::testing {
namespace {

ncclResult_t usual_all_reduce(Rank& r, float* d) { return all_reduce(r, d, 100); }

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

ncclResult_t reduce_to_rank_1(Rank& r, float* d) {
  return ncclReduce(d, d, 5'000'000, ncclFloat, ncclSum, 1, r.comm, r.stream);
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
      {"ReceiveAndShareOfAReduction",  // which the odd rank combines for the root
       [](Rank& r, float* d) {
         return r.rank == 0 ? ncclRecv(d, 10, ncclFloat, kOdd, r.comm, r.stream) : reduce_to_rank_1(r, d);
       },
       reduce_to_rank_1,
       {"rank 0 waits in Recv number 1 from rank 2 (count 10, type float32) for rank 2, which is in Reduce number 3 "
        "(count 5000000, type float32, op sum, root 1) and cannot leave it before rank 0 has joined it"}},
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

}  // namespace
}  // namespace nitinol::testing
