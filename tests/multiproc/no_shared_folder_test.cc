// Processes share memory without /dev/shm, which may be tiny or missing in containers.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <vector>

#include "cluster.h"
#include "device_memory.h"
#include "nccl.h"

namespace nitinol::testing {
namespace {

/// For this process and its children /dev/shm is a folder in which nothing can be made. False: the system forbids it.
bool take_the_shared_folder_away() {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return mount("none", "/dev/shm", "tmpfs", MS_RDONLY, "size=4096") == 0;
}

TEST(WithoutSharedFolder, ProcessesShareMemory) {
  if (!take_the_shared_folder_away()) GTEST_SKIP() << "this system lets us have no file systems of our own";
  ASSERT_FALSE(std::ofstream("/dev/shm/nitinol-test").is_open());
  EXPECT_EQ("", run_ranks({2, 1, 1}, [](Rank& self) {
              constexpr size_t kCount = 1 << 20;
              std::vector<int> values(kCount);
              std::iota(values.begin(), values.end(), self.rank);
              int* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), kCount * sizeof(int)));
              EXPECT_CALL(copy_to_device(data, values.data(), kCount * sizeof(int)));
              EXPECT_CALL(ncclAllReduce(data, data, kCount, ncclInt, ncclSum, self.comm, self.stream));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              EXPECT_CALL(cudaMemcpy(values.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost));
              for (size_t i = 0; i < kCount; ++i) {
                if (values[i] != static_cast<int>(4 * i + 6)) throw std::runtime_error("the sum is wrong");
              }
              EXPECT_CALL(cudaFree(data));
            }));
}

}  // namespace
}  // namespace nitinol::testing
