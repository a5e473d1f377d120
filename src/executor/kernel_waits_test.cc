#include "executor/kernel_waits.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace nitinol {
namespace {

CollectiveWork work_of(Collective what, size_t count, int root = 0) {
  CollectiveWork work;
  work.what = what;
  work.count = count;
  work.type = work.stated = DataType::kFloat32;
  work.root = root;
  return work;
}

/// Ranks on one board, of which the first has captured something. A test says what their kernels tell.
class KernelWaitsOfFour : public testing::Test {
 protected:
  KernelWaitsOfFour() : board_(SharedMemory::create(CallBoard::bytes_for(kRanks), false), kRanks) {
    for (int rank = 0; rank < kRanks; ++rank) {
      Peer peer;
      peer.rank = rank;
      peer.pid = 100 + rank;
      peers_.push_back(peer);
    }
    for (int rank = 0; rank < kRanks; ++rank) conclusions_.emplace_back(board_, peers_, rank);
    board_.page(0).captures.store(1);
  }

  void in_collective(int rank, const CollectiveWork& work, std::initializer_list<int> ranks) {
    KernelWait& wait = waits_[static_cast<size_t>(rank)];
    wait = {};
    wait.collective = Signature::of(work, 0);
    wait.works = bit_of(work);
    for (const int other : ranks) wait.for_data.add(other);
  }
  /// Of the launch, too.
  void among(int rank, const CollectiveWork& work) {
    waits_[static_cast<size_t>(rank)].among_several = true;
    waits_[static_cast<size_t>(rank)].works |= bit_of(work);
  }
  /// Ranks 0 and 1 wait for each other in launches of the same two collectives, of which each waits in another.
  void in_another_of_two() {
    in_collective(0, small_, {1});
    among(0, large_);
    in_collective(1, large_, {0});
    among(1, small_);
  }
  /// In a launch that sends to everybody and receives from everybody.
  void in_messages(int rank, std::initializer_list<int> ranks) {
    KernelWait& wait = waits_[static_cast<size_t>(rank)];
    wait = {};
    for (int other = 0; other < kRanks; ++other) wait.sends_to.add(other);
    wait.receives_from = wait.sends_to;
    for (const int other : ranks) wait.for_data.add(other);
  }
  /// The same in one that stands.
  void in_standing_messages(int rank, std::initializer_list<int> ranks, Protocol protocol = Protocol::kLL) {
    in_messages(rank, ranks);
    KernelWait& wait = waits_[static_cast<size_t>(rank)];
    for (KernelWait::ByProtocol& messages : wait.messages) messages.stands = true;
    of(rank, protocol).for_data = wait.for_data;
  }
  /// In such a launch, which waits until the other takes something.
  void in_standing_messages_for_room(int rank, int to) {
    in_standing_messages(rank, {});
    waits_[static_cast<size_t>(rank)].for_room.add(to);
    of(rank, Protocol::kLL).for_room.add(to);
  }
  KernelWait::ByProtocol& of(int rank, Protocol protocol) {
    return waits_[static_cast<size_t>(rank)].messages[static_cast<size_t>(protocol)];
  }
  void only_receives(int rank, int from) {
    KernelWait& wait = waits_[static_cast<size_t>(rank)];
    wait = {};
    wait.for_data.add(from);
    wait.receives_from.add(from);
  }
  void only_sends(int rank, int to) {
    KernelWait& wait = waits_[static_cast<size_t>(rank)];
    wait = {};
    wait.for_room.add(to);
    wait.sends_to.add(to);
  }
  static uint64_t bit_of(const CollectiveWork& work) { return uint64_t{1} << Signature::of(work, 0).tag() % 64; }
  void goes_on(int rank) { waits_[static_cast<size_t>(rank)] = {}; }

  /// What the rank says first while all look so often.
  std::string look(int rank, int times = 30) {
    std::string said;
    for (int i = 0; i < times && said.empty(); ++i) {
      for (int each = 0; each < kRanks; ++each) {
        write_kernel_wait(board_.page(each), waits_[static_cast<size_t>(each)]);
      }
      if (const auto found = conclusions_[static_cast<size_t>(rank)].look()) {
        said = found->sentence;
        code_ = found->code;
      }
    }
    return said;
  }

  static constexpr int kRanks = 4;
  const CollectiveWork small_ = work_of(Collective::kAllReduce, 100);
  const CollectiveWork large_ = work_of(Collective::kAllReduce, 200);
  CallBoard board_;
  std::vector<Peer> peers_;
  std::vector<KernelWaits> conclusions_;
  KernelWait waits_[kRanks];
  ncclResult_t code_ = ncclSuccess;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(KernelWaitsOfFour, InDifferentCollectivesAreTold) {
  in_collective(0, work_of(Collective::kAllReduce, 100), {1, 2, 3});
  in_collective(1, work_of(Collective::kBroadcast, 400, 2), {0});
  EXPECT_EQ(look(0),
            "the ranks' calls do not match: rank 0 calls AllReduce (count 100, type float32, op sum), rank 1 (host , "
            "pid 101, device -1) calls Broadcast (count 100, type float32, root 2); all ranks must make the same calls "
            "in the same order, with the same sizes");
  EXPECT_EQ(code_, ncclInvalidUsage);
  EXPECT_TRUE(contains(look(1), "rank 1 calls Broadcast")) << look(1);
  EXPECT_EQ(look(2), "") << "it waits for nobody";
}

TEST_F(KernelWaitsOfFour, AreNoErrorInTheSameCollective) {
  for (int rank = 0; rank < 3; ++rank) in_collective(rank, work_of(Collective::kAllReduce, 100), {0, 1, 2, 3});
  EXPECT_EQ(look(0), "") << "rank 3 is late";
}

TEST_F(KernelWaitsOfFour, AreToldIfAllHaveStoodStillForLong) {
  for (int rank = 0; rank < 3; ++rank) {
    in_collective(rank, work_of(Collective::kAllReduce, 100), {(rank + 1) % 3});
    waits_[rank].for_long = true;
  }
  EXPECT_TRUE(contains(look(0), "wait for each other in a circle")) << look(0);
  EXPECT_EQ(code_, ncclInvalidUsage);
  waits_[1].for_long = false;
  EXPECT_EQ(look(0), "") << "something moves there";
  waits_[1].for_long = true;
  waits_[2].for_data.add(3);
  EXPECT_EQ(look(0), "") << "rank 3 is late";
}

TEST_F(KernelWaitsOfFour, InWhatIsNotKnownProveNothingUntilAllHaveStoodStillForLong) {
  only_receives(0, 1);
  waits_[1].unknown = true;
  waits_[1].for_data.add(0);
  EXPECT_EQ(look(0, 200), "");
  waits_[0].for_long = waits_[1].for_long = true;
  EXPECT_TRUE(contains(look(0), "waits in an operation for rank 0")) << look(0);
}

TEST_F(KernelWaitsOfFour, InLaunchesOfTheSameCollectivesInOtherOrdersAreToldAfterLong) {
  in_another_of_two();
  waits_[0].for_long = waits_[1].for_long = true;
  EXPECT_TRUE(contains(look(0), "rank 0 calls AllReduce (count 100")) << look(0);
}

TEST_F(KernelWaitsOfFour, AreNoErrorInAnEarlierCallThatOthersAreThroughWith) {
  in_collective(0, work_of(Collective::kAllReduce, 100), {1});
  in_collective(1, work_of(Collective::kBroadcast, 400, 2), {2});
  EXPECT_EQ(look(0), "") << "rank 1 comes to it once rank 2 has come to the broadcast";
  EXPECT_EQ(look(1), "");
}

TEST_F(KernelWaitsOfFour, InACircleOfMessagesAreTold) {
  in_messages(0, {1});
  in_messages(1, {2});
  in_messages(2, {0});
  in_messages(3, {0});
  EXPECT_EQ(look(1, 90), "") << "their GPUs may be too busy for all of their kernels";
  const std::string said = look(1);
  EXPECT_TRUE(contains(said,
                       "wait for each other in a circle: rank 1 (host , pid 101, device -1) waits in a group of "
                       "sends and receives for rank 2"))
      << said;
  EXPECT_TRUE(contains(said, "for rank 0")) << said;
  EXPECT_EQ(look(3, 200), "") << "it only waits for the circle";
}

TEST_F(KernelWaitsOfFour, InACircleOfMessagesThatStandAreToldSoon) {
  in_standing_messages(0, {1});
  in_standing_messages(1, {2});
  in_standing_messages(2, {0});
  EXPECT_EQ(look(0, 3), "") << "what is on its way may need a moment";
  const std::string said = look(0, 2);
  EXPECT_TRUE(contains(said, "wait for each other in a circle: rank 0")) << said;
  EXPECT_EQ(code_, ncclInvalidUsage);
  for (const int rank : {1, 2}) EXPECT_NE(look(rank, 5), "") << rank;
  EXPECT_EQ(look(3, 200), "") << "it waits for nobody";
}

TEST_F(KernelWaitsOfFour, InMessagesProveNothingSoonIfTheLaunchOfOneDoesNotStand) {
  in_standing_messages(0, {1});
  in_messages(1, {0});
  EXPECT_EQ(look(0, 90), "") << "a part of it may not have begun, or the system may have to fetch memory for it";
  in_standing_messages(1, {0});
  EXPECT_NE(look(0, 5), "");
}

/// A part of rank 0's launch gets no further by itself; rank 1 may wait for room that only this part gives.
TEST_F(KernelWaitsOfFour, InMessagesThatDoNotStandProveNothingSoonOfOneThatStands) {
  in_messages(0, {1});
  of(0, Protocol::kSimple).for_data.add(1);
  waits_[0].receives_from = {};  // so what rank 1 waits for comes later
  in_standing_messages_for_room(1, 0);
  EXPECT_EQ(look(0, 90), "");
  EXPECT_EQ(look(1, 90), "");
}

TEST_F(KernelWaitsOfFour, InMessagesForRoomOfEachOtherAreToldSoonIfTheyStand) {
  for (const int rank : {0, 1}) in_standing_messages_for_room(rank, 1 - rank);
  const std::string said = look(0, 5);
  EXPECT_TRUE(contains(said, "wait for each other in a circle")) << said;
}

TEST_F(KernelWaitsOfFour, InLaunchesBesideEachOtherCountForTheirProtocolAlone) {
  in_standing_messages(0, {1});
  in_standing_messages(1, {0}, Protocol::kSimple);
  of(1, Protocol::kLL).stands = false;
  EXPECT_EQ(look(0, 90), "") << "its launch by LL may come yet";
  of(1, Protocol::kLL).stands = true;
  EXPECT_NE(look(0, 5), "");
}

TEST_F(KernelWaitsOfFour, InMessagesThatStandCountOnlyIfAllWaitOn) {
  in_standing_messages(0, {1});
  for (int i = 0; i < 20; ++i) {
    in_standing_messages(1, {0});
    EXPECT_EQ(look(0, 3), "");
    goes_on(1);
    EXPECT_EQ(look(0, 1), "");
  }
}

TEST_F(KernelWaitsOfFour, InACircleOfMessagesAndACollectiveAreToldSoonIfTheMessagesStand) {
  in_standing_messages(0, {1});
  in_standing_messages(1, {2});
  in_collective(2, work_of(Collective::kAllReduce, 100), {0});
  const std::string said = look(0, 12);
  EXPECT_TRUE(contains(said, "waits in AllReduce (count 100")) << said;
}

TEST_F(KernelWaitsOfFour, InMessagesForEachOtherProveNothingOfACollective) {
  in_messages(0, {1});  // of a kernel of which rank 1's GPU has no room for a part
  in_messages(1, {2});
  in_collective(2, work_of(Collective::kAllReduce, 100), {0});
  EXPECT_EQ(look(0, 200), "");
}

TEST_F(KernelWaitsOfFour, InLaunchesThatShareACollectiveProveNothing) {
  in_another_of_two();
  EXPECT_EQ(look(0, 200), "") << "rank 2 may be late for either";
  in_collective(1, large_, {0});
  EXPECT_EQ(look(0, 200), "") << "so may it if rank 1 has called one after the other";
  in_collective(0, small_, {1});
  EXPECT_NE(look(0), "");
}

TEST_F(KernelWaitsOfFour, InLaunchesWithoutACommonCollectiveAreTold) {
  in_collective(0, work_of(Collective::kAllReduce, 100), {1});
  among(0, work_of(Collective::kAllReduce, 300));
  in_collective(1, work_of(Collective::kAllReduce, 200), {0});
  EXPECT_TRUE(contains(look(0), "rank 0 calls AllReduce (count 100")) << look(0);
}

TEST_F(KernelWaitsOfFour, ForWhatALaunchOfMessagesDoesNotSendAreToldSoon) {
  only_receives(0, 1);
  only_receives(1, 0);
  const std::string said = look(0);
  EXPECT_TRUE(contains(said, "wait for each other in a circle: rank 0")) << said;
  in_messages(1, {0});
  EXPECT_EQ(look(0), "") << "rank 1's launch may still send what rank 0 waits for";
}

TEST_F(KernelWaitsOfFour, ForWhatALaunchOfMessagesDoesNotTakeAreToldSoon) {
  only_sends(0, 1);
  only_sends(1, 2);
  only_sends(2, 0);
  EXPECT_TRUE(contains(look(2), "wait for each other in a circle")) << look(2);
  waits_[0].receives_from.add(2);
  EXPECT_EQ(look(2), "") << "rank 0's launch also takes what rank 2 sends";
}

TEST_F(KernelWaitsOfFour, ForAMessageBehindTheLaunchThatWaitsForACollectiveAreToldSoon) {
  only_receives(0, 1);
  in_collective(1, work_of(Collective::kAllReduce, 100), {0});
  among(1, work_of(Collective::kAllReduce, 200));
  EXPECT_TRUE(contains(look(0), "waits in AllReduce (count 100")) << look(0);
}

TEST_F(KernelWaitsOfFour, InMessagesForOneInACollectiveAreTold) {
  in_messages(0, {1});
  in_collective(1, work_of(Collective::kAllReduce, 100), {0});
  const std::string said = look(0);
  EXPECT_TRUE(contains(said, "waits in AllReduce (count 100, type float32, op sum) for rank 0")) << said;
}

TEST_F(KernelWaitsOfFour, AreSeenByWayOfARankInTheSameCollective) {
  in_collective(0, work_of(Collective::kAllReduce, 100), {1});
  in_collective(1, work_of(Collective::kAllReduce, 100), {2});
  in_collective(2, work_of(Collective::kAllReduce, 200), {0});
  EXPECT_TRUE(contains(look(0), "count 200")) << look(0);
}

TEST_F(KernelWaitsOfFour, CountOnlyIfAllWaitOn) {
  in_collective(0, work_of(Collective::kAllReduce, 100), {1});
  for (size_t i = 0; i < 30; ++i) {
    in_collective(1, work_of(Collective::kBroadcast, i), {0});  // always another one
    EXPECT_EQ(look(0, 2), "");
  }
}

TEST_F(KernelWaitsOfFour, CountOnlyAsFarAsRanksLook) {
  in_collective(1, work_of(Collective::kBroadcast, 400), {0});
  write_kernel_wait(board_.page(1), waits_[1]);
  in_collective(0, work_of(Collective::kAllReduce, 100), {1});
  for (int i = 0; i < 50; ++i) {
    write_kernel_wait(board_.page(0), waits_[0]);
    EXPECT_FALSE(conclusions_[0].look()) << "rank 1 may have gone on";
  }
}

TEST_F(KernelWaitsOfFour, AreForgottenWhenTheyEnd) {
  in_collective(0, work_of(Collective::kAllReduce, 100), {1});
  in_collective(1, work_of(Collective::kBroadcast, 400), {0});
  EXPECT_EQ(look(0, 2), "");
  goes_on(1);
  EXPECT_EQ(look(0), "");
}

TEST_F(KernelWaitsOfFour, ForOneThatLeavesAreTold) {
  in_collective(2, work_of(Collective::kReduce, 100, 1), {3});
  board_.page(3).leaving.store(1);
  EXPECT_TRUE(contains(look(2), "rank 2 calls Reduce (count 100, type float32, op sum, root 1), but rank 3"))
      << look(2);
  EXPECT_EQ(code_, ncclInvalidUsage);
}

/// Their graphs outlive the communicator.
TEST_F(KernelWaitsOfFour, OfOnesThatHaveLeftAreForThoseThatLaunchLater) {
  in_collective(2, work_of(Collective::kReduce, 100, 1), {3});
  for (const int rank : {2, 3}) board_.page(rank).leaving.store(1);
  EXPECT_EQ(look(2), "");
}

TEST_F(KernelWaitsOfFour, ForOneThatHasStoppedAreToldAfterASecond) {
  in_messages(2, {3});
  board_.page(3).stopped.store(1);
  EXPECT_EQ(look(2, 20), "");
  EXPECT_TRUE(contains(look(2), "rank 2 waits in a group of sends and receives, but rank 3")) << look(2);
  EXPECT_EQ(code_, ncclRemoteError);
}

TEST_F(KernelWaitsOfFour, AreLeftToTheCallBoardWhereNothingWasCaptured) {
  board_.page(0).captures.store(0);
  in_collective(0, work_of(Collective::kAllReduce, 100), {1});
  in_collective(1, work_of(Collective::kBroadcast, 400), {0});
  EXPECT_EQ(look(0), "");
}

}  // namespace
}  // namespace nitinol
