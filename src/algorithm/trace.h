// An algorithm's programs, written down: what every rank does in one channel as a list of transfers. The control flow
// of an algorithm depends on ranks and sizes alone, never on data or time, so the list is the whole program. The
// verifier, the simulator and cost() work on it.
#pragma once

#include <utility>
#include <vector>

#include "algorithm/table.h"

namespace nitinol::algorithm {

/// One transfer of one rank.
struct Step {
  Flow flow;
  Side own_side = Side::kInput;
  bool uneven = false;  ///< the own span and the one written differ in length
  int from = -1;        ///< as in Operands
  int to = -1;
  size_t own = 0;   ///< offset of the span read
  size_t into = 0;  ///< offset of the span written
  size_t count = 0;
};
using Trace = std::vector<Step>;

/// What is to be carried out by all ranks of one channel.
struct Task {
  Collective what = Collective::kAllReduce;
  int ranks = 2;
  int root = 0;
  Share share{};
};

/// A task and how: one trace per rank.
struct Program {
  Task task;
  std::vector<Trace> traces;
};

/// Primitives that do nothing but take notes.
class Recorder : public Verbs<Recorder> {
 public:
  Recorder(int rank, const Task& task) : rank_(rank), ranks_(task.ranks), root_(task.root) {}

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int root() const { return root_; }

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
  Trace trace_;
};

/// The program that an algorithm (a row's type) makes of a task with a share that is not empty.
template <class Entry>
Program record(const Task& task) {
  Program program{task, {}};
  program.traces.reserve(task.ranks);
  for (int rank = 0; rank < task.ranks; ++rank) {
    Recorder recorder(rank, task);
    Entry::run(recorder, task.share);
    program.traces.push_back(recorder.take());
  }
  return program;
}

/// The same by name; without traces if the table has no such row.
Program record(Algorithm algorithm, const Task& task);

}  // namespace nitinol::algorithm
