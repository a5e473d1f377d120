#include "executor/call_check.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "executor/collective_waits.h"

namespace nitinol {
namespace {

constexpr size_t kUnreceived = 1 << 16;

CollectiveWork work_of(Collective what, size_t count, int root = 0, DataType type = DataType::kFloat32) {
  CollectiveWork work;
  work.what = what;
  work.count = count;
  work.type = work.stated = type;
  work.root = root;
  return work;
}

/// Ranks of this process on one board, each with its check. A test plays the launches by hand.
class Ranks {
 public:
  explicit Ranks(int ranks) : board_(SharedMemory::create(CallBoard::bytes_for(ranks), false), ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      Peer peer;
      peer.rank = rank;
      peer.pid = 100 + rank;
      peers_.push_back(peer);
    }
    for (int rank = 0; rank < ranks; ++rank) checks_.emplace_back(board_, peers_, rank, kUnreceived);
  }

  void call(int rank, const CollectiveWork& work, bool captured = false) {
    note_calls(board_, rank, Launch{.collectives = {work}, .messages = {}}, captured);
  }
  void all_reduce(int rank, size_t count) { call(rank, work_of(Collective::kAllReduce, count)); }
  void announce(int rank, const CollectiveWork& work) {
    announce_calls(board_, rank, Launch{.collectives = {work}, .messages = {}});
  }
  void all_call(const CollectiveWork& work) {
    for (int rank = 0; rank < board_.ranks(); ++rank) call(rank, work);
  }
  void send(int rank, int to, size_t bytes) { message(rank, to, bytes, MessageWork::Direction::kSend); }
  void receive(int rank, int from, size_t bytes) { message(rank, from, bytes, MessageWork::Direction::kReceive); }
  void wait_in_collective(int rank, uint64_t launch, int of_rank) {
    RankSet ranks;
    ranks.add(of_rank);
    note_collective_waits(board_.page(rank), {launch, ranks});
  }
  void leave(int rank) { board_.page(rank).leaving.store(1); }

  /// What the rank finds in one look; "" if nothing.
  std::string look(int rank, bool idle = false) {
    return checks_[static_cast<size_t>(rank)].look([idle] { return idle; }, now_).value_or("");
  }
  /// In so many looks that a rank that gets no further counts as stuck.
  std::string look_for_long(int rank, bool idle = false) {
    std::string found;
    for (int i = 0; i < 30 && found.empty(); ++i) {
      now_ += std::chrono::milliseconds(50);
      found = look(rank, idle);
    }
    return found;
  }
  std::string take_warning(int rank) { return checks_[static_cast<size_t>(rank)].take_warning().value_or(""); }
  /// "" if no rank ever finds anything.
  std::string all_look_for_long() {
    std::string found;
    for (int rank = 0; rank < board_.ranks(); ++rank) found += look_for_long(rank);
    return found;
  }
  const CallBoard& board() const { return board_; }
  const CallCheck& check(int rank) const { return checks_[static_cast<size_t>(rank)]; }

 private:
  void message(int rank, int peer, size_t bytes, MessageWork::Direction direction) {
    MessageWork work;
    work.direction = direction;
    work.peer = peer;
    work.bytes = bytes;
    note_calls(board_, rank, Launch{.collectives = {}, .messages = {work}}, false);
  }

  CallBoard board_;
  std::vector<Peer> peers_;
  std::vector<CallCheck> checks_;
  CallCheck::Clock::time_point now_{};
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(CallCheck, SaysNothingOfCallsThatAgree) {
  Ranks ranks(4);
  EXPECT_EQ(ranks.all_look_for_long(), "");
  for (size_t i = 0; i < 3000; ++i) ranks.all_call(work_of(Collective::kBroadcast, i, static_cast<int>(i % 4)));
  EXPECT_EQ(ranks.all_look_for_long(), "");
}

TEST(CallCheck, TellsBothCallsOnEveryRank) {
  Ranks ranks(3);
  ranks.all_call(work_of(Collective::kAllReduce, 7));
  ranks.all_reduce(0, 100);
  ranks.call(2, work_of(Collective::kBroadcast, 400, 1));
  EXPECT_EQ(ranks.look(0),
            "the ranks' calls do not match: rank 0 calls AllReduce number 2 (count 100, type float32, op sum), rank 2 "
            "(host , pid 102, device -1) calls Broadcast number 2 (count 100, type float32, root 1); all ranks must "
            "make the same calls in the same order, with the same sizes");
  EXPECT_TRUE(contains(ranks.look(2), "rank 2 calls Broadcast number 2")) << ranks.look(2);
  EXPECT_EQ(ranks.look(1), "");  // it has not made the call
}

TEST(CallCheck, SeesEveryPartOfACall) {
  const CollectiveWork usual = work_of(Collective::kReduce, 100);
  CollectiveWork maximum = usual;
  maximum.reduction.combine = Combine::kMax;
  for (const CollectiveWork& odd :
       {work_of(Collective::kReduce, 99), work_of(Collective::kReduce, 0), work_of(Collective::kReduce, 100, 1),
        maximum, work_of(Collective::kReduce, 100, 0, DataType::kInt32)}) {
    Ranks ranks(2);
    ranks.call(0, usual);
    ranks.call(1, odd);
    EXPECT_NE(ranks.look(0), "");
  }
}

TEST(CallCheck, ComparesWhatARankIsAboutToCall) {
  Ranks ranks(3);
  ranks.all_call(work_of(Collective::kAllReduce, 7));
  ranks.announce(1, work_of(Collective::kAllReduce, 8));
  ranks.all_reduce(0, 8);
  EXPECT_EQ(ranks.all_look_for_long(), "");
  ranks.announce(2, work_of(Collective::kAllReduce, 9));
  EXPECT_TRUE(contains(ranks.look(0), "rank 0 calls AllReduce number 2 (count 8")) << ranks.look(0);
  EXPECT_TRUE(contains(ranks.look(2), "rank 2 calls AllReduce number 2 (count 9")) << ranks.look(2);
  EXPECT_NE(ranks.look(1), "");  // both are about to
}

TEST(CallCheck, RanksMayBeThousandsOfCallsApart) {
  Ranks ranks(2);
  for (size_t i = 0; i < 5000; ++i) ranks.all_reduce(0, i);
  for (size_t i = 0; i < 5000; ++i) {
    ranks.all_reduce(1, i);
    if (i % 100 == 0) {
      ASSERT_EQ(ranks.look(0) + ranks.look(1), "") << i;
    }
  }
  EXPECT_EQ(ranks.all_look_for_long(), "");
}

TEST(CallCheck, FindsADifferenceAmongCallsThatAreStillKept) {
  Ranks ranks(2);
  for (size_t i = 1; i <= 900; ++i) ranks.all_reduce(0, i);
  for (size_t i = 1; i <= 5; ++i) ranks.all_reduce(1, i == 5 ? 77 : i);
  EXPECT_TRUE(contains(ranks.look(1), "number 5 (count 77")) << ranks.look(1);
  EXPECT_TRUE(contains(ranks.look(1), "number 5 (count 5,")) << ranks.look(1);
}

TEST(CallCheck, KnowsOfADifferenceThatIsTooLongAgoToTell) {
  Ranks ranks(2);
  for (size_t i = 0; i < 4000; ++i) {
    ranks.all_reduce(0, 10);
    ranks.all_reduce(1, i == 20 ? 11 : 10);
  }
  EXPECT_TRUE(contains(ranks.look(0), "something before number 4000")) << ranks.look(0);
}

TEST(CallCheck, NeverComparesWhatIsBeingWritten) {
  Ranks ranks(3);
  std::atomic<int> writing{3};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      for (size_t i = 0; i < 20'000; ++i) {
        ranks.call(rank, work_of(i % 3 == 0 ? Collective::kAllGather : Collective::kAllReduce, i * i));
        if (i % 7 == 0) ranks.send(rank, (rank + 1) % 3, i + 1);
        if (i % 7 == 0) ranks.receive(rank, (rank + 2) % 3, i + 1);
      }
      --writing;
    });
  }
  std::string found;
  while (writing > 0 && found.empty()) {
    for (int rank = 0; rank < 3; ++rank) found += ranks.look(rank);
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found, "");
  ranks.all_reduce(0, 1);
  ranks.all_reduce(1, 2);
  EXPECT_NE(ranks.look(0), "");
  EXPECT_NE(ranks.look(1), "");
}

TEST(CallCheck, ComparesMessagesPairByPair) {
  Ranks ranks(3);
  for (size_t i = 1; i <= 40; ++i) ranks.send(0, 1, i);
  for (size_t i = 1; i <= 600; ++i) ranks.receive(2, 0, i);
  for (size_t i = 1; i <= 30; ++i) ranks.receive(1, 0, i);
  EXPECT_EQ(ranks.all_look_for_long(), "");
  ranks.send(1, 0, 0);  // nothing is sent for it
  ranks.receive(1, 0, 32);
  EXPECT_TRUE(contains(ranks.look(1), "rank 1 calls Recv number 31 from rank 0 (count 32, type uint8), rank 0 (host "))
      << ranks.look(1);
  EXPECT_TRUE(contains(ranks.look(1), "calls Send number 31 to rank 1 (count 31, type uint8)")) << ranks.look(1);
  EXPECT_TRUE(contains(ranks.look(0), "rank 0 calls Send number 31 to rank 1 (count 31, ")) << ranks.look(0);
}

TEST(CallCheck, AMessageThatComesBehindACollectiveThatNeedsItsReceiverNeverComes) {
  Ranks ranks(3);
  ranks.all_call(work_of(Collective::kAllReduce, 5));
  ranks.receive(0, 2, 10);
  EXPECT_EQ(ranks.look_for_long(0), "");
  ranks.all_reduce(2, 100);
  EXPECT_TRUE(contains(ranks.look(0),
                       "rank 0 waits in Recv number 1 from rank 2 (count 10, type uint8) for rank 2 (host , pid 102, "
                       "device -1), which is in AllReduce number 2 (count 100, type float32, op sum) and cannot leave "
                       "it before rank 0 has joined it"))
      << ranks.look(0);
  EXPECT_EQ(ranks.look_for_long(1) + ranks.look_for_long(2), "");
}

TEST(CallCheck, NamesTheMessageWhoseOtherEndIsNotIssued) {
  Ranks ranks(3);
  EXPECT_EQ(ranks.check(0).unmatched_message(1), "");
  ranks.send(0, 1, 40);
  ranks.receive(1, 0, 40);
  EXPECT_EQ(ranks.check(0).unmatched_message(1), "");
  ranks.send(0, 1, 50);
  EXPECT_EQ(ranks.check(0).unmatched_message(1), "") << "so small a message waits for nobody";
  ranks.receive(1, 0, 50);
  ranks.send(0, 1, kUnreceived + 1);
  EXPECT_EQ(ranks.check(0).unmatched_message(1), "Send number 3 to rank 1 (count 65537, type uint8)");
  ranks.receive(0, 1, 60);
  ranks.receive(0, 1, 70);
  EXPECT_EQ(ranks.check(0).unmatched_message(1), "Recv number 1 from rank 1 (count 60, type uint8)");
  EXPECT_EQ(ranks.check(0).unmatched_message(2), "");
  EXPECT_EQ(ranks.check(1).unmatched_message(0), "") << "a message that is sent is for nobody to wait for";
}

TEST(CallCheck, AMessageMayComeAfterACollectiveThatDoesNotNeedItsReceiver) {
  Ranks ranks(2);
  ranks.receive(0, 1, 10);
  ranks.call(1, work_of(Collective::kBroadcast, 400, 1));  // its root waits for nobody
  EXPECT_EQ(ranks.look_for_long(0), "");
  ranks.send(1, 0, 10);
  ranks.call(0, work_of(Collective::kBroadcast, 400, 1));
  EXPECT_EQ(ranks.all_look_for_long(), "");
}

TEST(CallCheck, OnlyALargeMessageWaitsForItsReceiver) {
  Ranks ranks(2);
  ranks.send(0, 1, kUnreceived);
  ranks.all_reduce(1, 10);
  EXPECT_EQ(ranks.look_for_long(0), "");
  Ranks others(2);
  others.send(0, 1, kUnreceived + 1);
  others.all_reduce(1, 10);
  EXPECT_TRUE(contains(others.look(0), "rank 0 waits in Send number 1 to rank 1 (count 65537, type uint8) for rank 1"))
      << others.look(0);
  EXPECT_TRUE(contains(others.look(0), "before rank 0 has joined it")) << others.look(0);
}

TEST(CallCheck, TellsOfACircleOnceAllAreQuiet) {
  Ranks ranks(3);
  for (int rank = 0; rank < 2; ++rank) ranks.receive(rank, 1 - rank, 10);
  for (int rank = 0; rank < 2; ++rank) ranks.send(rank, 1 - rank, 10);
  EXPECT_EQ(ranks.look(0), "");
  EXPECT_EQ(ranks.look_for_long(2), "");  // takes no part
  EXPECT_EQ(ranks.look_for_long(1, true), "");
  EXPECT_TRUE(contains(
      ranks.look_for_long(0),
      "wait for each other in a circle: rank 0 (host , pid 100, device -1) waits in Recv number 1 from rank 1 (count "
      "10, type uint8) for rank 1 (host , pid 101, device -1), which waits in Recv number 1 from rank 0 (count 10, "
      "type uint8) for rank 0 (host , pid 100, device -1); each would"))
      << ranks.look_for_long(0);
}

TEST(CallCheck, WhoeverWaitsForARankThatWaitsForItInASplitIsTold) {
  Ranks ranks(3);
  ranks.all_call(work_of(Collective::kAllReduce, 7));
  ranks.board().host_call(2, 0) = HostCall::kSplit;
  EXPECT_EQ(ranks.all_look_for_long(), "");
  ranks.all_reduce(0, 10);
  EXPECT_EQ(ranks.look_for_long(0, true), "");  // comes to the split
  EXPECT_TRUE(contains(ranks.look_for_long(0),
                       "rank 0 calls AllReduce number 2 (count 10, type float32, op sum), rank 2 (host , pid 102, "
                       "device -1) calls ncclCommSplit;"))
      << ranks.look_for_long(0);
  ranks.board().host_call(0, 2) = HostCall::kSplit;  // it has come
  EXPECT_EQ(ranks.all_look_for_long(), "");
  ranks.board().host_call(0, 2) = HostCall::kNone;
  ranks.all_reduce(2, 10);  // was issued before
  EXPECT_EQ(ranks.all_look_for_long(), "");
}

TEST(CallCheck, ARankThatWaitsForOthersInAShrinkHoldsNobodyUp) {
  Ranks ranks(3);
  ranks.board().host_call(2, 1) = HostCall::kShrink;
  ranks.all_reduce(0, 10);
  EXPECT_EQ(ranks.look_for_long(0), "");
  ranks.all_reduce(1, 10);
  EXPECT_TRUE(contains(ranks.look_for_long(1), "device -1) calls ncclCommShrink;")) << ranks.look_for_long(1);
}

TEST(CallCheck, WhoeverWaitsForARankThatHasLeftIsTold) {
  Ranks ranks(3);
  ranks.all_reduce(0, 10);
  ranks.receive(1, 2, 10);
  EXPECT_EQ(ranks.all_look_for_long(), "");
  ranks.leave(2);
  EXPECT_EQ(ranks.look(0), "");
  EXPECT_EQ(ranks.look_for_long(0, true), "");  // it is through, whatever that was
  EXPECT_TRUE(contains(ranks.look_for_long(0),
                       "rank 0 calls AllReduce number 1 (count 10, type float32, op sum), but "
                       "rank 2 (host , pid 102, device -1) finalizes or destroys"));
  EXPECT_TRUE(contains(ranks.look(1), "which finalizes or destroys its communicator")) << ranks.look(1);
}

TEST(CallCheck, NobodyMissesCollectivesOfNoElements) {
  Ranks ranks(2);
  for (const size_t count : {7, 0, 0}) ranks.all_reduce(0, count);
  ranks.all_reduce(1, 7);
  ranks.leave(1);
  EXPECT_EQ(ranks.look_for_long(0), "");
  for (const int rank : {0, 1}) EXPECT_EQ(ranks.check(rank).difference_in_the_end(), std::nullopt);
  ranks.all_reduce(0, 10);
  const std::string fourth = "rank 0 calls AllReduce number 4 (count 10, type float32, op sum)";
  EXPECT_TRUE(contains(ranks.look_for_long(0), fourth)) << ranks.look_for_long(0);
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(contains(ranks.check(rank).difference_in_the_end().value_or(""), fourth)) << rank;
  }
}

TEST(CallCheck, MessagesThatNobodyReceivedAreToldToBothEndsOnceAllHaveLeft) {
  Ranks ranks(3);
  for (const size_t bytes : {40, 0, 50, 60}) ranks.send(0, 1, bytes);
  ranks.receive(1, 0, 40);
  EXPECT_EQ(ranks.check(0).difference_in_the_end(), std::nullopt);  // it may come
  for (int rank = 0; rank < 3; ++rank) ranks.leave(rank);
  const std::string told =
      "the ranks' calls do not match: rank 0 (host , pid 100, device -1) has sent 3 messages to rank 1 (host , pid "
      "101, "
      "device -1), which has received 1; nobody has received Send number 2 to rank 1 (count 50, type uint8) before all "
      "finalized or destroyed their communicator";
  EXPECT_EQ(ranks.check(0).difference_in_the_end(), told);
  EXPECT_EQ(ranks.check(1).difference_in_the_end(), told);
  EXPECT_EQ(ranks.check(2).difference_in_the_end(), std::nullopt);
  ranks.call(1, work_of(Collective::kAllGather, 9), true);  // a graph may have received more
  EXPECT_EQ(ranks.check(0).difference_in_the_end(), std::nullopt);
}

TEST(CallCheck, LaunchesOfGraphsMayComeBetweenCalls) {
  Ranks ranks(2);
  for (int rank = 0; rank < 2; ++rank) ranks.call(rank, work_of(Collective::kAllGather, 9), true);
  ranks.all_reduce(0, 1);
  ranks.call(1, work_of(Collective::kBroadcast, 8));
  EXPECT_EQ(ranks.look_for_long(0, true), "");
  EXPECT_EQ(ranks.look(0), "");
  EXPECT_NE(ranks.look_for_long(0), "");  // but it gets no further
}

TEST(CallCheck, HowOftenItLooksDoesNotMakeARankStuck) {
  Ranks ranks(2);
  ranks.call(0, work_of(Collective::kAllGather, 10), true);
  ranks.call(1, work_of(Collective::kAllGather, 11), true);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(ranks.look(0), "");
  EXPECT_NE(ranks.look_for_long(0), "");
}

TEST(CallCheck, CallsInGraphsAreComparedInTheOrderOfTheirCapture) {
  Ranks ranks(2);
  ranks.call(0, work_of(Collective::kAllGather, 9), true);
  ranks.all_reduce(0, 1);
  ranks.all_reduce(1, 1);
  ranks.call(1, work_of(Collective::kAllGather, 9), true);
  EXPECT_EQ(ranks.all_look_for_long(), "");
  ranks.call(0, work_of(Collective::kAllGather, 10), true);
  ranks.call(1, work_of(Collective::kAllGather, 11), true);
  EXPECT_EQ(ranks.look(0), "");
  EXPECT_TRUE(contains(ranks.look_for_long(0), "among the calls captured into graphs, the ranks' calls do not match"));
}

TEST(CallCheck, WhatDiffersInGraphsAndHoldsNobodyUpIsWarnedOfOnce) {
  Ranks ranks(2);
  ranks.call(0, work_of(Collective::kAllReduce, 10), true);
  ranks.receive(1, 0, 10);  // perhaps from a graph: no reason to warn
  EXPECT_EQ(ranks.look_for_long(0, true), "");
  EXPECT_EQ(ranks.take_warning(0), "");
  ranks.call(1, work_of(Collective::kAllReduce, 11), true);
  EXPECT_EQ(ranks.look_for_long(0, true), "");
  const std::string warning = ranks.take_warning(0);
  EXPECT_TRUE(contains(warning, "among the calls captured into graphs, the ranks' calls do not match")) << warning;
  EXPECT_TRUE(contains(warning, "results may be wrong, unless launches of graphs"));
  EXPECT_EQ(ranks.look_for_long(0, true), "");
  EXPECT_EQ(ranks.take_warning(0), "");
}

TEST(CallCheck, WhateverStandsOnTheBoardIsBorne) {
  Ranks ranks(2);
  ranks.all_reduce(0, 1);
  const size_t half = CallBoard::bytes_for(2) / 2;
  auto* const theirs = reinterpret_cast<uint64_t*>(&ranks.board().page(1));
  for (const uint64_t word : {uint64_t{1}, uint64_t{2}, ~uint64_t{0}, uint64_t{0x0101010101010101}}) {
    std::fill_n(theirs, half / sizeof(uint64_t), word);
    static_cast<void>(ranks.look_for_long(0));
    static_cast<void>(ranks.check(0).doings_of(1, true));
  }
}

TEST(CallCheck, TellsWhatARankIsDoing) {
  Ranks ranks(2);
  EXPECT_TRUE(contains(ranks.check(0).doings_of(1, true), "alive; idle, it has not begun any collective"));
  ranks.all_reduce(1, 3);
  EXPECT_TRUE(contains(ranks.check(0).doings_of(1, true), "; idle, its last collective was AllReduce number 1 (count"));
  EXPECT_TRUE(contains(ranks.check(0).doings_of(1, false), "; its last collective was AllReduce number 1 (count"));
  ranks.board().page(1).running.store(1);
  EXPECT_TRUE(contains(ranks.check(0).doings_of(1, true), "; it is in AllReduce number 1 (count"));
  ranks.send(1, 0, 5);
  EXPECT_TRUE(contains(ranks.check(0).doings_of(1, true),
                       "; it is in a group of sends and receives, its last collective was AllReduce number 1 (count 3, "
                       "type float32, op sum)"));
}

TEST(CallCheck, AMessageOfARootThatHasNoRoomNeverComes) {
  Ranks ranks(3);
  ranks.all_reduce(0, 5);
  for (int rank = 1; rank < 3; ++rank) ranks.call(rank, work_of(Collective::kAllReduce, 5));
  ranks.receive(0, 1, 10);
  ranks.call(1, work_of(Collective::kBroadcast, 400, 1));
  ranks.call(2, work_of(Collective::kBroadcast, 400, 1));
  EXPECT_EQ(ranks.all_look_for_long(), "") << "the root needs nobody";
  ranks.wait_in_collective(1, 2, 2);
  EXPECT_EQ(ranks.all_look_for_long(), "") << "nor this rank";
  ranks.wait_in_collective(1, 2, 0);
  const std::string found = ranks.look(0);
  EXPECT_NE(found.find("rank 0 waits in Recv number 1 from rank 1"), std::string::npos) << found;
  EXPECT_NE(found.find("which is in Broadcast number 2 (count 100, type float32, root 1) and cannot leave it before "
                       "rank 0 has joined it"),
            std::string::npos)
      << found;
}

}  // namespace
}  // namespace nitinol
