#include "executor/verify/touched.h"

#include <algorithm>

#include "executor/verify/layout.h"

namespace nitinol::verify {

using algorithm::Side;
using algorithm::Step;

namespace {

void add_touched(const algorithm::Program& program, int process, bool in_place, std::vector<Touched>& spans) {
  const Layout layout = layout_of(program.task, program.rank_of(process));
  const bool together = in_place && layout.in_place;
  const size_t input = together ? layout.in_place->input : 0;
  const size_t output = together ? layout.in_place->output : 0;
  for (size_t i = 0; i < program.traces[process].size(); ++i) {
    const Step& step = program.traces[process][i];
    const auto add = [&](size_t begin, bool written) {
      spans.push_back({begin, begin + step.count, written, process, i});
    };
    if (step.flow.into) add(output + step.into, true);
    if (!step.flow.own) continue;
    if (step.own_side == Side::kOutput) {
      add(output + step.own, false);
    } else if (together) {
      add(input + step.own, false);
    }
  }
}

}  // namespace

std::vector<Touched> touched_by(const algorithm::Program& program, int rank, bool in_place) {
  std::vector<Touched> spans;
  for (int part = 0; part < program.parts; ++part) {
    add_touched(program, program.process_of(rank, part), in_place, spans);
  }
  std::sort(spans.begin(), spans.end());
  return spans;
}

}  // namespace nitinol::verify
