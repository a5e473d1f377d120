// What ranks conclude from waits in messages, with kernels in a model: random programs, on GPUs that have room for a
// few CTAs alone, of ranks that come late. Whoever would come to an end with more room and time must not be told
// anything.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "executor/kernel_waits.h"

namespace nitinol {
namespace {

constexpr int kChannels = 3;
constexpr int kSlots = 4;

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int below(int end) { return static_cast<int>(engine_() % static_cast<unsigned>(end)); }
  bool one_in(int times) { return below(times) == 0; }
  template <class Items>
  void shuffle(Items& items) {
    std::shuffle(items.begin(), items.end(), engine_);
  }

 private:
  std::mt19937 engine_;
};

struct OneMessage {
  int peer;
  bool sends;
};
using Group = std::vector<OneMessage>;
/// By rank.
using Program = std::vector<std::vector<Group>>;

/// A CTA for one direction of one channel.
struct ModelLane {
  int peer;
  bool sends;
  int channel;
  int chunks;  ///< that are still to come

  bool waits() const { return chunks > 0; }
};
struct ModelLaunch {
  std::vector<ModelLane> lanes;
  RankSet sends_to;
  RankSet receives_from;
};

class Model {
 public:
  Model(const Program& program, Random& random) : random_(random), ranks_(program.size()) {
    std::map<std::pair<int, int>, int> chunks;  // of each message between two ranks; one: in one channel
    for (size_t rank = 0; rank < program.size(); ++rank) {
      for (const Group& group : program[rank]) add(static_cast<int>(rank), group, chunks);
    }
  }
  void limit() {
    for (Rank& rank : ranks_) {
      rank.room = 1 + random_.below(6);
      rank.late = random_.one_in(3);
    }
  }
  /// Until nobody moves any more; whether all have come to an end.
  bool run() {
    while (move()) {
    }
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.launches.empty(); });
  }
  /// For one rank more room, or the end of its delay; false: nobody lacks any.
  bool help() {
    std::vector<Rank*> in_need;
    for (Rank& rank : ranks_) {
      if (rank.late || (!rank.launches.empty() && begins_later(rank))) in_need.push_back(&rank);
    }
    if (in_need.empty()) return false;
    Rank& helped = *in_need[static_cast<size_t>(random_.below(static_cast<int>(in_need.size())))];
    if (!std::exchange(helped.late, false)) ++helped.room;
    return true;
  }
  KernelWait wait_of(size_t rank) const {
    KernelWait wait;
    const Rank& who = ranks_[rank];
    for (size_t i = 0; i < who.begun; ++i) {
      const ModelLane& lane = who.launches.front().lanes[i];
      if (!lane.waits()) continue;
      KernelWait::ByProtocol& messages = wait.messages[0];
      (lane.sends ? messages.for_room : messages.for_data).add(lane.peer);
    }
    wait.for_data = wait.messages[0].for_data;
    wait.for_room = wait.messages[0].for_room;
    if (!wait.any()) return {};
    for (KernelWait::ByProtocol& messages : wait.messages) messages.has_begun = !begins_later(who);
    wait.sends_to = who.launches.front().sends_to;
    wait.receives_from = who.launches.front().receives_from;
    return wait;
  }

 private:
  struct Rank {
    std::vector<ModelLaunch> launches;  ///< that have not ended
    size_t begun = 0;                   ///< lanes of the first of them
    int room = 1000;
    bool late = false;
  };
  struct Connection {
    int sent = 0;
    int received = 0;
    int posted = 0;  ///< of those received, as the sender knows
  };

  /// In any order: GPUs do not promise one.
  void add(int rank, const Group& group, std::map<std::pair<int, int>, int>& chunks) {
    std::map<std::pair<bool, int>, int> flows;
    for (const OneMessage& one : group) ++flows[{one.sends, one.peer}];
    ModelLaunch launch;
    for (const auto& [flow, messages] : flows) {
      const auto& [sends, peer] = flow;
      int& each = chunks[sends ? std::pair(rank, peer) : std::pair(peer, rank)];
      if (each == 0) each = random_.one_in(3) ? 1 : 2 + random_.below(10);
      (sends ? launch.sends_to : launch.receives_from).add(peer);
      for (int channel = 0; channel < (each == 1 ? 1 : kChannels); ++channel) {
        launch.lanes.push_back({peer, sends, channel, messages * each});
      }
    }
    random_.shuffle(launch.lanes);
    ranks_[static_cast<size_t>(rank)].launches.push_back(launch);
  }
  int resident(const Rank& rank) const {
    const auto& lanes = rank.launches.front().lanes;
    return static_cast<int>(std::count_if(lanes.begin(), lanes.begin() + static_cast<std::ptrdiff_t>(rank.begun),
                                          [](const ModelLane& lane) { return lane.waits(); }));
  }
  bool begins_later(const Rank& rank) const { return rank.begun < rank.launches.front().lanes.size(); }
  Connection& of(size_t rank, const ModelLane& lane) {
    const int me = static_cast<int>(rank);
    return connections_[{lane.sends ? me : lane.peer, lane.sends ? lane.peer : me, lane.channel}];
  }
  bool can_go_on(size_t rank, const ModelLane& lane) {
    const Connection& c = of(rank, lane);
    return lane.waits() && (lane.sends ? c.sent - c.posted < kSlots : c.received < c.sent);
  }

  /// Something that can happen; false: nothing can.
  bool move() {
    enum What { kBegin = -2, kEnd = -1 };
    std::vector<std::pair<size_t, int>> moves;  // or which lane goes on
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const Rank& rank = ranks_[i];
      if (rank.late || rank.launches.empty()) continue;
      if (begins_later(rank) && resident(rank) < rank.room) moves.emplace_back(i, kBegin);
      if (!begins_later(rank) && resident(rank) == 0) moves.emplace_back(i, kEnd);
      for (size_t lane = 0; lane < rank.begun; ++lane) {
        if (can_go_on(i, rank.launches.front().lanes[lane])) moves.emplace_back(i, static_cast<int>(lane));
      }
    }
    if (moves.empty()) return false;
    const auto [rank, what] = moves[static_cast<size_t>(random_.below(static_cast<int>(moves.size())))];
    what == kBegin ? begin(rank) : what == kEnd ? end(ranks_[rank]) : go_on(rank, static_cast<size_t>(what));
    return true;
  }
  void begin(size_t rank) {
    const ModelLane& lane = ranks_[rank].launches.front().lanes[ranks_[rank].begun++];
    if (!lane.sends) of(rank, lane).posted = of(rank, lane).received;
  }
  static void end(Rank& rank) {
    rank.launches.erase(rank.launches.begin());
    rank.begun = 0;
  }
  void go_on(size_t rank, size_t which) {
    ModelLane& lane = ranks_[rank].launches.front().lanes[which];
    Connection& c = of(rank, lane);
    --lane.chunks;
    if (lane.sends) {
      ++c.sent;
    } else if (++c.received - c.posted >= kSlots / 2) {
      c.posted = c.received;
    }
  }

  Random& random_;
  std::vector<Rank> ranks_;
  std::map<std::tuple<int, int, int>, Connection> connections_;
};

Program random_program(int ranks, Random& random) {
  Program program(static_cast<size_t>(ranks));
  for (int step = 1 + random.below(4); step > 0; --step) {
    std::vector<Group> groups(program.size());
    for (int message = 1 + random.below(4); message > 0; --message) {
      const int from = random.below(ranks);
      const int to = (from + 1 + random.below(ranks - 1)) % ranks;
      groups[static_cast<size_t>(from)].push_back({to, true});
      groups[static_cast<size_t>(to)].push_back({from, false});
    }
    for (size_t rank = 0; rank < program.size(); ++rank) {
      if (groups[rank].empty()) continue;
      if (!random.one_in(4)) {
        program[rank].push_back(groups[rank]);
      } else {
        for (const OneMessage& one : groups[rank]) program[rank].push_back({one});
      }
    }
  }
  return program;
}

/// Other orders, and messages that nobody else has.
void spoil(Program& program, Random& random) {
  for (std::vector<Group>& groups : program) {
    if (groups.size() > 1 && random.one_in(2)) {
      const auto which = static_cast<size_t>(random.below(static_cast<int>(groups.size()) - 1));
      std::swap(groups[which], groups[which + 1]);
    }
    if (!groups.empty() && random.one_in(3)) {
      Group& group = groups[static_cast<size_t>(random.below(static_cast<int>(groups.size())))];
      group.push_back(group[static_cast<size_t>(random.below(static_cast<int>(group.size())))]);
    }
  }
}

/// Whether any rank is told something while all look so often.
bool anybody_is_told(const Model& model, int ranks, int looks) {
  const CallBoard board(SharedMemory::create(CallBoard::bytes_for(ranks), false), ranks);
  board.page(0).captures.store(1);
  const std::vector<Peer> peers(static_cast<size_t>(ranks));
  std::vector<KernelWaits> conclusions;
  for (int rank = 0; rank < ranks; ++rank) conclusions.emplace_back(board, peers, rank);
  for (int look = 0; look < looks; ++look) {
    for (int rank = 0; rank < ranks; ++rank) {
      write_kernel_wait(board.page(rank), model.wait_of(static_cast<size_t>(rank)));
    }
    if (std::any_of(conclusions.begin(), conclusions.end(), [](KernelWaits& each) { return each.look(); })) return true;
  }
  return false;
}

TEST(KernelWaitsInAModel, OfProgramsThatComeToAnEndAreNotToldHoweverLittleRoomThereIs) {
  constexpr int kSoon = 12;
  constexpr int kLate = 150;
  int ended = 0;
  int told_soon = 0;
  int told_late = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    const int ranks = 2 + random.below(3);
    Program program = random_program(ranks, random);
    if (random.one_in(2)) spoil(program, random);
    Model model(program, random);
    Model unlimited = model;
    const bool ends = unlimited.run();
    ended += ends ? 1 : 0;
    model.limit();
    bool told = false;
    do {
      if (model.run()) break;
      told = anybody_is_told(model, ranks, kSoon);
      ASSERT_FALSE(ends && told) << "seed " << seed;
    } while (model.help());
    told_soon += told ? 1 : 0;
    told_late += !ends && !told && anybody_is_told(model, ranks, kLate) ? 1 : 0;
  }
  EXPECT_GT(ended, 1000);
  EXPECT_GT(told_soon, 50) << "of circles";
  EXPECT_LT(told_late, told_soon / 20);
}

}  // namespace
}  // namespace nitinol
