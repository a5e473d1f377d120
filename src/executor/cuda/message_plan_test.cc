#include "executor/cuda/message_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

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

using Flow = std::pair<int, int>;  ///< direction and peer

/// By flow the channels that carry it, in order; empty if one does twice.
std::map<Flow, std::vector<int>> channels_by_flow(const MessageBatch& batch) {
  std::map<Flow, std::vector<int>> channels;
  for (const Lane& lane : batch.lanes) {
    std::vector<int>& all = channels[{lane.sends, lane.peer}];
    for (int i = 0; i < batch.channels_of_lane; ++i) all.push_back(lane.channel + i);
    if (std::set<int>(all.begin(), all.end()).size() != all.size()) return {};
  }
  return channels;
}

bool begins_with(const std::vector<int>& all, const std::vector<int>& some) {
  return all.size() >= some.size() && std::equal(some.begin(), some.end(), all.begin());
}

TEST(MessagePlan, FitsIntoAsManyCtasAsThereMayBeUnlessThoseAreLessThanAllFlowsNeed) {
  for (const int ranks : {2, 3, 4, 8, 72}) {
    for (const int most : {1, 2, 7, 8, 24, 64}) {
      const Sizes sizes = sizes_for({.ranks = ranks, .multiprocessors = 132, .max_channels = most});
      const MessagePlan divided = plans_from_all_to_all(ranks, sizes).front();
      MessagePlan fitted = divided;
      fit_into_ctas(fitted, sizes.message_ctas);
      const MessageBatch& batch = fitted[static_cast<size_t>(Protocol::kSimple)].at(0);
      const auto rows = static_cast<int>(batch.lanes.size());
      EXPECT_LE(rows, kMostRows * std::max(most, ranks - 1)) << ranks << " ranks, " << most;
      const auto before = channels_by_flow(divided[static_cast<size_t>(Protocol::kSimple)].at(0));
      const auto after = channels_by_flow(batch);
      ASSERT_EQ(after.size(), before.size());
      for (const auto& [flow, channels] : before) EXPECT_TRUE(begins_with(after.at(flow), channels)) << most;
    }
  }
}

TEST(MessagePlan, LaunchesThatRunBesideEachOtherShareTheCtas) {
  const Sizes sizes = sizes_for({.ranks = 4, .multiprocessors = 132, .max_channels = 10});
  std::vector<MessageWork> work;
  for (const int peer : {1, 2, 3}) {
    for (const size_t bytes : {size_t{40} << 10, size_t{40} << 20}) {
      work.push_back(message(kSend, peer, bytes));
      work.push_back(message(kReceive, peer, bytes));
    }
  }
  MessagePlan plan = plan_messages(work, 0, sizes);
  fit_into_ctas(plan, 10);
  size_t ctas = 0;
  for (const auto& batches : plan) ctas += batches.empty() ? 0 : (batches.at(0).lanes.size() + 1) / kMostRows;
  EXPECT_LE(ctas, 10U);
  EXPECT_GE(ctas, 6U);
}

using Part = std::pair<int, int>;  ///< message of the flow, channel
/// What rows carry one behind the other.
std::vector<std::vector<Part>> parts_of_rows(const MessageBatch& batch, int first_message, const QueueLayout& layout) {
  std::vector<std::vector<Part>> rows;
  for (const Lane& lane : batch.lanes) {
    std::vector<Part> row;
    for (int i = 0; i < lane.count; ++i) {
      const size_t bytes = batch.messages[static_cast<size_t>(lane.first + i)].bytes();
      for (int channel = lane.channel; channel < lane.channel + batch.channels_of_lane; ++channel) {
        if (channel < message_channels(bytes, kGrain, layout.channels)) row.push_back({first_message + i, channel});
      }
    }
    rows.push_back(row);
  }
  return rows;
}

// A part is over when both ends have come to it: nothing is sent ahead.
TEST(MessagePlan, APeerMayTakeOneByOneInOtherRowsWhatIsSentInAGroup) {
  const QueueLayout layout = make_layout(2, 8, 4, 65536);
  const std::vector<size_t> sizes = {9000, 64 << 10, 100, 1 << 20, 1 << 20};
  const auto fitted = [&](std::vector<MessageWork> work, int most) {
    MessagePlan plan;
    plan[static_cast<size_t>(Protocol::kSimple)] = plan_messages(work, kGrain, layout);
    fit_into_ctas(plan, most);
    return plan[static_cast<size_t>(Protocol::kSimple)].at(0);
  };
  for (const int most_of_sender : {1, 2, 3, 4}) {
    for (const int most_of_receiver : {1, 2, 3, 4}) {
      std::vector<MessageWork> sent;
      for (const size_t bytes : sizes) sent.push_back(message(kSend, 1, bytes));
      auto senders = parts_of_rows(fitted(sent, most_of_sender), 0, layout);
      for (size_t i = 0; i < sizes.size(); ++i) {
        const MessageBatch taken = fitted({message(kReceive, 0, sizes[i])}, most_of_receiver);
        auto receivers = parts_of_rows(taken, static_cast<int>(i), layout);
        for (bool any = true; any;) {
          any = false;
          for (auto& receiver : receivers) {
            const auto has_come = [&](const auto& row) {
              return !row.empty() && !receiver.empty() && row.front() == receiver.front();
            };
            const auto sender = std::find_if(senders.begin(), senders.end(), has_come);
            if (sender == senders.end()) continue;
            sender->erase(sender->begin());
            receiver.erase(receiver.begin());
            any = true;
          }
        }
        for (const auto& receiver : receivers) ASSERT_TRUE(receiver.empty()) << most_of_sender << most_of_receiver << i;
      }
      for (const auto& sender : senders) EXPECT_TRUE(sender.empty());
    }
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
