#include "executor/verify/touched.h"

#include "executor/verify/layout.h"

namespace nitinol::verify {

using algorithm::Side;
using algorithm::Step;

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

}  // namespace nitinol::verify
