#include "executor/verify/order.h"

#include <algorithm>

#include "executor/verify/describe.h"
#include "executor/verify/touched.h"

namespace nitinol::verify {

using algorithm::Program;
using algorithm::Replay;

Order::Order(const Program& program, int slots) : program_(program), slots_(slots), transfers_(1) {
  size_t steps = 0;
  for (const algorithm::Trace& trace : program.traces) {
    first_.push_back(steps);
    steps += trace.size();
  }
  numbers_.resize(steps);
  transfers_.reserve(steps + 1);
}

void Order::note(const Replay& replay, const Replay::Event& event) {
  const auto number = static_cast<uint32_t>(transfers_.size());
  const size_t step = replay.position(event.process);
  const uint32_t previous = step == 0 ? 0 : number_of(event.process, step - 1);
  transfers_.push_back({event.process, previous, sources_.size(), 0});
  numbers_[first_[event.process] + step] = number;
  for (const int index : event.incoming) {
    sources_.push_back(senders_[index * slots_ + replay.connections()[index].received % slots_]);
  }
  senders_.resize(replay.connections().size() * slots_);
  for (const int index : event.outgoing) senders_[index * slots_ + replay.connections()[index].sent % slots_] = number;
}

/// Numbers only grow from a transfer to those that wait for it, so the search ends where they are too small.
bool Order::waits_for(uint32_t later, uint32_t earlier) {
  ++searches_;
  to_do_.assign(1, later);
  bool found = false;
  const auto follow = [&](uint32_t number) {
    if (number < earlier || transfers_[number].seen == searches_) return;
    transfers_[number].seen = searches_;
    found = found || transfers_[number].process == transfers_[earlier].process;
    to_do_.push_back(number);
  };
  while (!found && !to_do_.empty()) {
    const uint32_t number = to_do_.back();
    to_do_.pop_back();
    const size_t end = number + 1 < transfers_.size() ? transfers_[number + 1].sources : sources_.size();
    follow(transfers_[number].previous);
    for (size_t i = transfers_[number].sources; i < end; ++i) follow(sources_[i]);
  }
  return found;
}

bool Order::certain(uint32_t one, uint32_t other) {
  if (one == 0 || other == 0) return true;
  return one < other ? waits_for(other, one) : waits_for(one, other);
}

void Order::check_rank(int rank, bool in_place, Report& report) {
  const std::vector<Touched> spans = touched_by(program_, rank, in_place);
  for (size_t i = 0; i < spans.size(); ++i) {
    const Touched& one = spans[i];
    for (size_t j = i + 1; j < spans.size() && spans[j].begin < one.end; ++j) {
      const Touched& other = spans[j];
      if (one.process == other.process || (!one.written && !other.written)) continue;
      if (certain(number_of(one.process, one.step), number_of(other.process, other.step))) continue;
      report.findings.push_back({Fault::kRace, rank,
                                 describe(program_.traces[one.process][one.step]) + " and part " +
                                     std::to_string(program_.part_of(other.process)) + "'s " +
                                     describe(program_.traces[other.process][other.step]) +
                                     " touch the same elements in no certain order",
                                 program_.part_of(one.process)});
      return;
    }
  }
}

void Order::check(bool in_place, size_t most_findings, Report& report) {
  for (int rank = 0; rank < program_.task.ranks && report.findings.size() < most_findings; ++rank) {
    check_rank(rank, in_place, report);
  }
}

}  // namespace nitinol::verify
