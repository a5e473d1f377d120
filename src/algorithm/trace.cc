#include "algorithm/trace.h"

namespace nitinol::algorithm {

Program record(Algorithm algorithm, const Task& task) {
  Program program{task, {}};
  if (!exists(task.what, algorithm)) return program;
  for (int rank = 0; rank < task.ranks; ++rank) {
    Recorder recorder(rank, task);
    run(task.what, algorithm, recorder, task.share);
    program.traces.push_back(recorder.take());
  }
  return program;
}

Program divide(const Program& whole, Division division) {
  const Task& task = whole.task;
  const bool reducing = reduces(task.what);
  Program divided{.task = task, .traces = {}, .parts = parts_of(division, task.ranks), .streams = streams_of(reducing)};
  divided.traces.resize(static_cast<size_t>(task.ranks) * divided.parts);
  for (int rank = 0; rank < whole.processes(); ++rank) {
    for (Step step : whole.traces[rank]) {
      const int part = part_of(division, step.flow, step.from, step.to, rank, task.ranks);
      step.stream_in = stream_in(reducing, part);
      step.stream_out = stream_out(reducing, part);
      divided.traces[divided.process_of(rank, part)].push_back(step);
    }
  }
  return divided;
}

}  // namespace nitinol::algorithm
