// An algorithm's programs, written down: what every rank does in one channel as a list of transfers. The control flow
// of an algorithm depends on ranks and sizes alone, never on data or time, so the list is the whole program. The
// verifier, the simulator and cost() work on it.
#pragma once

#include <utility>
#include <vector>

#include "algorithm/parts.h"
#include "algorithm/table.h"

namespace nitinol::algorithm {

/// One transfer of one rank. It takes from the incoming connections of one stream and puts into the outgoing ones of
/// one, which are 0 where there is one connection for each ordered pair of ranks.
struct Step {
  Flow flow;
  Side own_side = Side::kInput;
  bool uneven = false;  ///< the own span and the one written differ in length
  int from = -1;        ///< as in Operands
  int to = -1;
  size_t own = 0;   ///< offset of the span read
  size_t into = 0;  ///< offset of the span written
  size_t count = 0;
  int stream_in = 0;
  int stream_out = 0;
};
using Trace = std::vector<Step>;

/// What is to be carried out by all ranks of one channel.
struct Task {
  Collective what = Collective::kAllReduce;
  int ranks = 2;
  int root = 0;
  Share share{};
  bool any_order = false;  ///< the result does not depend on the order of ranks
};

/// A task and how. A process is what carries out one trace in order: a rank, or one of its parts (parts.h), which run
/// at the same time.
struct Program {
  Task task;
  std::vector<Trace> traces;  ///< by process: rank * parts + part
  int parts = 1;              ///< of each rank
  int streams = 1;            ///< connections of each ordered pair of ranks

  int processes() const { return static_cast<int>(traces.size()); }
  int rank_of(int process) const { return process / parts; }
  int part_of(int process) const { return process % parts; }
  int process_of(int rank, int part) const { return rank * parts + part; }
};

/// How many connections `peers` are, of one stream and direction.
inline int peers_in(Peers peers, int ranks) {
  switch (peers) {
    case Peers::kNone: return 0;
    case Peers::kOne: return 1;
    case Peers::kAll: return ranks - 1;
    case Peers::kAllBut: return ranks - 2;
  }
  return 0;
}

/// The index-th rank from which a step takes, in the order in which sources are combined. Never Peers::kAllBut.
inline int incoming_peer(const Step& step, int rank, int index) {
  if (step.flow.from == Peers::kOne) return step.from;
  return index < rank ? index : index + 1;
}

/// The index-th rank to which a step sends, from the successor on.
inline int outgoing_peer(const Step& step, int rank, int ranks, int index) {
  if (step.flow.to == Peers::kOne) return step.to;
  int distance = index + 1;
  if (step.flow.to == Peers::kAllBut) {
    const int excluded = rank_before(step.to, rank, ranks);
    if (distance >= excluded) ++distance;
  }
  return rank_after(rank, distance, ranks);
}

/// Primitives that do nothing but take notes. `kOne`: of shares no longer than a chunk; `kWhole`: as kWholeChunks.
template <bool kOne, bool kWhole = true>
class BasicRecorder : public Verbs<BasicRecorder<kOne, kWhole>> {
 public:
  static constexpr bool kOneChunk = kOne;
  static constexpr bool kWholeChunks = kWhole;

  BasicRecorder(int rank, const Task& task)
      : rank_(rank), ranks_(task.ranks), root_(task.root), any_order_(task.any_order) {}

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int root() const { return root_; }
  bool any_order() const { return any_order_; }

  template <Flow flow>
  void transfer(const Operands& operands) {
    Step step{.flow = flow, .own_side = operands.own.side, .from = operands.from, .to = operands.to};
    step.own = operands.own.offset;
    step.into = operands.into.offset;
    step.count = operands.count;
    step.uneven = (flow.own && operands.own.count != step.count) || (flow.into && operands.into.count != step.count);
    trace_.push_back(step);
  }

  Trace take() { return std::move(trace_); }

 private:
  int rank_;
  int ranks_;
  int root_;
  bool any_order_;
  Trace trace_;
};
using Recorder = BasicRecorder<false>;

/// The program that an algorithm (a row's type) makes of a task with a share that is not empty.
template <class Entry, class Notes = Recorder>
Program record(const Task& task) {
  Program program{.task = task, .traces = {}};
  program.traces.reserve(task.ranks);
  for (int rank = 0; rank < task.ranks; ++rank) {
    Notes recorder(rank, task);
    Entry::run(recorder, task.share);
    program.traces.push_back(recorder.take());
  }
  return program;
}

/// The same by name; without traces if the table has no such row.
Program record(Algorithm algorithm, const Task& task);

/// A recorded program, divided into parts (parts.h): each transfer goes to its part, on that part's streams. Whether
/// the result is right is another question (executor/verify).
Program divide(const Program& whole, Division division);
/// As where parts have CTAs of their own.
inline Program divide(const Program& whole) { return divide(whole, division_of(reduces(whole.task.what))); }

}  // namespace nitinol::algorithm
