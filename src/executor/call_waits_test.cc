#include "executor/call_waits.h"

#include <gtest/gtest.h>

#include <limits>

#include "executor/collective_waits.h"

namespace nitinol {
namespace {

using std::chrono::milliseconds;

Launch all_reduce() {
  CollectiveWork work;
  work.count = 4;
  work.type = work.stated = DataType::kInt32;
  return Launch{.collectives = {work}, .messages = {}};
}

Launch receive(int peer) {
  MessageWork work;
  work.direction = MessageWork::Direction::kReceive;
  work.peer = peer;
  work.bytes = 8;
  return Launch{.collectives = {}, .messages = {work}};
}

/// Rank 0 of three, which looks every 50 ms.
class Waiting0 : public testing::Test {
 protected:
  Waiting0()
      : board_(SharedMemory::create(CallBoard::bytes_for(3), false), 3), peers_(3), present_(board_, 0, 1 << 16) {}

  void issue(int rank, const Launch& launch) { note_calls(board_, rank, launch, false); }
  void stop(int rank, uint64_t through) {
    board_.page(rank).through.store(through);
    board_.page(rank).stopped.store(1);
  }
  /// What is said first within the time.
  std::string look(milliseconds time) {
    std::string said;
    for (const auto end = now_ + time; now_ < end && said.empty();) {
      now_ += milliseconds(50);
      present_.look([this] { return through_; }, now_);
      said = stopped_.look(present_, peers_, now_).value_or("");
    }
    return said;
  }

  CallBoard board_;
  std::vector<Peer> peers_;
  PresentLaunch present_;
  StoppedPeers stopped_;
  std::optional<uint64_t> through_ = 0;
  PresentLaunch::Clock::time_point now_{};
};

TEST_F(Waiting0, IsKnownOnceItIsQuiet) {
  look(milliseconds(500));
  EXPECT_EQ(present_.number(), 0U);  // has issued nothing
  issue(0, all_reduce());
  issue(0, receive(2));
  look(milliseconds(200));
  EXPECT_EQ(present_.number(), 0U);
  look(milliseconds(200));
  EXPECT_EQ(present_.number(), 1U);
  EXPECT_EQ(present_.needs().size(), 2U);
  EXPECT_EQ(present_.text(), "AllReduce number 1 (count 4, type int32, op sum)");
  through_ = 1;
  look(milliseconds(50));
  ASSERT_EQ(present_.needs().size(), 1U);
  EXPECT_EQ(present_.needs()[0].peer, 2);
  EXPECT_EQ(present_.text(), "a group of sends and receives");
  through_ = 2;
  look(milliseconds(50));
  EXPECT_EQ(present_.number(), 0U);
  through_.reset();
  look(milliseconds(50));
  EXPECT_EQ(present_.number(), 0U);
}

TEST_F(Waiting0, ForOneThatHasStoppedIsToldAfterASecond) {
  issue(0, all_reduce());
  stop(1, 0);
  EXPECT_EQ(look(milliseconds(1000)), "");
  EXPECT_EQ(look(milliseconds(1000)),
            "rank 0 waits in AllReduce number 1 (count 4, type int32, op sum), but rank 1 (host , pid 0, device -1) "
            "carries out nothing any more in this communicator, which was revoked or aborted or has failed there");
}

TEST_F(Waiting0, ForOneThatStoppedInTheMiddleIsTold) {
  for (const int rank : {0, 1, 2}) issue(rank, all_reduce());
  stop(2, 0);
  EXPECT_NE(look(milliseconds(2000)), "");
}

TEST_F(Waiting0, ForWhatOneThatHasStoppedNeverIssuedIsToldThoughItIsNotKnownHowFarItWas) {
  issue(0, all_reduce());
  issue(1, all_reduce());
  stop(1, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(look(milliseconds(3000)), "");
  issue(0, all_reduce());
  through_ = 1;
  EXPECT_NE(look(milliseconds(3000)), "");
}

TEST_F(Waiting0, IsNotAboutOneThatHadDoneItsPart) {
  for (const int rank : {0, 1, 2}) issue(rank, all_reduce());
  stop(1, 1);
  EXPECT_EQ(look(milliseconds(3000)), "");
}

TEST_F(Waiting0, IsNotAboutOneFromWhomNothingIsNeeded) {
  issue(0, receive(2));
  stop(1, 0);
  EXPECT_EQ(look(milliseconds(3000)), "");
  issue(0, all_reduce());  // not now
  EXPECT_EQ(look(milliseconds(3000)), "");
  through_ = 1;
  EXPECT_NE(look(milliseconds(3000)), "");
}

TEST_F(Waiting0, ForRoomOfOneFromWhomNothingIsNeeded) {
  Launch broadcast = all_reduce();
  broadcast.collectives[0].what = Collective::kBroadcast;  // rank 0 is the root
  issue(0, broadcast);
  stop(1, 0);
  EXPECT_EQ(look(milliseconds(3000)), "");
  RankSet rank_1;
  rank_1.add(1);
  note_collective_waits(board_.page(0), {1, rank_1});
  EXPECT_NE(look(milliseconds(3000)).find("rank 0 waits in Broadcast number 1 "), std::string::npos);
}

TEST_F(Waiting0, WhereThereAreGraphsNobodyKnows) {
  note_calls(board_, 2, all_reduce(), true);
  issue(0, all_reduce());
  stop(1, 0);
  EXPECT_EQ(look(milliseconds(3000)), "");
}

}  // namespace
}  // namespace nitinol
