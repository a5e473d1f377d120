#include "executor/cuda/message_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "base/error.h"
#include "executor/cuda/kernel_shapes.h"

namespace nitinol::cuda {
namespace {

constexpr auto kSend = MessageWork::Direction::kSend;
constexpr auto kReceive = MessageWork::Direction::kReceive;
constexpr MessageGrain kGrain{.channel_bytes = 2048};

MessageWork message(MessageWork::Direction direction, int peer, size_t bytes, char* buffer = nullptr) {
  return MessageWork{direction, peer, buffer, bytes};
}

TEST(MessagePlan, EachDirectionOfEachConnectionIsALane) {
  const QueueLayout layout = make_layout(3, 1, 4, 8192);
  const auto batches =
      plan_messages({message(kSend, 1, 8), message(kReceive, 1, 8), message(kSend, 2, 8)}, kGrain, layout);
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0].lanes.size(), 3U);
  EXPECT_EQ(batches[0].messages.size(), 3U);
}

TEST(MessagePlan, MessagesOfALaneKeepTheirOrder) {
  const QueueLayout layout = make_layout(2, 1, 4, 8192);
  char buffer[3];
  const auto batches =
      plan_messages({message(kSend, 1, 5, buffer), message(kSend, 1, 7, buffer + 1), message(kSend, 1, 9, buffer + 2)},
                    kGrain, layout);
  ASSERT_EQ(batches.size(), 1U);
  ASSERT_EQ(batches[0].lanes.size(), 1U);
  EXPECT_EQ(batches[0].lanes[0].count, 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(batches[0].messages[static_cast<size_t>(i)].buffer, buffer + i);
}

TEST(MessagePlan, MessagesKeepTheirSizeAndTag) {
  const QueueLayout layout = make_layout(2, 1, 4, 8192);
  constexpr size_t most = MessageWork::kMostBytes;
  const auto batches = plan_messages({message(kSend, 1, 8), message(kSend, 1, most)}, kGrain, layout);
  const MessageSignature signature{.bytes = most};
  EXPECT_EQ(batches[0].messages[0].bytes(), 8U);
  EXPECT_EQ(batches[0].messages[1].bytes(), most);
  EXPECT_EQ(batches[0].messages[1].mark(), signature.tag() << 8);
  EXPECT_NE(batches[0].messages[0].mark(), batches[0].messages[1].mark());
}

TEST(MessagePlan, LongMessagesTakeSeveralChannelsOnBothSidesAlike) {
  const QueueLayout layout = make_layout(2, 8, 4, 65536);
  const auto sender = plan_messages({message(kSend, 1, 1 << 20)}, kGrain, layout);
  const auto receiver = plan_messages({message(kReceive, 0, 1 << 20)}, kGrain, layout);
  ASSERT_EQ(sender.size(), 1U);
  ASSERT_EQ(receiver.size(), 1U);
  EXPECT_EQ(sender[0].lanes.size(), 8U);
  EXPECT_EQ(receiver[0].lanes.size(), 8U);
}

/// What each launch carries between each pair of ranks in each direction, if all ranks exchange `each` messages with
/// all.
TEST(MessagePlan, WhatALaunchAwaitsIsInThePeersLaunchOfTheSameNumber) {
  constexpr int kRanks = 5;
  const QueueLayout layout = make_layout(kRanks, 2, 4, 8192);
  std::map<std::tuple<size_t, int, int>, int> sent;
  std::map<std::tuple<size_t, int, int>, int> received;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<MessageWork> work;
    for (int peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      for (int i = 0; i < 300 * (rank + peer); ++i) {
        work.push_back(message(kReceive, peer, 4));
        work.push_back(message(kSend, peer, 4));
      }
    }
    const auto batches = plan_messages(work, kGrain, layout);
    for (size_t number = 0; number < batches.size(); ++number) {
      ASSERT_LE(batches[number].lanes.size(), static_cast<size_t>(ManyMessages::kMaxLanes));
      ASSERT_LE(batches[number].messages.size(), static_cast<size_t>(ManyMessages::kMaxMessages));
      for (const Lane& lane : batches[number].lanes) {
        if (lane.sends != 0) {
          sent[{number, rank, lane.peer}] += lane.count;
        } else {
          received[{number, lane.peer, rank}] += lane.count;
        }
      }
    }
  }
  EXPECT_EQ(sent, received);
}

/// Messages from all to all, long enough for several channels; each rank's launch.
std::vector<MessagePlan> plans_from_all_to_all(int ranks, const Sizes& sizes) {
  std::vector<MessagePlan> plans;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<MessageWork> work;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      work.push_back(message(kSend, peer, 32 << 20));
      work.push_back(message(kReceive, peer, 32 << 20));
    }
    plans.push_back(plan_messages(work, rank, sizes));
  }
  return plans;
}

/// Whether all lanes come to their end where each rank has so many at work at a time, and a lane ends once its partner
/// is at work too.
bool all_lanes_end(const std::vector<MessagePlan>& plans, size_t at_work) {
  using Key = std::tuple<int, int, int>;  // from, to, channel
  std::vector<std::vector<Lane>> left;
  for (const MessagePlan& plan : plans) left.push_back(plan[static_cast<size_t>(Protocol::kSimple)].at(0).lanes);
  while (true) {
    std::map<Key, int> ends;
    const auto key_of = [](int rank, const Lane& lane) {
      return lane.sends != 0 ? Key(rank, lane.peer, lane.channel) : Key(lane.peer, rank, lane.channel);
    };
    for (size_t rank = 0; rank < left.size(); ++rank) {
      const size_t some = std::min(at_work, left[rank].size());
      for (size_t i = 0; i < some; ++i) ++ends[key_of(static_cast<int>(rank), left[rank][i])];
    }
    if (ends.empty()) return true;
    bool any = false;
    for (size_t rank = 0; rank < left.size(); ++rank) {
      any |= std::erase_if(left[rank], [&](const Lane& lane) {
               const auto found = ends.find(key_of(static_cast<int>(rank), lane));
               return found != ends.end() && found->second == 2;
             }) > 0;
    }
    if (!any) return false;
  }
}

TEST(MessagePlan, WithPartnersTogetherTwoLanesAtATimeAreEnough) {
  for (const int ranks : {2, 3, 4, 8}) {
    const Sizes sizes = sizes_for({.ranks = ranks, .multiprocessors = 132, .lines_stay_whole = true});
    std::vector<MessagePlan> plans = plans_from_all_to_all(ranks, sizes);
    EXPECT_EQ(all_lanes_end(plans, 2), false) << ranks << " ranks, whose sends stand before their receives";
    for (int rank = 0; rank < ranks; ++rank) put_partners_together(plans[static_cast<size_t>(rank)], rank, ranks);
    EXPECT_EQ(all_lanes_end(plans, 2), true) << ranks << " ranks";
  }
}

TEST(MessagePlan, ChunksOfSimpleAreShortEnoughForFourRoundsAndNotShorterThanAllowed) {
  const QueueLayout layout = make_layout(2, 8, 4, 131072);
  const MessageGrain grain{.channel_bytes = 8192, .least_chunk_bytes = 8192};
  EXPECT_EQ(message_chunk(Protocol::kSimple, 1000, grain, layout), 8192U);
  EXPECT_EQ(message_chunk(Protocol::kSimple, 100 << 10, grain, layout), 25U << 10);
  EXPECT_EQ(message_chunk(Protocol::kSimple, 10 << 20, grain, layout), 131072U);
  EXPECT_EQ(message_chunk(Protocol::kLL, 1000, grain, layout), payload_of(Queue::kMessageLL, layout.slot_bytes))
      << "a slot: nobody waits for whole ones";
}

TEST(MessagePlan, ProtocolsRunBesideEachOtherIfAllTheirLanesAreResident) {
  constexpr size_t kLarge = size_t{20} << 20;
  constexpr size_t kSmall = size_t{8} << 20;
  const auto together = [](const Machine& machine, const std::vector<MessageWork>& work) {
    const Sizes sizes = sizes_for(machine);
    return may_run_together(plan_messages(work, 0, sizes), sizes);
  };
  const Machine few{.ranks = 4, .multiprocessors = 132};
  EXPECT_FALSE(together(few, {message(kSend, 1, kLarge), message(kReceive, 1, kLarge)}));
  EXPECT_FALSE(together(few, {message(kSend, 1, kLarge), message(kSend, 0, kSmall), message(kSend, 1, 0)}));
  EXPECT_TRUE(together(few, {message(kSend, 1, kLarge), message(kReceive, 1, kSmall)}));
  std::vector<MessageWork> all;
  for (const size_t bytes : {kLarge, kSmall}) {
    for (int peer = 1; peer < 4; ++peer) {
      for (const auto direction : {kSend, kReceive}) all.push_back(message(direction, peer, bytes));
    }
  }
  EXPECT_FALSE(together(few, all));
  Machine crowded = few;
  crowded.ranks_per_gpu = 8;
  EXPECT_FALSE(together(crowded, {message(kSend, 1, kLarge), message(kReceive, 1, kSmall)})) << "too few queues";
}

TEST(MessagePlan, TellsByWhichProtocolsThereIsOneLaunch) {
  const Sizes sizes = sizes_for(Machine{.ranks = 4, .multiprocessors = 132});
  std::vector<MessageWork> work = {message(kSend, 1, size_t{20} << 20), message(kReceive, 1, 8)};
  EXPECT_EQ(protocols_of(plan_messages(work, 0, sizes)), 6U);
  work.insert(work.end(), ManyMessages::kMaxMessages, message(kReceive, 1, 8));
  EXPECT_EQ(protocols_of(plan_messages(work, 0, sizes)), 0U) << "several by LL128";
}

TEST(MessagePlan, MessagesToOneselfArePairedInOrder) {
  char a[2];
  char b[2];
  const auto pairs = pair_self_messages({message(kSend, 0, 4, a), message(kReceive, 0, 4, b), message(kSend, 1, 4, a),
                                         message(kReceive, 0, 8, b + 1), message(kSend, 0, 8, a + 1)},
                                        0);
  ASSERT_EQ(pairs.size(), 2U);
  EXPECT_EQ(pairs[0].from, a);
  EXPECT_EQ(pairs[0].to, b);
  EXPECT_EQ(pairs[1].from, a + 1);
  EXPECT_EQ(pairs[1].to, b + 1);
}

TEST(MessagePlan, AMessageToOneselfWithoutItsPartnerIsAnError) {
  EXPECT_THROW(pair_self_messages({message(kSend, 2, 4)}, 2), Error);
}

}  // namespace
}  // namespace nitinol::cuda
