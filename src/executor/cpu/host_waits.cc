#include "executor/cpu/host_waits.h"

#include <vgpu.h>

#include <vector>

#include "base/program_threads.h"

namespace nitinol::cpu {

std::optional<int> only_thread_if_it_waits_for(const StreamName& stream) {
  if (!stream.known() || vgpuRunsFunctionsOfProgram() != 0) return std::nullopt;
  const std::vector<int> threads = threads_of_program();
  if (threads.size() != 1 || vgpuThreadWaitsFor(threads[0], stream.id) == 0) return std::nullopt;
  return threads[0];
}

}  // namespace nitinol::cpu
