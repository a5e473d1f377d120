// Runs all ranks' traces together over queues of a given number of slots. It knows who can go on and who waits for
// what; what the transfers mean (values, time, depth) is the caller's, who is shown each as it happens.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "algorithm/trace.h"

namespace nitinol::algorithm {

class Replay {
 public:
  /// One ordered pair of ranks. Message number `received` is the next to be taken; sent - received slots are full.
  struct Connection {
    int from = 0;
    int to = 0;
    uint64_t sent = 0;
    uint64_t received = 0;
  };

  /// One transfer, shown before the connections' counters move. `incoming` is in the order in which sources are
  /// combined (without the own span), `outgoing` starts with the successor.
  struct Event {
    int rank = 0;
    const Step& step;
    const std::vector<int>& incoming;  ///< indices of connections
    const std::vector<int>& outgoing;
  };

  /// The program outlives the replay, its steps name other existing ranks only, and no source is Peers::kAllBut.
  Replay(const Program& program, int slots);

  int slots() const { return slots_; }
  bool ended(int rank) const { return ranks_[rank].position == program_.traces[rank].size(); }
  size_t position(int rank) const { return ranks_[rank].position; }
  const Step& step(int rank) const { return program_.traces[rank][ranks_[rank].position]; }
  const std::vector<Connection>& connections() const { return connections_; }

  /// What a rank that cannot go on waits for: an index of connections(), of which it is the sender or the receiver. -1:
  /// none.
  int awaited(int rank) const { return ranks_[rank].awaited; }

  /// Whether the next transfer of a rank that has not ended can happen now. If not, the rank sleeps until what it waits
  /// for comes; then it stands in woken() once.
  bool can_go_on(int rank);

  /// Shows the next transfer; only after can_go_on(). visit(const Event&) is called once.
  template <class Visit>
  void look(int rank, Visit&& visit) {
    collect(rank);
    visit(Event{rank, step(rank), incoming_, outgoing_});
  }

  /// Lets the next transfer happen; only after can_go_on(). visit(const Event&) is called once.
  template <class Visit>
  void go_on(int rank, Visit&& visit) {
    look(rank, visit);
    finish(rank);
  }

  /// Ranks that became able to go on since the caller last emptied this list.
  std::vector<int>& woken() { return woken_; }

  /// Runs until nobody can go on, in an order that `pick(ready)` (an index into a list of ranks) chooses.
  template <class Pick, class Visit>
  void run(Pick&& pick, Visit&& visit) {
    std::vector<int> ready;
    for (int rank = 0; rank < program_.task.ranks; ++rank) ready.push_back(rank);
    while (!ready.empty()) {
      const size_t picked = pick(ready);
      const int rank = ready[picked];
      if (ended(rank) || !can_go_on(rank)) {
        ready[picked] = ready.back();
        ready.pop_back();
        continue;
      }
      go_on(rank, visit);
      ready.insert(ready.end(), woken_.begin(), woken_.end());
      woken_.clear();
    }
  }

 private:
  struct Place {
    size_t position = 0;  ///< steps done
    int checked = 0;      ///< connections of the next step known to be ready
    int awaited = -1;
  };

  int peers_in(Peers peers) const;
  int incoming_peer(int rank, const Step& step, int index) const;
  int outgoing_peer(int rank, const Step& step, int index) const;
  int connection(int from, int to);
  void collect(int rank);
  void finish(int rank);
  void wake(int rank, int connection);

  const Program& program_;
  int slots_;
  std::vector<Place> ranks_;
  std::vector<Connection> connections_;
  std::vector<int> square_;                      ///< from * ranks + to -> index, if there are few ranks
  std::unordered_map<uint64_t, int> scattered_;  ///< the same for many
  std::vector<int> incoming_;
  std::vector<int> outgoing_;
  std::vector<int> woken_;
};

}  // namespace nitinol::algorithm
