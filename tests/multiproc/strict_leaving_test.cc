// NITINOL_CHECK=strict: what communicators that are gone have left behind.
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "cluster.h"
#include "held.h"
#include "nccl.h"

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

}  // namespace
}  // namespace nitinol::testing
