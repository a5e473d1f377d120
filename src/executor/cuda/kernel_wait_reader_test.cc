#include "executor/cuda/kernel_wait_reader.h"

#include <gtest/gtest.h>

namespace nitinol::cuda {
namespace {

TEST(KernelWaitReader, SeesForWhomKernelsWaitNow) {
  Signals signals{};
  KernelWaitReader reader(signals);
  EXPECT_FALSE(reader.read().any());
  signals.waits[3] = 1001;
  signals.waits[71] = 1001;
  const KernelWait wait = reader.read();
  EXPECT_TRUE(wait.is_for(3) && wait.is_for(71));
  EXPECT_FALSE(wait.is_for(4));
  EXPECT_FALSE(wait.collective) << "messages";
  signals.waits[71] = 1003;
  EXPECT_TRUE(reader.read().is_for(71));
  EXPECT_FALSE(reader.read().any()) << "they have gone on";
}

TEST(KernelWaitReader, PassesOverShortWaitsHoweverMany) {
  Signals signals{};
  KernelWaitReader reader(signals);
  for (uint32_t i = 0; i < 100; ++i) {
    signals.waits[1] = 1 + i % 7 * 10;
    EXPECT_FALSE(reader.read().any());
  }
}

TEST(KernelWaitReader, KnowsTheCollective) {
  CollectiveWork work;
  work.what = Collective::kBroadcast;
  work.count = 400;
  work.type = DataType::kUint8;
  work.stated = DataType::kFloat32;
  work.root = 5;
  Signals signals{};
  signals.call = packed_call(work.what, call_terms(Signature::of(work, 0).call), work.root);
  signals.count = work.count;
  signals.waits[0] = 300;
  EXPECT_EQ(KernelWaitReader(signals).read().collective, Signature::of(work, 0));
  EXPECT_FALSE(KernelWaitReader(signals).read().among_several);
  const auto terms = static_cast<uint16_t>(call_terms(Signature::of(work, 0).call) | kAmongSeveral);
  signals.call = packed_call(work.what, terms, work.root);
  EXPECT_EQ(KernelWaitReader(signals).read().collective, Signature::of(work, 0));
  EXPECT_TRUE(KernelWaitReader(signals).read().among_several);
}

}  // namespace
}  // namespace nitinol::cuda
