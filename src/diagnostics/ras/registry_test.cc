#include "diagnostics/ras/registry.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "bootstrap/secret.h"

namespace nitinol::ras {
namespace {

constexpr CommunicatorId kId{1};

/// A rank that does something while it is asked.
struct BusySubject : Subject {
  std::function<void()> meanwhile;

  RankReport health() const override {
    meanwhile();
    return {};
  }
  bool has_failed() const override { return false; }
  std::string dump(bool) const override {
    meanwhile();
    return "dump";
  }
};

class RegistryTest : public ::testing::Test {
 protected:
  RegistryTest() {
    ensure_crypto();
    registry_.set_dump_pattern(folder_.file("dump"));
    const std::array<Peer, 2> peers{Peer{.rank = 0}, Peer{.rank = 1}};
    registry_.enter({.id = kId, .secret = random_secret(), .rank = 0, .peers = peers}, rank_);
  }

  void ask_in_every_way() {
    static_cast<void>(registry_.report({}));
    static_cast<void>(registry_.dumps(true));
    registry_.want_all_dumps();
    registry_.write_due_dumps();
  }

  const TemporaryFolder folder_;
  BusySubject rank_;
  Registry registry_;
};

TEST_F(RegistryTest, IsFreeForOthersWhileARankTakesItsTime) {
  int free = 0;
  std::vector<std::future<std::size_t>> others;  // those that are held up end later
  rank_.meanwhile = [&] {
    auto other = std::async(std::launch::async, [&] {
      registry_.want_dump_of_failure(kId, 0);
      return registry_.contacts(0).size();
    });
    free += other.wait_for(std::chrono::seconds(5)) == std::future_status::ready ? 1 : 0;
    others.push_back(std::move(other));
  };
  ask_in_every_way();
  EXPECT_EQ(free, 3);
}

/// And only then: what was asked for is done.
TEST_F(RegistryTest, ARankLeavesOnceNobodyAsksItAnyMore) {
  std::atomic<bool> is_asked{false};
  std::atomic<bool> leaves{false};
  std::atomic<int> over{0};
  rank_.meanwhile = [&] {
    is_asked = true;
    while (!leaves) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    ++over;
  };
  registry_.want_all_dumps();
  std::thread asking([&] { registry_.write_due_dumps(); });
  while (!is_asked) std::this_thread::yield();
  leaves = true;
  registry_.leave(kId, 0);
  EXPECT_EQ(over, 1);
  EXPECT_EQ(folder_.read("dump"), "dump");
  EXPECT_TRUE(registry_.empty());
  asking.join();
}

TEST_F(RegistryTest, ADumpThatIsDueIsWrittenByWhoLeaves) {
  rank_.meanwhile = [] {};
  registry_.want_all_dumps();
  registry_.leave(kId, 0);
  EXPECT_EQ(folder_.read("dump"), "dump");
}

}  // namespace
}  // namespace nitinol::ras
