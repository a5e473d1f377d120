#include "executor/cuda/kernel_wait_reader.h"

#include <gtest/gtest.h>

namespace nitinol::cuda {
namespace {

NamedLaunch launch_of(std::initializer_list<CollectiveWork> works) {
  NamedLaunch launch;
  for (const CollectiveWork& work : works) launch.add(Signature::of(work, 0));
  return launch;
}

class KernelWaitReaderTest : public testing::Test {
 protected:
  KernelWaitReaderTest() { signals.call = names.name(NamedLaunch{}, true); }

  static CollectiveWork broadcast() {
    CollectiveWork work;
    work.what = Collective::kBroadcast;
    work.count = 400;
    work.type = DataType::kUint8;
    work.stated = DataType::kFloat32;
    work.root = 5;
    return work;
  }

  CallNames names;
  Signals signals{};
  KernelWaitReader reader{signals, names};
};

TEST_F(KernelWaitReaderTest, SeesForWhomKernelsWaitNow) {
  EXPECT_FALSE(reader.read().any());
  signals.waits.for_data[3] = 1001;
  signals.waits.for_data[71] = 1001;
  const KernelWait wait = reader.read();
  EXPECT_TRUE(wait.is_for(3) && wait.is_for(71));
  EXPECT_FALSE(wait.is_for(4));
  EXPECT_FALSE(wait.collective) << "messages";
  signals.waits.for_data[71] = 1003;
  EXPECT_TRUE(reader.read().is_for(71));
  EXPECT_FALSE(reader.read().any()) << "they have gone on";
}

TEST_F(KernelWaitReaderTest, KnowsWhatALaunchOfMessagesMaySend) {
  NamedLaunch messages;
  messages.sends_to.add(40);
  messages.receives_from.add(71);
  signals.call = names.name(messages, true);
  signals.waits.for_room[40] = 300;
  signals.waits.for_data[2] = 300;
  const KernelWait wait = reader.read();
  EXPECT_TRUE(wait.for_room.has(40) && wait.for_data.has(2));
  EXPECT_FALSE(wait.for_data.has(40) || wait.for_room.has(2));
  EXPECT_TRUE(wait.sends_to == messages.sends_to && wait.receives_from == messages.receives_from);
  EXPECT_FALSE(wait.in_order);
  messages.in_order = true;
  signals.call = names.name(messages, true);
  signals.waits.for_data[2] = 400;
  EXPECT_TRUE(reader.read().in_order);
}

TEST_F(KernelWaitReaderTest, TellsFirstChannelsFromOthers) {
  signals.first_waits.for_data[7] = 300;
  signals.first_waits.for_room[9] = 300;
  const KernelWait first = reader.read();
  EXPECT_TRUE(first.for_data.has(7) && first.first_for_data.has(7));
  EXPECT_TRUE(first.for_room.has(9) && first.first_for_room.has(9));
  EXPECT_FALSE(first.beyond_first);
  signals.first_waits.for_data[7] = 350;
  signals.waits.for_room[9] = 350;
  const KernelWait both = reader.read();
  EXPECT_TRUE(both.first_for_data.has(7) && both.for_room.has(9) && both.beyond_first);
  EXPECT_FALSE(both.first_for_room.has(9)) << "no longer";
  signals.waits.for_data[1] = 300;
  signals.call = names.name(launch_of({broadcast()}), true);
  EXPECT_FALSE(reader.read().beyond_first) << "a collective";
}

TEST_F(KernelWaitReaderTest, PassesOverShortWaitsHoweverMany) {
  for (uint32_t i = 0; i < 100; ++i) {
    signals.waits.for_data[1] = 1 + i % 7 * 10;
    EXPECT_FALSE(reader.read().any());
  }
}

TEST_F(KernelWaitReaderTest, KnowsWhetherAllWaitsLastForLong) {
  signals.waits.for_data[1] = 31'000;
  signals.waits.for_room[2] = 30'000;
  EXPECT_TRUE(reader.read().for_long);
  signals.waits.for_data[1] = 31'050;
  signals.waits.for_room[2] = 300;
  EXPECT_FALSE(reader.read().for_long);
  signals.waits.for_data[1] = 31'100;
  EXPECT_TRUE(reader.read().for_long) << "the other has ended";
}

TEST_F(KernelWaitReaderTest, SeesWaitsInWhatHasNoName) {
  signals.call = CallNames::kUnknown;
  signals.waits.for_data[1] = 300;
  const KernelWait wait = reader.read();
  EXPECT_TRUE(wait.unknown && wait.is_for(1));
}

TEST_F(KernelWaitReaderTest, KnowsTheCollective) {
  const CollectiveWork work = broadcast();
  CollectiveWork other = work;
  other.count = 800;
  signals.call = names.name(launch_of({work}), true);
  signals.waits.for_data[0] = 300;
  const KernelWait alone = reader.read();
  EXPECT_EQ(alone.collective, Signature::of(work, 0));
  EXPECT_FALSE(alone.among_several);
  signals.call = names.name(launch_of({other, work}), true) + 1;
  signals.waits.for_data[0] = 310;
  const KernelWait one_of_two = reader.read();
  EXPECT_EQ(one_of_two.collective, Signature::of(work, 0));
  EXPECT_TRUE(one_of_two.among_several);
  EXPECT_EQ(one_of_two.works & alone.works, alone.works);
  EXPECT_NE(one_of_two.works, alone.works);
}

/// What changes all the time would not be believed.
TEST_F(KernelWaitReaderTest, StaysWithOneOfALaunchsCollectivesWhileItWaits) {
  CollectiveWork other = broadcast();
  other.count = 800;
  const uint32_t launch = names.name(launch_of({other, broadcast()}), true);
  for (uint32_t time = 300; time < 1000; time += 50) {
    signals.call = launch + time / 50 % 2;
    signals.waits.for_data[0] = time;
    EXPECT_EQ(reader.read().collective, Signature::of(other, 0)) << time;
  }
  EXPECT_FALSE(reader.read().any());
  signals.call = launch + 1;
  signals.waits.for_data[0] = 310;
  EXPECT_EQ(reader.read().collective, Signature::of(broadcast(), 0)) << "another wait";
}

}  // namespace
}  // namespace nitinol::cuda
