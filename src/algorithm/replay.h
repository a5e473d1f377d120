// Runs all traces of a program together over queues of a given number of slots. It knows who can go on and who waits
// for what; what the transfers mean (values, time, depth) is the caller's, who is shown each as it happens. Who runs is
// a process: a rank, or in a program in parts one part of a rank.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "algorithm/trace.h"

namespace nitinol::algorithm {

class Replay {
 public:
  /// One stream of an ordered pair of ranks. Message number `received` is the next to be taken; sent - received slots
  /// are full.
  struct Connection {
    int from = 0;  ///< a rank
    int to = 0;
    int stream = 0;
    uint64_t sent = 0;
    uint64_t received = 0;
  };

  /// One transfer, shown before the connections' counters move. `incoming` is in the order in which sources are
  /// combined (without the own span), `outgoing` starts with the successor.
  struct Event {
    int process = 0;
    int rank = 0;  ///< whose process it is
    const Step& step;
    const std::vector<int>& incoming;  ///< indices of connections
    const std::vector<int>& outgoing;
  };

  /// The program outlives the replay, its steps name other existing ranks and existing streams only, and no source is
  /// Peers::kAllBut. No end of a connection is used by two processes.
  Replay(const Program& program, int slots);

  int slots() const { return slots_; }
  bool ended(int process) const { return processes_[process].position == program_.traces[process].size(); }
  size_t position(int process) const { return processes_[process].position; }
  const Step& step(int process) const { return program_.traces[process][processes_[process].position]; }
  const std::vector<Connection>& connections() const { return connections_; }

  /// What a process that cannot go on waits for: an index of connections(), of which its rank is the sender or the
  /// receiver. -1: none.
  int awaited(int process) const { return processes_[process].awaited; }

  /// Whether the next transfer of a process that has not ended can happen now. If not, the process sleeps until what it
  /// waits for comes; then it stands in woken() once.
  bool can_go_on(int process);

  /// Shows the next transfer; only after can_go_on(). visit(const Event&) is called once.
  template <class Visit>
  void look(int process, Visit&& visit) {
    collect(process);
    visit(Event{process, program_.rank_of(process), step(process), incoming_, outgoing_});
  }

  /// Lets the next transfer happen; only after can_go_on(). visit(const Event&) is called once.
  template <class Visit>
  void go_on(int process, Visit&& visit) {
    look(process, visit);
    finish(process);
  }

  /// Processes that became able to go on since the caller last emptied this list.
  std::vector<int>& woken() { return woken_; }

  /// Runs until nobody can go on, in an order that `pick(ready)` (an index into a list of processes) chooses.
  template <class Pick, class Visit>
  void run(Pick&& pick, Visit&& visit) {
    run(pick, visit, [](int) { return false; });
  }

  /// The same, but processes that `starves(process)` names go on only when no other can.
  template <class Pick, class Visit, class Starves>
  void run(Pick&& pick, Visit&& visit, Starves&& starves) {
    std::vector<int> ready;
    std::vector<int> starving;
    const auto add = [&](int process) { (starves(process) ? starving : ready).push_back(process); };
    for (int process = 0; process < program_.processes(); ++process) add(process);
    while (!ready.empty() || !starving.empty()) {
      std::vector<int>& first = ready.empty() ? starving : ready;
      const size_t picked = pick(first);
      const int process = first[picked];
      if (ended(process) || !can_go_on(process)) {
        first[picked] = first.back();
        first.pop_back();
        continue;
      }
      go_on(process, visit);
      for (const int woken : woken_) add(woken);
      woken_.clear();
    }
  }

 private:
  struct Place {
    size_t position = 0;  ///< steps done
    int checked = 0;      ///< connections of the next step known to be ready
    int awaited = -1;
  };

  /// Those that sleep until something comes at their end of a connection.
  struct Sleepers {
    int sender = -1;
    int receiver = -1;
  };

  int connection(int from, int to, int stream);
  int incoming(int process, const Step& step, int index);
  int outgoing(int process, const Step& step, int index);
  void collect(int process);
  void finish(int process);
  void wake(int& sleeper);

  const Program& program_;
  int slots_;
  std::vector<Place> processes_;
  std::vector<Connection> connections_;
  std::vector<Sleepers> sleepers_;               ///< by connection
  std::vector<int> square_;                      ///< (from * ranks + to) * streams + stream -> index, for few ranks
  std::unordered_map<uint64_t, int> scattered_;  ///< the same for many
  std::vector<int> incoming_;
  std::vector<int> outgoing_;
  std::vector<int> woken_;
};

}  // namespace nitinol::algorithm
