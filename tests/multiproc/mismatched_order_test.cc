// Ranks that use two communicators in different orders in a stream.
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "cluster.h"
#include "nccl.h"

namespace nitinol::testing {
namespace {

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

// Such a group runs in the stream that it names first, but stands in both: what holds up one of them holds it up, and
// it holds up what comes later in either.
TEST(Mismatch, OfTheOrderWithAGroupInSeveralStreams) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              const TwoCommunicators two(self);
              cudaStream_t other = nullptr;
              EXPECT_CALL(cudaStreamCreate(&other));
              const auto reduce = [&](int comm, cudaStream_t stream) {
                EXPECT_CALL(ncclAllReduce(two.data, two.data, 10, ncclFloat, ncclSum, two.comms[comm], stream));
              };
              const auto group = [&] {
                EXPECT_CALL(ncclGroupStart());
                reduce(0, other);
                reduce(0, self.stream);
                EXPECT_CALL(ncclGroupEnd());
              };
              if (self.rank == 0) group();
              reduce(1, self.stream);
              if (self.rank == 1) group();
              must_hear_of_a_circle(self, two);
              EXPECT_CALL(cudaStreamDestroy(other));
            }));
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

}  // namespace
}  // namespace nitinol::testing
