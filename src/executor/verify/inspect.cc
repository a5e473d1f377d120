#include "executor/verify/inspect.h"

#include <algorithm>

#include "executor/verify/describe.h"
#include "executor/verify/layout.h"
#include "executor/verify/touched.h"

namespace nitinol::verify {
namespace {

using algorithm::Peers;
using algorithm::Program;
using algorithm::Side;
using algorithm::Step;

bool names_a_peer(Peers peers, int peer, int rank, int ranks) {
  if (peers == Peers::kNone || peers == Peers::kAll) return true;
  return peer >= 0 && peer < ranks && peer != rank;
}

/// Whether [offset, offset + count) lies in the share of one of a buffer's blocks.
bool in_share(const Share& share, size_t blocks, size_t offset, size_t count) {
  if (share.stride == 0 || offset / share.stride >= blocks) return false;
  const size_t within = offset % share.stride;
  return within >= share.begin && within < share.end && count <= share.end - within;
}

bool overlaps(const Layout::InPlace& place, const Step& step) {
  const size_t own = step.own + (step.own_side == Side::kInput ? place.input : place.output);
  const size_t into = step.into + place.output;
  return own != into && own < into + step.count && into < own + step.count;
}

Finding finding_of(const Program& program, int process, Fault fault, std::string text) {
  const int part = program.parts > 1 ? program.part_of(process) : -1;
  return {fault, program.rank_of(process), std::move(text), part};
}

void inspect_step(const Program& program, int process, const Step& step, const Layout& layout,
                  std::vector<Finding>& findings) {
  const Share& share = program.task.share;
  const int ranks = program.task.ranks;
  const int rank = program.rank_of(process);
  const auto complain = [&](Fault fault, const char* text) {
    findings.push_back(finding_of(program, process, fault, describe(step) + ": " + text));
  };
  const auto exists = [&](int stream) { return stream >= 0 && stream < program.streams; };
  const bool no_source = !step.flow.own && step.flow.from == Peers::kNone;
  const bool no_sink = !step.flow.into && step.flow.to == Peers::kNone;
  if (no_source || no_sink) complain(Fault::kMalformed, "has no source or no sink");
  if (step.flow.from == Peers::kAllBut) complain(Fault::kMalformed, "receives from all but one");
  if (!names_a_peer(step.flow.from, step.from, rank, ranks)) complain(Fault::kMalformed, "receives from no other rank");
  if (!names_a_peer(step.flow.to, step.to, rank, ranks)) complain(Fault::kMalformed, "sends to no other rank");
  if (!exists(step.stream_in) || !exists(step.stream_out)) complain(Fault::kMalformed, "uses a stream that is not");
  if (step.count == 0) complain(Fault::kMalformed, "moves nothing");
  if (step.uneven) complain(Fault::kMalformed, "reads and writes spans of different length");
  if (step.count > share.chunk) complain(Fault::kTooLong, "is longer than a chunk");
  const size_t blocks = step.own_side == Side::kInput ? layout.input_blocks : layout.output_blocks;
  if (step.flow.own && !in_share(share, blocks, step.own, step.count)) {
    complain(Fault::kOutOfBounds, "reads outside the rank's share");
  }
  if (step.flow.into && !in_share(share, layout.output_blocks, step.into, step.count)) {
    complain(Fault::kOutOfBounds, "writes outside the rank's share");
  }
}

/// Executors split each span over workers by position, without a barrier from transfer to transfer: an element that is
/// written must be the same worker's in every transfer of the rank. That holds across parts too: then one that waits
/// for another may do so worker by worker.
void inspect_spans(const Program& program, int rank, bool in_place, std::vector<Finding>& findings) {
  const std::vector<Touched> spans = touched_by(program, rank, in_place);
  size_t end = 0;          // of all spans so far
  size_t written_end = 0;  // of those written
  for (size_t i = 0; i < spans.size();) {
    Touched span = spans[i];
    for (; i < spans.size() && spans[i].begin == span.begin && spans[i].end == span.end; ++i) {
      span.written = span.written || spans[i].written;
    }
    if (span.begin < written_end || (span.written && span.begin < end)) {
      findings.push_back({Fault::kDifferentSpans, rank,
                          "[" + std::to_string(span.begin) + "," + std::to_string(span.end) +
                              ") of the output overlaps another transfer's span"});
      return;
    }
    end = std::max(end, span.end);
    if (span.written) written_end = std::max(written_end, span.end);
  }
}

/// Which part of a rank uses each of its ends of connections, in one direction. Finds those that two use.
class Ends {
 public:
  Ends(const Program& program, const char* direction)
      : program_(program),
        direction_(direction),
        parts_(static_cast<size_t>(program.task.ranks) * program.streams, kNobody),
        told_(parts_.size(), false) {}

  void use(int process, int peer, int stream, std::vector<Finding>& findings) {
    const size_t end = static_cast<size_t>(peer) * program_.streams + stream;
    const int part = program_.part_of(process);
    if (parts_[end] == kNobody) parts_[end] = part;
    if (parts_[end] == part || told_[end]) return;
    told_[end] = true;
    findings.push_back(finding_of(program_, process, Fault::kSharedConnection,
                                  direction_ + std::to_string(peer) + " on stream " + std::to_string(stream) +
                                      ", as part " + std::to_string(parts_[end]) + " does"));
  }

 private:
  static constexpr int kNobody = -1;

  const Program& program_;
  std::string direction_;
  std::vector<int> parts_;
  std::vector<bool> told_;
};

void inspect_ends(const Program& program, int rank, std::vector<Finding>& findings) {
  const int ranks = program.task.ranks;
  Ends incoming(program, "takes from ");
  Ends outgoing(program, "sends to ");
  for (int part = 0; part < program.parts; ++part) {
    const int process = program.process_of(rank, part);
    for (const Step& step : program.traces[process]) {
      for (int i = 0; i < algorithm::peers_in(step.flow.from, ranks); ++i) {
        incoming.use(process, algorithm::incoming_peer(step, rank, i), step.stream_in, findings);
      }
      for (int i = 0; i < algorithm::peers_in(step.flow.to, ranks); ++i) {
        outgoing.use(process, algorithm::outgoing_peer(step, rank, ranks, i), step.stream_out, findings);
      }
    }
  }
}

}  // namespace

void inspect(const Program& program, bool in_place, Report& report) {
  for (int process = 0; process < program.processes(); ++process) {
    const int rank = program.rank_of(process);
    const Layout layout = layout_of(program.task, rank);
    for (const Step& step : program.traces[process]) {
      inspect_step(program, process, step, layout, report.findings);
      if (in_place && layout.in_place && step.flow.own && step.flow.into && overlaps(*layout.in_place, step)) {
        report.findings.push_back(finding_of(program, process, Fault::kOverlap, describe(step)));
      }
      if (report.findings.size() >= kMostFindings) return;
    }
    if (program.part_of(process) == program.parts - 1) inspect_spans(program, rank, in_place, report.findings);
  }
  if (program.parts == 1 || !report.right()) return;
  for (int rank = 0; rank < program.task.ranks && report.findings.size() < kMostFindings; ++rank) {
    inspect_ends(program, rank, report.findings);
  }
}

}  // namespace nitinol::verify
