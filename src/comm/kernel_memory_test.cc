#include "comm/kernel_memory.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>
#include <utility>

namespace nitinol {
namespace {

/// Memory of kernels that notes when it is freed.
std::shared_ptr<void> memory(bool& freed) {
  return {&freed, [](void* flag) { *static_cast<bool*>(flag) = true; }};
}

void keep_until_idle(std::shared_ptr<void> what, Idle idle) {
  const KeepUntilIdle kept(std::move(what), std::move(idle));
}

TEST(KernelMemory, IsFreedOnceItsOwnKernelsAndAllOthersOfTheProcessAreThrough) {
  bool freed = false;
  bool own_through = false;
  bool others_through = false;
  const KernelsOfProcess others([&] { return others_through; });
  keep_until_idle(memory(freed), [&] { return own_through; });
  let_go_of_idle_memory();
  EXPECT_FALSE(freed);
  others_through = true;
  let_go_of_idle_memory();
  EXPECT_FALSE(freed);
  own_through = true;
  others_through = false;
  let_go_of_idle_memory();
  EXPECT_FALSE(freed);
  others_through = true;
  let_go_of_idle_memory();
  EXPECT_TRUE(freed);
}

TEST(KernelMemory, IsNotFreedWhileALaunchIsUnderWay) {
  bool freed = false;
  const KernelsOfProcess others([] { return true; });
  keep_until_idle(memory(freed), [] { return true; });
  {
    const auto launch = others.begin_launch();
    let_go_of_idle_memory();
    EXPECT_FALSE(freed);
  }
  let_go_of_idle_memory();
  EXPECT_TRUE(freed);
}

TEST(KernelMemory, LaunchesBeginOnceWhatIsBeingFreedHasGone) {
  const KernelsOfProcess others([] { return true; });
  std::atomic<bool> freed{false};
  bool was_freed = false;
  std::chrono::steady_clock::duration waited{};
  std::thread launching;
  const auto free_slowly = [&](void*) {
    std::promise<void> begun;
    launching = std::thread([&] {
      const auto start = std::chrono::steady_clock::now();
      begun.set_value();
      const auto launch = others.begin_launch();
      was_freed = freed;
      waited = std::chrono::steady_clock::now() - start;
    });
    begun.get_future().wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // long before launches wait no more
    freed = true;
  };
  keep_until_idle(std::shared_ptr<void>(&freed, free_slowly), [] { return true; });
  let_go_of_idle_memory();
  launching.join();
  EXPECT_TRUE(was_freed || waited >= std::chrono::seconds(1)) << "after which launches wait no more";
}

TEST(KernelMemory, CommunicatorsThatHaveEndedHoldNothingUp) {
  bool freed = false;
  KernelsOfProcess others([] { return false; });
  keep_until_idle(memory(freed), [] { return true; });
  let_go_of_idle_memory();
  EXPECT_FALSE(freed);
  others = KernelsOfProcess();
  let_go_of_idle_memory();
  EXPECT_TRUE(freed);
}

/// Nothing may ever have been kept, as on virtual GPUs.
TEST(KernelMemory, CommunicatorsThatHaveEndedTakeNoMemory) {
  constexpr int kMany = 10'000;
  KernelsOfProcess one([] { return true; });
  const auto before = mallinfo2().uordblks;
  for (int i = 0; i < kMany; ++i) one = KernelsOfProcess([] { return true; });
  EXPECT_LT(mallinfo2().uordblks, before + kMany);
}

TEST(KernelMemory, WhatIsKeptSeveralTimesIsNotFreedEarlier) {
  bool freed = false;
  bool through = false;
  {
    const std::shared_ptr<void> owned = memory(freed);
    for (int i = 0; i < 3; ++i) keep_until_idle(owned, [&] { return through; });
  }
  let_go_of_idle_memory();
  EXPECT_FALSE(freed);
  through = true;
  let_go_of_idle_memory();
  EXPECT_TRUE(freed);
}

/// Another communicator may end at that very moment, and look for what is not needed any more.
TEST(KernelMemory, IsKeptThoughItsUserLetsItGoWhileItIsHandedOver) {
  bool freed = false;
  bool through = false;
  {
    std::shared_ptr<void> user = memory(freed);
    const KeepUntilIdle kept(user, [&] { return through; });
    let_go_of_idle_memory();
    user.reset();
    let_go_of_idle_memory();
  }
  let_go_of_idle_memory();
  EXPECT_FALSE(freed);
  through = true;
  let_go_of_idle_memory();
  EXPECT_TRUE(freed);
}

TEST(KernelMemory, NothingIsLostIfItCannotBeSaidWhetherKernelsAreThrough) {
  bool freed = false;
  bool asked = false;
  keep_until_idle(memory(freed), [&]() -> bool {
    if (std::exchange(asked, true)) return true;
    throw std::runtime_error("cannot be asked");
  });
  EXPECT_THROW(let_go_of_idle_memory(), std::runtime_error);
  EXPECT_FALSE(freed);
  let_go_of_idle_memory();
  EXPECT_TRUE(freed);
}

TEST(KernelMemory, NothingIsKeptTwice) {
  bool freed = false;
  const KernelsOfProcess others([] { return false; });
  const std::shared_ptr<void> used = memory(freed);
  for (int i = 0; i < 3; ++i) keep_until_idle(used, [] { return false; });
  EXPECT_EQ(used.use_count(), 4);
  let_go_of_idle_memory();
  EXPECT_EQ(used.use_count(), 1) << "its user holds it, so nothing needs to be kept for the kernels";
  EXPECT_FALSE(freed);
}

TEST(KernelMemory, WhatHasNoMemoryIsNotKept) {
  bool asked = false;
  keep_until_idle(nullptr, [&] { return asked = true; });
  let_go_of_idle_memory();
  EXPECT_FALSE(asked);
}

}  // namespace
}  // namespace nitinol
