// Operations that need gigabytes.
#include <gtest/gtest.h>
#include <unistd.h>

#include "cluster.h"
#include "nccl.h"

namespace nitinol::testing {
namespace {

// Operations of more than 2^32 bytes, with a count beyond 2^32.
TEST(Large, OperationsBeyondFourGigabytesAreExact) {
  const long pages = sysconf(_SC_AVPHYS_PAGES);
  if (pages * (sysconf(_SC_PAGESIZE) / 1024) < 14L * 1024 * 1024) GTEST_SKIP() << "needs 14 GiB of free memory";
  EXPECT_EQ("", run_ranks({2}, [](Rank& self) {
              const size_t count = (size_t{1} << 32) + 4099;
              uint8_t* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), count));
              EXPECT_CALL(cudaMemsetAsync(data, 3 + self.rank, count, self.stream));
              EXPECT_CALL(ncclAllReduce(data, data, count, ncclUint8, ncclSum, self.comm, self.stream));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              for (const size_t at : {size_t{0}, count / 2, (size_t{1} << 32) - 1, size_t{1} << 32, count - 1}) {
                uint8_t got = 0;
                EXPECT_CALL(cudaMemcpy(&got, data + at, 1, cudaMemcpyDeviceToHost));
                if (got != 7) throw std::runtime_error("element " + std::to_string(at) + " is " + std::to_string(got));
              }
              EXPECT_CALL(cudaFree(data));
            }));
}

}  // namespace
}  // namespace nitinol::testing
