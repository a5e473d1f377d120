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

  Signals::Waits& collectives() { return signals.waits[Signals::kOfCollectives]; }
  Signals::Waits& messages(Protocol protocol) { return signals.waits[Signals::of_messages(protocol)]; }
  static uint32_t told(uint32_t time, uint32_t protocols) { return protocols << Signals::kTimeBits | time; }
  /// A bit for each that stands, by what kernels have told since the last time.
  int standing_protocols() {
    const KernelWait wait = reader.read();
    int bits = 0;
    for (size_t i = 0; i < wait.messages.size(); ++i) bits |= wait.messages[i].stands ? 1 << i : 0;
    return bits;
  }

  CallNames names;
  Signals signals{};
  KernelWaitReader reader{signals, names};
};

TEST_F(KernelWaitReaderTest, SeesForWhomKernelsWaitNow) {
  EXPECT_FALSE(reader.read().any());
  collectives().for_data[3] = 1001;
  collectives().for_data[71] = 1001;
  const KernelWait wait = reader.read();
  EXPECT_TRUE(wait.is_for(3) && wait.is_for(71));
  EXPECT_FALSE(wait.is_for(4));
  EXPECT_FALSE(wait.collective) << "messages";
  collectives().for_data[71] = 1003;
  EXPECT_TRUE(reader.read().is_for(71));
  EXPECT_FALSE(reader.read().any()) << "they have gone on";
}

TEST_F(KernelWaitReaderTest, TellsHowLongEachWaitHasLasted) {
  EXPECT_EQ(reader.waited().count(), 0);
  collectives().for_data[3] = 1000;
  collectives().for_room[4] = 2000;
  static_cast<void>(reader.read());
  EXPECT_EQ(reader.waited().count(), 1048) << "in units of 2^20 ns";
  static_cast<void>(reader.read());
  EXPECT_EQ(reader.waited().count(), 0) << "they have gone on";
}

TEST_F(KernelWaitReaderTest, KnowsWhatALaunchOfMessagesMaySend) {
  NamedLaunch launch;
  launch.sends_to.add(40);
  launch.receives_from.add(71);
  signals.call = names.name(launch, true);
  messages(Protocol::kLL).for_room[40] = 300;
  messages(Protocol::kLL128).for_data[2] = 300;
  const KernelWait wait = reader.read();
  EXPECT_TRUE(wait.for_room.has(40) && wait.for_data.has(2));
  EXPECT_FALSE(wait.for_data.has(40) || wait.for_room.has(2));
  EXPECT_TRUE(wait.sends_to == launch.sends_to && wait.receives_from == launch.receives_from);
  EXPECT_TRUE(wait.messages[0].for_room.has(40) && wait.messages[1].for_data.has(2));
  EXPECT_FALSE(wait.messages[0].for_data.any() || wait.messages[1].for_room.any());
  EXPECT_EQ(wait.messages[2], KernelWait::ByProtocol{});
}

TEST_F(KernelWaitReaderTest, KnowsByWhichProtocolsALaunchStands) {
  messages(Protocol::kSimple).for_data[7] = told(300, 0);
  EXPECT_EQ(standing_protocols(), 0);
  messages(Protocol::kSimple).for_data[7] = told(310, 7);
  EXPECT_EQ(standing_protocols(), 7);
  EXPECT_EQ(standing_protocols(), 0) << "nothing waits";
  messages(Protocol::kLL).for_data[7] = told(310, 3);
  messages(Protocol::kSimple).for_room[9] = told(310, 6);
  EXPECT_EQ(standing_protocols(), 2) << "of launches beside each other, or of warps that saw it at different times";
  messages(Protocol::kLL).for_data[7] = told(320, 2);
  messages(Protocol::kSimple).for_room[9] = told(199, 5);
  EXPECT_EQ(standing_protocols(), 2) << "the other wait is short";
  messages(Protocol::kLL).for_data[7] = told(320, 7);
  EXPECT_EQ(standing_protocols(), 0) << "a wait that has ended";
  signals.call = names.name(launch_of({broadcast()}), true);
  messages(Protocol::kSimple).for_room[9] = told(340, 7);
  EXPECT_EQ(standing_protocols(), 0) << "a collective";
}

TEST_F(KernelWaitReaderTest, TellsHowLongAWaitInMessagesLasts) {
  messages(Protocol::kLL).for_data[7] = told(30'000, 5);
  EXPECT_TRUE(reader.read().for_long);
  EXPECT_EQ(reader.waited().count(), 31'457) << "in units of 2^20 ns";
}

TEST_F(KernelWaitReaderTest, PassesOverShortWaitsHoweverMany) {
  for (uint32_t i = 0; i < 100; ++i) {
    collectives().for_data[1] = 1 + i % 7 * 10;
    EXPECT_FALSE(reader.read().any());
  }
}

TEST_F(KernelWaitReaderTest, KnowsWhetherAllWaitsLastForLong) {
  collectives().for_data[1] = 31'000;
  collectives().for_room[2] = 30'000;
  EXPECT_TRUE(reader.read().for_long);
  collectives().for_data[1] = 31'050;
  collectives().for_room[2] = 300;
  EXPECT_FALSE(reader.read().for_long);
  collectives().for_data[1] = 31'100;
  EXPECT_TRUE(reader.read().for_long) << "the other has ended";
}

TEST_F(KernelWaitReaderTest, SeesWaitsInWhatHasNoName) {
  signals.call = CallNames::kUnknown;
  collectives().for_data[1] = 300;
  const KernelWait wait = reader.read();
  EXPECT_TRUE(wait.unknown && wait.is_for(1));
}

TEST_F(KernelWaitReaderTest, KnowsTheCollective) {
  const CollectiveWork work = broadcast();
  CollectiveWork other = work;
  other.count = 800;
  signals.call = names.name(launch_of({work}), true);
  collectives().for_data[0] = 300;
  const KernelWait alone = reader.read();
  EXPECT_EQ(alone.collective, Signature::of(work, 0));
  EXPECT_FALSE(alone.among_several);
  signals.call = names.name(launch_of({other, work}), true) + 1;
  collectives().for_data[0] = 310;
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
    collectives().for_data[0] = time;
    EXPECT_EQ(reader.read().collective, Signature::of(other, 0)) << time;
  }
  EXPECT_FALSE(reader.read().any());
  signals.call = launch + 1;
  collectives().for_data[0] = 310;
  EXPECT_EQ(reader.read().collective, Signature::of(broadcast(), 0)) << "another wait";
}

}  // namespace
}  // namespace nitinol::cuda
