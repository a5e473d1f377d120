// NITINOL_CHECK=strict: ranks that leave while others wait for them elsewhere, and what communicators that are gone
// have left behind.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "captured.h"
#include "cluster.h"
#include "held.h"
#include "nccl.h"
#include "scarcity.h"

namespace nitinol::testing {
namespace {

class StrictLeaving : public ::testing::Test {
 protected:
  StrictLeaving() { setenv("NITINOL_CHECK", "strict", 1); }
  ~StrictLeaving() override { unsetenv("NITINOL_CHECK"); }
};

void split_and_end(const Rank& rank, ncclResult_t (*end)(ncclComm_t)) {
  ncclComm_t child = nullptr;
  EXPECT_CALL(ncclCommSplit(rank.comm, 0, rank.rank, &child, nullptr));
  int* data = nullptr;
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), sizeof(int)));
  EXPECT_CALL(ncclAllReduce(data, data, 1, ncclInt, ncclSum, child, rank.stream));
  EXPECT_CALL(cudaStreamSynchronize(rank.stream));
  EXPECT_CALL(end(child));
  EXPECT_CALL(cudaFree(data));
}

TEST_F(StrictLeaving, CommunicatorsThatAreGoneHoldNoDescriptorsAndNoMemory) {
  EXPECT_EQ("", run_ranks({1, 1}, [](const Rank& rank) {
              split_and_end(rank, ncclCommDestroy);
              split_and_end(rank, ncclCommAbort);
              const Held before = held_in_quiet();
              for (int i = 0; i < 5; ++i) split_and_end(rank, i % 2 == 0 ? ncclCommDestroy : ncclCommAbort);
              const std::string grown = grown_since(before);
              if (!grown.empty()) throw std::runtime_error(grown);
            }));
}

/// Two communicators of two programs of one thread each, which leave one while the other waits for them in another.
struct Two {
  ncclComm_t comms[2] = {};
  int* data = nullptr;
  cudaStream_t stream = nullptr;

  Two(int rank, const ncclUniqueId& id) {
    use_device_of(rank);
    EXPECT_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), sizeof(int)));
    EXPECT_CALL(ncclCommInitRank(&comms[0], 2, id, rank));
    EXPECT_CALL(ncclCommSplit(comms[0], 0, rank, &comms[1], nullptr));
  }
  ncclResult_t call(int comm) const { return ncclAllReduce(data, data, 1, ncclInt, ncclSum, comms[comm], stream); }
  void run_in_a_graph(const std::function<ncclResult_t()>& call) const {
    const cudaGraphExec_t executable = captured(stream, [&] { EXPECT_CALL(call()); });
    EXPECT_CALL(cudaGraphLaunch(executable, stream));
    EXPECT_CALL(cudaStreamSynchronize(stream));
    EXPECT_CALL(cudaGraphExecDestroy(executable));
  }
  /// One of the communicators has failed, with these words. (The other may have been aborted by the other rank since.)
  void must_have_heard(const std::string& words) const {
    const int failed = state_of(comms[0]) == ncclInvalidUsage ? 0 : 1;
    const std::string sentence = ncclGetLastError(comms[failed]);
    expect_that(state_of(comms[failed]) == ncclInvalidUsage, "state");
    expect_that(sentence.find("in a circle over waits on the host") != std::string::npos, sentence);
    expect_that(sentence.find("ncclCommFinalize or ncclCommDestroy") != std::string::npos, sentence);
    expect_that(sentence.find(words) != std::string::npos, sentence);
  }
  void end() const {
    for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommAbort(comm));
    EXPECT_CALL(cudaStreamSynchronize(stream));
    EXPECT_CALL(cudaFree(data));
  }
};

TEST_F(StrictLeaving, OfOneCommunicatorIsToldWhileAnotherRankWaitsInAnother) {
  if (!kThreadsAreKnown) GTEST_SKIP() << "there is another thread";
  EXPECT_EQ("", run_processes(2, [](int rank, const ncclUniqueId& id) {
              const Two s(rank, id);
              if (rank == 0) {
                static_cast<void>(s.call(1));
              } else {
                static_cast<void>(ncclCommFinalize(s.comms[0]));
              }
              s.must_have_heard("AllReduce number 1 (count 1, type int32, op sum)");
              s.end();
            }));
}

TEST_F(StrictLeaving, OfOneCommunicatorIsToldWhileAGraphOfAnotherRankWaitsInAnother) {
  if (!kThreadsAreKnown || !kStreamsAreKnown) GTEST_SKIP() << "there is another thread";
  EXPECT_EQ("", run_processes(2, [](int rank, const ncclUniqueId& id) {
              const Two s(rank, id);
              if (rank == 0) {
                s.run_in_a_graph([&] { return ncclRecv(s.data, 1, ncclInt, 1, s.comms[1], s.stream); });
              } else {
                static_cast<void>(ncclCommFinalize(s.comms[0]));
              }
              s.must_have_heard("Recv number 1 from rank 1 (count 1, type int32)");
              s.end();
            }));
}

TEST_F(StrictLeaving, IsNoErrorWhileAnotherRankIsBusy) {
  EXPECT_EQ("", run_processes(2, [](int rank, const ncclUniqueId& id) {
              const Two s(rank, id);
              EXPECT_CALL(s.call(1));
              if (rank == 0) std::this_thread::sleep_for(std::chrono::seconds(2));
              for (const ncclComm_t comm : s.comms) EXPECT_CALL(ncclCommFinalize(comm));
              EXPECT_CALL(cudaStreamSynchronize(s.stream));
              s.end();
            }));
}

}  // namespace
}  // namespace nitinol::testing
