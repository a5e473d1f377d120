// Peer access that the driver promises and that does not work: here the probe of the ranks' memory finds nothing of
// what it wrote (peer_access_probe.cu), as where an IOMMU stands between GPUs.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "communicator_ranks.h"
#include "peer_access_probe.h"

namespace {

using namespace nitinol::gpu_testing;

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// The log of the whole process goes into a file from the first call on; so one test makes all communicators.
class PeerAccess : public Ranks {
 protected:
  PeerAccess() {
    setenv("NITINOL_P2P_TRY", "1", 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_FILE", folder_.file("log").c_str(), 1);
  }
  ~PeerAccess() override {
    for (const char* name : {"NITINOL_P2P_TRY", "NCCL_DEBUG", "NCCL_DEBUG_FILE"}) unsetenv(name);
  }

  /// What has come since the last call.
  std::string new_log() {
    const std::string all = folder_.read("log");
    const std::string fresh = all.substr(read_);
    read_ = all.size();
    return fresh;
  }
  void expect_right_sums() const {
    constexpr size_t kCount = 100'000;
    each([&](size_t rank) {
      const std::vector<int> mine(kCount, static_cast<int>(rank) + 1);
      CUDA_OK(nitinol::copy_to_device(inputs[rank], mine.data(), kCount * sizeof(int)));
      NCCL_OK(ncclAllReduce(inputs[rank], outputs[rank], kCount, ncclInt, ncclSum, comms[rank], streams[rank]));
      CUDA_OK(cudaStreamSynchronize(streams[rank]));
      std::vector<int> sums(kCount);
      CUDA_OK(cudaMemcpy(sums.data(), outputs[rank], kCount * sizeof(int), cudaMemcpyDeviceToHost));
      EXPECT_EQ(sums, std::vector<int>(kCount, static_cast<int>(ranks() * (ranks() + 1) / 2)));
    });
  }

 private:
  nitinol::TemporaryFolder folder_;
  size_t read_ = 0;
};

TEST_F(PeerAccess, IsGivenUpByAllWithOneWarningIfOneRankFindsThatItDoesNotWork) {
  for (const int doubter : {-1, 0, 2}) {
    if (gpus() > 0) break_probe_of(doubter);
    make(3);
    if (IsSkipped()) return;
    expect_right_sums();
    const std::string log = new_log();
    EXPECT_EQ(count_of(log, "does not find there what it wrote"), doubter < 0 ? 0 : 1) << log;
    EXPECT_EQ(count_of(log, "likely an IOMMU or PCIe access control"), doubter < 0 ? 0 : 1) << log;
    EXPECT_EQ(count_of(log, "via SHM/pinned memory"), doubter < 0 ? 0 : 3) << log;
    EXPECT_EQ(count_of(log, "via P2P/direct pointer"), doubter < 0 ? 3 : 0) << log;
    Ranks::TearDown();
  }
}

}  // namespace
