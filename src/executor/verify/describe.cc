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

std::string step_text(const Program& program, const Replay& replay, int rank) {
  return "step " + std::to_string(replay.position(rank) + 1) + " of " + std::to_string(program.traces[rank].size()) +
         " (" + describe(replay.step(rank)) + ")";
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

std::string describe_wait(const Program& program, const Replay& replay, int rank) {
  const Replay::Connection& queue = replay.connections()[replay.awaited(rank)];
  const bool receives = queue.to == rank;
  const int peer = receives ? queue.from : queue.to;
  std::string text = "at " + step_text(program, replay, rank) + " waits for ";
  if (receives) {
    text += "a message from rank " + std::to_string(peer);
  } else {
    text += "a free slot to rank " + std::to_string(peer) + " (" + std::to_string(replay.slots()) + " are full)";
  }
  if (replay.ended(peer)) return text + ", which has ended its program";
  return text + ", which is at " + step_text(program, replay, peer);
}

}  // namespace nitinol::verify
