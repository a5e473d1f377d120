#include "executor/verify/inspect.h"

#include <algorithm>

#include "executor/verify/describe.h"
#include "executor/verify/layout.h"

namespace nitinol::verify {
namespace {

using algorithm::Peers;
using algorithm::Program;
using algorithm::Side;
using algorithm::Step;

constexpr size_t kMostFindings = 8;

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

void inspect_step(const Program& program, int rank, const Step& step, const Layout& layout,
                  std::vector<Finding>& findings) {
  const Share& share = program.task.share;
  const int ranks = program.task.ranks;
  const auto complain = [&](Fault fault, const char* text) {
    findings.push_back({fault, rank, describe(step) + ": " + text});
  };
  const bool no_source = !step.flow.own && step.flow.from == Peers::kNone;
  const bool no_sink = !step.flow.into && step.flow.to == Peers::kNone;
  if (no_source || no_sink) complain(Fault::kMalformed, "has no source or no sink");
  if (step.flow.from == Peers::kAllBut) complain(Fault::kMalformed, "receives from all but one");
  if (!names_a_peer(step.flow.from, step.from, rank, ranks)) complain(Fault::kMalformed, "receives from no other rank");
  if (!names_a_peer(step.flow.to, step.to, rank, ranks)) complain(Fault::kMalformed, "sends to no other rank");
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

/// A span of a rank's memory that transfers touch.
struct Touched {
  size_t begin = 0;
  size_t end = 0;
  bool written = false;

  bool operator<(const Touched& other) const { return begin != other.begin ? begin < other.begin : end < other.end; }
};

/// All of a rank's spans in its output buffer and, in place, its input.
std::vector<Touched> touched_by(const algorithm::Trace& trace, const Layout::InPlace* in_place) {
  std::vector<Touched> spans;
  for (const Step& step : trace) {
    const size_t output = in_place ? in_place->output : 0;
    if (step.flow.into) spans.push_back({output + step.into, output + step.into + step.count, true});
    if (!step.flow.own) continue;
    if (step.own_side == Side::kOutput) {
      spans.push_back({output + step.own, output + step.own + step.count, false});
    } else if (in_place) {
      spans.push_back({in_place->input + step.own, in_place->input + step.own + step.count, false});
    }
  }
  std::sort(spans.begin(), spans.end());
  return spans;
}

/// Executors split each span over workers by position, without a barrier from transfer to transfer: an element that is
/// written must be the same worker's in every transfer of the rank.
void inspect_spans(const std::vector<Touched>& spans, int rank, std::vector<Finding>& findings) {
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

}  // namespace

void inspect(const Program& program, bool in_place, Report& report) {
  for (int rank = 0; rank < program.task.ranks; ++rank) {
    const Layout layout = layout_of(program.task, rank);
    for (const Step& step : program.traces[rank]) {
      inspect_step(program, rank, step, layout, report.findings);
      if (in_place && layout.in_place && step.flow.own && step.flow.into && overlaps(*layout.in_place, step)) {
        report.findings.push_back({Fault::kOverlap, rank, describe(step)});
      }
      if (report.findings.size() >= kMostFindings) return;
    }
    const Layout::InPlace* place = in_place && layout.in_place ? &*layout.in_place : nullptr;
    inspect_spans(touched_by(program.traces[rank], place), rank, report.findings);
  }
}

}  // namespace nitinol::verify
