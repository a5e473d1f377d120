// What ranks conclude from waits in messages, with kernels in a model: random programs, on GPUs that have room for a
// few CTAs alone, of ranks that come late, or with a part of a CTA that the system keeps waiting for memory. Whoever
// would come to an end with more room and time must not be told anything.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <random>
#include <span>
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
  int protocol;
};
using Group = std::vector<OneMessage>;
/// By rank.
using Program = std::vector<std::vector<Group>>;

/// A CTA for one direction of one channel.
struct ModelLane {
  int peer;
  bool sends;
  int channel;
  int chunks;         ///< that are still to come
  bool slow = false;  ///< one of its warps gets no further for want of memory; the others go on as far as they can

  bool is_through() const { return chunks == 0 && !slow; }
};
/// What one protocol carries in a launch.
struct ModelLanes {
  std::vector<ModelLane> all;
  size_t begun = 0;

  bool have_begun() const { return begun == all.size(); }
  std::span<const ModelLane> resident() const { return {all.data(), begun}; }
  bool any_slow() const {
    return std::any_of(resident().begin(), resident().end(), [](const ModelLane& lane) { return lane.slow; });
  }
};
/// A launch, or one by each protocol beside each other.
struct ModelLaunch {
  std::array<ModelLanes, kProtocols> by_protocol;
  RankSet sends_to;
  RankSet receives_from;

  bool has_begun() const {
    return std::all_of(by_protocol.begin(), by_protocol.end(), [](const ModelLanes& one) { return one.have_begun(); });
  }
  bool any_slow() const {
    return std::any_of(by_protocol.begin(), by_protocol.end(), [](const ModelLanes& one) { return one.any_slow(); });
  }
};

class Model {
  using Flow = std::tuple<int, int, int>;  ///< from, to, protocol

 public:
  Model(const Program& program, Random& random) : random_(random), ranks_(program.size()) {
    std::map<Flow, int> chunks;  // of each message; one: in one channel
    for (size_t rank = 0; rank < program.size(); ++rank) {
      for (const Group& group : program[rank]) add(static_cast<int>(rank), group, chunks);
    }
  }
  void limit() {
    for (Rank& rank : ranks_) {
      rank.room = 1 + random_.below(6);
      rank.late = random_.one_in(3);
      if (!random_.one_in(3)) continue;
      for (ModelLaunch& launch : rank.launches) {
        for (ModelLanes& lanes : launch.by_protocol) {
          for (ModelLane& lane : lanes.all) lane.slow = random_.one_in(5);
        }
      }
    }
  }
  /// Until nobody moves any more; whether all have come to an end.
  bool run() {
    while (move()) {
    }
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.launches.empty(); });
  }
  /// For one rank more room, its memory, or the end of its delay; false: nobody lacks any.
  bool help() {
    std::vector<size_t> in_need;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      const Rank& rank = ranks_[i];
      const bool lacks = !rank.launches.empty() && (begins_later(rank) || rank.launches.front().any_slow());
      if (rank.late || lacks) in_need.push_back(i);
    }
    if (in_need.empty()) return false;
    const size_t which = in_need[static_cast<size_t>(random_.below(static_cast<int>(in_need.size())))];
    Rank& helped = ranks_[which];
    if (std::exchange(helped.late, false)) return true;
    if (helped.launches.front().any_slow()) {
      hasten(which);
    } else {
      ++helped.room;
    }
    return true;
  }
  KernelWait wait_of(size_t rank) const {
    KernelWait wait;
    if (ranks_[rank].launches.empty()) return wait;
    const ModelLaunch& launch = ranks_[rank].launches.front();
    bool all_tell = true;  // that their own launch has begun as a whole
    for (size_t i = 0; i < wait.messages.size(); ++i) {
      KernelWait::ByProtocol& messages = wait.messages[i];
      messages.stands = launch.by_protocol[i].have_begun();
      for (const ModelLane& lane : launch.by_protocol[i].resident()) {
        const bool waits = waits_for_peer(rank, static_cast<int>(i), lane);
        if (waits) (lane.sends ? messages.for_room : messages.for_data).add(lane.peer);
        const bool waits_for_all = waits && goes_by_lines(static_cast<int>(i)) && !lane.sends;
        if (lane.slow && !waits_for_all) messages.stands = false;
      }
      wait.for_data.add(messages.for_data);
      wait.for_room.add(messages.for_room);
      const bool any_waits = messages.for_data.any() || messages.for_room.any();
      if (any_waits && !launch.by_protocol[i].have_begun()) all_tell = false;
    }
    if (!wait.any()) return {};
    for (KernelWait::ByProtocol& messages : wait.messages) messages.stands = messages.stands && all_tell;
    wait.sends_to = launch.sends_to;
    wait.receives_from = launch.receives_from;
    return wait;
  }

 private:
  struct Rank {
    std::vector<ModelLaunch> launches;  ///< that have not ended
    int room = 1000;
    bool late = false;
  };
  struct Connection {
    int sent = 0;
    int received = 0;
    int posted = 0;  ///< of those received, as the sender knows
  };

  /// Lanes in any order: GPUs do not promise one. Whether protocols run beside each other is each rank's affair.
  void add(int rank, const Group& group, std::map<Flow, int>& chunks) {
    std::vector<ModelLaunch>& launches = ranks_[static_cast<size_t>(rank)].launches;
    const bool together = random_.one_in(2);
    launches.emplace_back();
    for (int protocol = 0; protocol < kProtocols; ++protocol) {
      Group some;
      std::copy_if(group.begin(), group.end(), std::back_inserter(some),
                   [&](const OneMessage& one) { return one.protocol == protocol; });
      if (some.empty()) continue;
      const bool taken = launches.back().sends_to.any() || launches.back().receives_from.any();
      if (taken && !together) launches.emplace_back();
      add_lanes(rank, some, launches.back(), chunks);
    }
  }
  void add_lanes(int rank, const Group& some, ModelLaunch& launch, std::map<Flow, int>& chunks) {
    const int protocol = some.front().protocol;
    std::map<std::pair<bool, int>, int> flows;
    for (const OneMessage& one : some) ++flows[{one.sends, one.peer}];
    std::vector<ModelLane>& lanes = launch.by_protocol[static_cast<size_t>(protocol)].all;
    for (const auto& [flow, messages] : flows) {
      const auto& [sends, peer] = flow;
      int& each = chunks[sends ? Flow{rank, peer, protocol} : Flow{peer, rank, protocol}];
      if (each == 0) each = random_.one_in(3) ? 1 : 2 + random_.below(10);
      (sends ? launch.sends_to : launch.receives_from).add(peer);
      for (int channel = 0; channel < (each == 1 ? 1 : kChannels); ++channel) {
        lanes.push_back({peer, sends, channel, messages * each});
      }
    }
    random_.shuffle(lanes);
  }
  static int resident(const ModelLaunch& launch) {
    int count = 0;
    for (const ModelLanes& one : launch.by_protocol) {
      count += static_cast<int>(std::count_if(one.resident().begin(), one.resident().end(),
                                              [](const ModelLane& lane) { return !lane.is_through(); }));
    }
    return count;
  }
  static bool begins_later(const Rank& rank) { return !rank.launches.front().has_begun(); }
  static bool goes_by_lines(int protocol) { return protocol != static_cast<int>(Protocol::kSimple); }
  static std::pair<Flow, int> place_of(size_t rank, int protocol, const ModelLane& lane) {
    const int me = static_cast<int>(rank);
    return {lane.sends ? Flow{me, lane.peer, protocol} : Flow{lane.peer, me, protocol}, lane.channel};
  }
  Connection& of(size_t rank, int protocol, const ModelLane& lane) {
    return connections_[place_of(rank, protocol, lane)];
  }
  /// Those that receive by lines meet at a barrier when half of the slots are to be given back.
  static bool is_at_barrier(const Connection& c, int protocol, const ModelLane& lane) {
    return lane.slow && !lane.sends && goes_by_lines(protocol) && c.received - c.posted >= kSlots / 2;
  }
  /// What a slow warp has not sent nobody receives.
  bool can_go_on(size_t rank, int protocol, const ModelLane& lane) {
    const Connection& c = of(rank, protocol, lane);
    if (lane.chunks == 0 || (lane.slow && lane.sends) || is_at_barrier(c, protocol, lane)) return false;
    return lane.sends ? c.sent - c.posted < kSlots : c.received < c.sent;
  }
  /// Where nothing moves any more: whether any warp does. Those beside a slow one that sends run ahead of it.
  bool waits_for_peer(size_t rank, int protocol, const ModelLane& lane) const {
    const auto found = connections_.find(place_of(rank, protocol, lane));
    const Connection c = found != connections_.end() ? found->second : Connection{};
    if (lane.chunks == 0 || is_at_barrier(c, protocol, lane)) return false;
    return !lane.slow || !lane.sends || lane.chunks > kSlots - (c.sent - c.posted);
  }
  /// What its launch needs is there.
  void hasten(size_t rank) {
    ModelLaunch& launch = ranks_[rank].launches.front();
    for (int protocol = 0; protocol < kProtocols; ++protocol) {
      ModelLanes& lanes = launch.by_protocol[static_cast<size_t>(protocol)];
      for (size_t i = 0; i < lanes.begun; ++i) {
        if (!std::exchange(lanes.all[i].slow, false) || lanes.all[i].sends) continue;
        Connection& c = of(rank, protocol, lanes.all[i]);
        if (c.received - c.posted >= kSlots / 2) c.posted = c.received;
      }
    }
  }

  struct Move {
    size_t rank;
    int protocol;  ///< -1: the launch ends
    int lane;      ///< -1: the next one begins
  };
  /// Something that can happen; false: nothing can.
  bool move() {
    std::vector<Move> moves;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].late || ranks_[i].launches.empty()) continue;
      const ModelLaunch& launch = ranks_[i].launches.front();
      const int taken = resident(launch);
      if (launch.has_begun() && taken == 0) moves.push_back({i, -1, -1});
      for (int protocol = 0; protocol < kProtocols; ++protocol) {
        const ModelLanes& lanes = launch.by_protocol[static_cast<size_t>(protocol)];
        if (!lanes.have_begun() && taken < ranks_[i].room) moves.push_back({i, protocol, -1});
        for (size_t lane = 0; lane < lanes.begun; ++lane) {
          if (can_go_on(i, protocol, lanes.all[lane])) moves.push_back({i, protocol, static_cast<int>(lane)});
        }
      }
    }
    if (moves.empty()) return false;
    make(moves[static_cast<size_t>(random_.below(static_cast<int>(moves.size())))]);
    return true;
  }
  void make(const Move& move) {
    std::vector<ModelLaunch>& launches = ranks_[move.rank].launches;
    if (move.protocol < 0) {
      launches.erase(launches.begin());
      return;
    }
    ModelLanes& lanes = launches.front().by_protocol[static_cast<size_t>(move.protocol)];
    move.lane < 0 ? begin(move, lanes.all[lanes.begun++]) : go_on(move, lanes.all[static_cast<size_t>(move.lane)]);
  }
  void begin(const Move& move, const ModelLane& lane) {
    Connection& c = of(move.rank, move.protocol, lane);
    if (!lane.sends) c.posted = c.received;
  }
  void go_on(const Move& move, ModelLane& lane) {
    Connection& c = of(move.rank, move.protocol, lane);
    --lane.chunks;
    if (lane.sends) {
      ++c.sent;
    } else if (++c.received - c.posted >= kSlots / 2 && !lane.slow) {
      c.posted = c.received;
    }
  }

  Random& random_;
  std::vector<Rank> ranks_;
  std::map<std::pair<Flow, int>, Connection> connections_;  // and the channel
};

Program random_program(int ranks, Random& random) {
  Program program(static_cast<size_t>(ranks));
  for (int step = 1 + random.below(4); step > 0; --step) {
    std::vector<Group> groups(program.size());
    for (int message = 1 + random.below(4); message > 0; --message) {
      const int from = random.below(ranks);
      const int to = (from + 1 + random.below(ranks - 1)) % ranks;
      const int protocol = random.one_in(2) ? 0 : random.below(kProtocols);
      groups[static_cast<size_t>(from)].push_back({to, true, protocol});
      groups[static_cast<size_t>(to)].push_back({from, false, protocol});
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
  EXPECT_EQ(told_late, 0) << "in which all stand in the end";
}

}  // namespace
}  // namespace nitinol
