// Needs no GPU: what CUDA would be asked is told by the test.
#include "executor/cuda/gpu_progress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace nitinol::cuda {
namespace {

/// One of two ranks of a communicator that nobody looks at but the test.
class Asked {
 public:
  Asked() {
    ExecutorSetup setup;
    setup.rank = 0;
    setup.peers = {Peer{}, Peer{}};
    setup.exactly_through = [] { return 3; };
    domain_ = std::make_shared<Domain>(std::move(setup), Layouts{});
    progress_ = std::make_unique<GpuProgress>(*domain_, true);
  }
  ~Asked() { domain_->close(); }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

  GpuProgress& operator*() const { return *progress_; }

 private:
  std::shared_ptr<Domain> domain_;
  std::unique_ptr<GpuProgress> progress_;
};

/// It takes a tenth of a second to see that the looking thread does not come, and that is seen once for all.
TEST(GpuProgress, IsWaitedForOnceWhileTheLookingThreadIsStuck) {
  constexpr int kCommunicators = 100;
  const std::vector<Asked> all(kCommunicators);
  const auto begin = std::chrono::steady_clock::now();
  for (const Asked& each : all) {
    EXPECT_EQ((*each).passed().launches, std::nullopt);
    EXPECT_EQ((*each).passed().launches, std::nullopt) << "for the other half of a dump";
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kCommunicators * std::chrono::milliseconds(100));
}

TEST(GpuProgress, IsWaitedForAgainOnceTheLookingThreadIsBack) {
  const Asked asked;
  EXPECT_EQ((*asked).passed().launches, std::nullopt);
  std::atomic<bool> over{false};
  std::atomic<bool> looks{false};
  std::thread looking([&] {
    while (!over) {
      (*asked).find(nullptr);
      looks = true;
      std::this_thread::yield();
    }
  });
  while (!looks) std::this_thread::yield();
  std::optional<uint64_t> launches;
  for (int i = 0; i < 100 && !launches; ++i) launches = (*asked).passed().launches;
  EXPECT_EQ(launches, 3U);
  over = true;
  looking.join();
}

}  // namespace
}  // namespace nitinol::cuda
