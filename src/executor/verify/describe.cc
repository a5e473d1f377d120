#include "executor/verify/describe.h"

namespace nitinol::verify {
namespace {

using algorithm::Peers;
using algorithm::Program;
using algorithm::Replay;
using algorithm::Side;
using algorithm::Step;

std::string span_text(Side side, size_t offset, size_t count) {
  return std::string(side == Side::kInput ? "input[" : "output[") + std::to_string(offset) + "," +
         std::to_string(offset + count) + ")";
}

std::string peers_text(Peers peers, int peer) {
  switch (peers) {
    case Peers::kNone: return "nobody";
    case Peers::kOne: return std::to_string(peer);
    case Peers::kAll: return "all";
    case Peers::kAllBut: return "all but " + std::to_string(peer);
  }
  return "?";
}

std::string step_text(const Program& program, const Replay& replay, int process) {
  return "step " + std::to_string(replay.position(process) + 1) + " of " +
         std::to_string(program.traces[process].size()) + " (" + describe(replay.step(process)) + ")";
}

/// Whether the step takes from (or puts into) the connection.
bool uses(const Program& program, int rank, const Step& step, const Replay::Connection& queue) {
  const bool receives = queue.to == rank;
  if ((receives ? step.stream_in : step.stream_out) != queue.stream) return false;
  const int peers = algorithm::peers_in(receives ? step.flow.from : step.flow.to, program.task.ranks);
  for (int i = 0; i < peers; ++i) {
    if (receives && algorithm::incoming_peer(step, rank, i) == queue.from) return true;
    if (!receives && algorithm::outgoing_peer(step, rank, program.task.ranks, i) == queue.to) return true;
  }
  return false;
}

/// The process of a rank that uses its end of a connection; in several parts, that may be none: -1.
int user_of(const Program& program, int rank, const Replay::Connection& queue) {
  if (program.parts == 1) return rank;
  for (int part = 0; part < program.parts; ++part) {
    const int process = program.process_of(rank, part);
    for (const Step& step : program.traces[process]) {
      if (uses(program, rank, step, queue)) return process;
    }
  }
  return -1;
}

}  // namespace

std::string describe(const Step& step) {
  std::string text;
  if (step.flow.from != Peers::kNone) text += "from " + peers_text(step.flow.from, step.from);
  if (step.flow.own) text += (text.empty() ? "" : " + ") + span_text(step.own_side, step.own, step.count);
  text += " -> ";
  if (step.flow.into) text += span_text(Side::kOutput, step.into, step.count);
  if (step.flow.to != Peers::kNone) text += (step.flow.into ? ", to " : "to ") + peers_text(step.flow.to, step.to);
  return text + (step.flow.finish ? ", finish" : "");
}

std::string describe_wait(const Program& program, const Replay& replay, int process) {
  const Replay::Connection& queue = replay.connections()[replay.awaited(process)];
  const bool receives = queue.to == program.rank_of(process);
  const int peer = receives ? queue.from : queue.to;
  std::string text = "at " + step_text(program, replay, process) + " waits for ";
  text += receives ? "a message from rank " : "a free slot to rank ";
  text += std::to_string(peer);
  if (program.streams > 1) text += " on stream " + std::to_string(queue.stream);
  if (!receives) text += " (" + std::to_string(replay.slots()) + " are full)";
  const int other = user_of(program, peer, queue);
  if (other < 0) return text + ", which has no part for that";
  text += ", ";
  if (program.parts > 1) text += "part " + std::to_string(program.part_of(other)) + " of ";
  if (replay.ended(other)) return text + "which has ended its program";
  return text + "which is at " + step_text(program, replay, other);
}

}  // namespace nitinol::verify
