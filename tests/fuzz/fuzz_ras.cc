// What health monitoring hears: commands of clients, and what other processes ask and tell. The first byte chooses what
// the rest is taken for.

// LIBRARIES: nitinol_ras
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "diagnostics/ras/command.h"
#include "diagnostics/ras/dump_signal.h"
#include "diagnostics/ras/messages.h"
#include "diagnostics/ras/registry.h"
#include "diagnostics/ras/render.h"

namespace {

using namespace nitinol::ras;

void require(bool condition) {
  if (!condition) __builtin_trap();
}

void fuzz_command(const std::string& line) {
  const Command command = parse_command(line);
  require((command.kind == Command::Kind::kMistake) == !command.mistake.empty());
  require(command.timeout.count() >= 0);
  (void)parse_signal(line);
  (void)is_text_path(dump_path(line, CommunicatorId{}, 0));
}

void fuzz_ask(std::span<const std::byte> bytes) {
  const auto ask = decode_ask(bytes);
  if (ask) require(decode_ask(encode(*ask)) == ask);
}

/// A job made of what one process has told, rendered.
void fuzz_tell(std::span<const std::byte> bytes, bool answered) {
  const auto tell = decode_tell(bytes);
  if (!tell) return;
  require(decode_tell(encode(*tell)) == tell);
  Job job;
  job.asked = tell->report.name;
  for (const Roster& roster : tell->report.rosters) {
    job.communicators.try_emplace(roster.id, roster);
    for (const ProcessName& name : roster.processes) {
      JobProcess& process = job.processes[name.number];
      process.name = name;
      process.state = static_cast<nitinol::ProcessState>(static_cast<unsigned>(name.pid) % 4);
      process.hung_up = name.number % 2 != 0;
      if (answered) process.report = tell->report;
    }
  }
  job.dumps = tell->dumps;
  for (const Findings& findings : find(job)) (void)healthy(findings);
  (void)render_text(job, true);
  (void)render_json(job);
  (void)render_dumps_json(job);
  (void)render_dumps_text(job);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0] % 4) {
    case 0: fuzz_command({reinterpret_cast<const char*>(bytes.data()), bytes.size()}); break;
    case 1: fuzz_ask(bytes); break;
    case 2: fuzz_tell(bytes, true); break;
    case 3: fuzz_tell(bytes, false); break;
  }
  return 0;
}
