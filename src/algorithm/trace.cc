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

}  // namespace nitinol::algorithm
