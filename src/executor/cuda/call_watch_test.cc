// What a rank is told of others that stop or leave without ever having launched anything. Needs no GPU: nothing is
// launched here, only written on the call board, and pinned memory is plain memory.
#include "executor/cuda/call_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/process_state.h"
#include "executor/cuda/late_watch.h"

// The linker puts them in the place of the runtime's (--wrap).
extern "C" {
cudaError_t plain_alloc(void** memory, size_t bytes, unsigned flags) asm("__wrap_cudaHostAlloc");
cudaError_t plain_free(void* memory) asm("__wrap_cudaFreeHost");

cudaError_t plain_alloc(void** memory, size_t bytes, unsigned /*flags*/) {
  *memory = std::malloc(bytes);
  return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t plain_free(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
}

namespace nitinol::cuda {
namespace {

/// One of two ranks of a process, of whose launches none comes to its end.
class WatchedRank {
 public:
  WatchedRank(int rank, uint64_t communicator, bool check = true, const Peer& second = {}) {
    ExecutorSetup setup;
    setup.rank = rank;
    setup.peers = {Peer{}, second};
    setup.identity = {communicator, 7};
    setup.check = check;
    setup.idle = [] { return false; };
    setup.through = [] { return 0; };
    setup.exactly_through = [] { return 0; };
    setup.warn_after = std::chrono::seconds(2);
    setup.warned = [this](const std::string& warning) {
      const std::lock_guard lock(mutex_);
      warnings_.push_back(warning);
    };
    setup.failed = [this](ncclResult_t, const std::string& sentence) {
      const std::lock_guard lock(mutex_);
      sentence_ = sentence;
    };
    domain_ = std::make_shared<Domain>(std::move(setup), Layouts{});
    watch_ = std::make_unique<CallWatch>(domain_);
  }
  ~WatchedRank() {
    watch_->stop();
    domain_->close();
  }
  WatchedRank(const WatchedRank&) = delete;
  WatchedRank& operator=(const WatchedRank&) = delete;

  CallWatch& watch() { return *watch_; }
  void all_reduce() {
    CollectiveWork work;
    work.count = 4;
    work.type = work.stated = DataType::kInt32;
    launch({.collectives = {work}, .messages = {}});
  }
  void reduce(int root) {
    CollectiveWork work;
    work.what = Collective::kReduce;
    work.root = root;
    work.count = 4;
    work.type = work.stated = DataType::kInt32;
    launch({.collectives = {work}, .messages = {}});
  }
  void receive(int peer) {
    launch({.collectives = {}, .messages = {{MessageWork::Direction::kReceive, peer, nullptr, 4}}});
  }
  /// Its kernel waits for the other rank, for so many milliseconds by now, until there is what it waits for: tells so
  /// again and again.
  void kernel_waits(uint32_t milliseconds, const std::function<bool()>& there_is) {
    for (; !there_is(); ++milliseconds) {
      domain_->signals().waits[Signals::kOfCollectives].for_data[1] = milliseconds;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  std::vector<std::string> warnings() {
    const std::lock_guard lock(mutex_);
    return warnings_;
  }
  std::string told() {
    const std::lock_guard lock(mutex_);
    return sentence_;
  }
  std::string wait_until_told() {
    while (true) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::lock_guard lock(mutex_);
      if (!sentence_.empty()) return sentence_;
    }
  }

 private:
  void launch(const Launch& launch) {
    watch_->prepare();
    const unsigned long long stream = 1;
    watch_->note(launch, nullptr, {&stream, 1}, false);
  }

  std::mutex mutex_;
  std::string sentence_;
  std::vector<std::string> warnings_;
  std::shared_ptr<Domain> domain_;
  std::unique_ptr<CallWatch> watch_;
};

/// Both, met at the board.
struct TwoRanks {
  explicit TwoRanks(uint64_t communicator) : first(0, communicator), second(1, communicator) {
    EXPECT_TRUE(first.watch().meet());
    EXPECT_TRUE(second.watch().meet());
  }
  WatchedRank first;
  WatchedRank second;
};

/// The looking thread sees nothing as long as it lives.
class LookingHeldUp {
 public:
  LookingHeldUp()
      : watch_(start_watching([this] {
          held_up_ = true;
          while (!over_) std::this_thread::yield();
        })) {
    while (!held_up_) std::this_thread::yield();
  }
  ~LookingHeldUp() {
    over_ = true;
    stop_watching(watch_);
  }
  LookingHeldUp(const LookingHeldUp&) = delete;
  LookingHeldUp& operator=(const LookingHeldUp&) = delete;

 private:
  std::atomic<bool> held_up_{false};
  std::atomic<bool> over_{false};
  uint64_t watch_;
};

constexpr const char* kStopped =
    "rank 0 waits in AllReduce number 1 (count 4, type int32, op sum), but rank 1 (host , pid 0, device -1) carries "
    "out "
    "nothing any more in this communicator, which was revoked or aborted or has failed there";

TEST(CallWatch, TellsOfOneThatStoppedBeforeItLaunchedAnything) {
  TwoRanks ranks(1);
  auto& [first, second] = ranks;
  first.all_reduce();
  second.watch().abort();
  EXPECT_EQ(first.wait_until_told(), kStopped);
}

TEST(CallWatch, TellsOfOneThatStoppedAndHasGoneBeforeAnybodyLooked) {
  for (const bool launched : {false, true}) {
    WatchedRank first(0, launched ? 2 : 3);
    EXPECT_TRUE(first.watch().meet());
    {
      WatchedRank second(1, launched ? 2 : 3);
      EXPECT_TRUE(second.watch().meet());
      const LookingHeldUp held_up;
      if (launched) second.all_reduce();
      second.watch().abort();
      second.watch().stop();
    }
    first.all_reduce();
    EXPECT_EQ(first.wait_until_told(), kStopped) << launched;
  }
}

TEST(CallWatch, TellsOfOneThatLeftBeforeItLaunchedAnything) {
  TwoRanks ranks(4);
  auto& [first, second] = ranks;
  first.all_reduce();
  second.watch().leave();
  const std::string told = first.wait_until_told();
  EXPECT_NE(told.find("AllReduce number 1 (count 4, type int32, op sum)"), std::string::npos) << told;
  EXPECT_NE(told.find("rank 1 (host , pid 0, device -1)"), std::string::npos) << told;
}

/// In one of two steps: the root waits for its message alone, and the other for a part of the root.
TEST(CallWatch, TellsOfAMessageThatWaitsForARankInACollectiveOfWhichItsResultNeedsNothing) {
  TwoRanks ranks(7);
  auto& [first, second] = ranks;
  second.receive(0);
  second.reduce(1);
  first.reduce(1);
  first.kernel_waits(300, [&] { return !second.told().empty(); });
  const std::string told = second.told();
  EXPECT_NE(told.find("rank 1 waits in Recv number 1 from rank 0 ("), std::string::npos) << told;
  EXPECT_NE(
      told.find("which is in Reduce number 1 (count 4, type int32, op sum, root 1) and cannot leave it before rank "
                "1 has joined it"),
      std::string::npos)
      << told;
}

TEST(CallWatch, WarnsOfAWaitThatIsLong) {
  TwoRanks ranks(6);
  auto& [first, second] = ranks;
  first.all_reduce();
  first.kernel_waits(3000, [&] { return !first.warnings().empty(); });
  const std::string warning = first.warnings().front();
  EXPECT_TRUE(warning.starts_with("rank 0: AllReduce number 1 (count 4, type int32, op sum) makes no progress for "))
      << warning;
  EXPECT_NE(warning.find("; not arrived: rank 1 (host , pid 0, device -1): "), std::string::npos) << warning;
  EXPECT_TRUE(second.warnings().empty());
}

/// A process that has ended.
Peer dead_peer() {
  Peer peer;
  peer.process = 1;
  peer.pid = fork();
  if (peer.pid == 0) _exit(0);
  peer.pid_namespace = pid_namespace();
  EXPECT_EQ(waitpid(peer.pid, nullptr, 0), peer.pid);
  return peer;
}

TEST(CallWatch, TellsWhoWaitsForLongOfARankThatHasDiedThoughNoWordOfItComes) {
  const Peer dead = dead_peer();
  WatchedRank first(0, 8, true, dead);
  EXPECT_TRUE(first.watch().meet());
  first.all_reduce();
  first.kernel_waits(300, [&] { return !first.told().empty(); });
  EXPECT_TRUE(first.told().starts_with(
      "rank 0 waits in AllReduce number 1 (count 4, type int32, op sum), but the process of rank 1 (host , pid " +
      std::to_string(dead.pid)))
      << first.told();
}

TEST(CallWatch, WithoutChecksThereIsNothingToMeetAt) {
  WatchedRank first(0, 5, false);
  WatchedRank second(1, 5, false);
  EXPECT_FALSE(first.watch().meet());
  EXPECT_FALSE(second.watch().meet());
}

}  // namespace
}  // namespace nitinol::cuda
