// For tests: the ranks of a communicator as threads of one process, which may pretend to be processes of their own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/cpu/kernel.h"

namespace nitinol::cpu {

/// What all ranks offer to each other.
class FakeHub {
 public:
  using Make = std::function<MemoryHandle()>;

  void offer(int rank, uint64_t name, Make make) {
    const std::lock_guard lock(mutex_);
    offers_[{rank, name}] = std::move(make);
    changed_.notify_all();
  }
  void withdraw(int rank, uint64_t name) {
    const std::lock_guard lock(mutex_);
    offers_.erase({rank, name});
  }
  MemoryHandle fetch(int rank, uint64_t name) {
    std::unique_lock lock(mutex_);
    ++fetches_;
    changed_.wait(lock, [&] { return offers_.count({rank, name}) > 0; });
    return offers_[{rank, name}]();
  }
  int fetches() {
    const std::lock_guard lock(mutex_);
    return fetches_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, uint64_t>, Make> offers_;
  int fetches_ = 0;
};

class FakeExchange : public HandleExchange {
 public:
  FakeExchange(FakeHub& hub, int rank) : hub_(hub), rank_(rank) {}
  void offer(uint64_t name, std::function<MemoryHandle()> make) override { hub_.offer(rank_, name, std::move(make)); }
  void withdraw(uint64_t name) override { hub_.withdraw(rank_, name); }
  MemoryHandle fetch(int peer, uint64_t name) override { return hub_.fetch(peer, name); }

 private:
  FakeHub& hub_;
  int rank_;
};

/// Which ranks live in one process.
enum class Living { kTogether, kApart, kInPairs };

class Team {
 public:
  explicit Team(int ranks, Living living = Living::kTogether, size_t buffer_bytes = 0) {
    static std::atomic<uint64_t> teams{0};
    const uint64_t team = ++teams;
    std::vector<Peer> peers(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      peers[static_cast<size_t>(rank)].rank = rank;
      peers[static_cast<size_t>(rank)].process = static_cast<uint64_t>(living == Living::kTogether ? 1
                                                                       : living == Living::kApart  ? 1 + rank
                                                                                                   : 1 + rank / 2);
    }
    for (int rank = 0; rank < ranks; ++rank) {
      exchanges_.push_back(std::make_unique<FakeExchange>(hub_, rank));
      engines_.push_back(std::make_shared<Engine>(
          ExecutorSetup{.rank = rank,
                        .peers = peers,
                        .identity = {team, 7},
                        .handles = exchanges_.back().get(),
                        .buffer_bytes = buffer_bytes,
                        .failed = [this](ncclResult_t, const std::string& sentence) { note(sentence); }}));
    }
  }
  ~Team() {
    for (const auto& engine : engines_) engine->close();
  }

  int ranks() const { return static_cast<int>(engines_.size()); }
  FakeHub& hub() { return hub_; }
  std::shared_ptr<Engine> engine(int rank) { return engines_[static_cast<size_t>(rank)]; }

  /// Runs body(rank, its engine) on a thread for each rank.
  void run(const std::function<void(int, Engine&)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks(); ++rank) threads.emplace_back([&, rank] { body(rank, *engine(rank)); });
    for (std::thread& thread : threads) thread.join();
  }

  /// Prepares and runs a launch of one rank, on the calling thread.
  static void run_launch(Engine& engine, const Launch& launch) {
    engine.rank().prepare(launch);
    std::unique_ptr<Kernel> kernel = engine.make_kernel(launch);
    kernel->run();
    Engine::recycle(std::move(kernel));
  }

  std::vector<std::string> failures() {
    const std::lock_guard lock(mutex_);
    return failures_;
  }

 private:
  void note(const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    failures_.push_back(sentence);
  }

  FakeHub hub_;
  std::vector<std::unique_ptr<FakeExchange>> exchanges_;
  std::mutex mutex_;
  std::vector<std::string> failures_;
  std::vector<std::shared_ptr<Engine>> engines_;
};

}  // namespace nitinol::cpu
