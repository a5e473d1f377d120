// nitinol-perf: measures and checks the operations of a libnccl.so.2, alone or in turns with a second one.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <sstream>
#include <thread>

#include "launcher.h"
#include "measure.h"
#include "report.h"

namespace nitinol::perf {
namespace {

constexpr int kWrong = 1;
constexpr int kFailed = 2;

// Other threads may be inside the library, waiting for ranks that will never come: leave without cleaning up.
[[noreturn]] void give_up(int process, const std::string& message) {
  std::fflush(stdout);
  std::string line = "nitinol-perf: process " + std::to_string(process) + ": " + message;
  std::ranges::replace(line, '\n', ' ');
  line += '\n';  // one write, so that processes do not mix their lines
  std::fwrite(line.data(), 1, line.size(), stderr);
  _exit(kFailed);
}

Channel open_channel(const Options& options) {
  if (!options.worker.empty()) return channel_of_worker(options.worker);
  const JobEnvironment job = job_environment();
  return job.processes > 1 ? meet_by_file(job, options.id_file) : Channel();
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

int device_count() {
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (count == 0) throw PerfError("there is no CUDA device");
  return count;
}

Team make_team(const Options& options, Channel& channel) {
  Team team;
  team.process = channel.process();
  team.processes = channel.processes();
  team.devices = device_count();
  team.gpus = std::max(1, options.gpus);
  team.threads = std::max(1, options.threads);
  const bool alone = team.processes == 1 && options.processes == 0 && options.threads <= 0 && options.gpus <= 0;
  if (alone) team.threads = team.devices;
  const std::vector<std::string> hosts = channel.all_gather(host_name());
  std::map<std::string, int> seen;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const int number = seen[hosts[i]]++;
    if (static_cast<int>(i) == team.process) team.local_process = number;
  }
  team.hosts = static_cast<int>(seen.size());
  return team;
}

// "0-3 NVIDIA H200": consecutive ranks of a process mostly use consecutive devices of one kind.
std::string describe_devices(const Team& team) {
  std::ostringstream text;
  std::string last_name;
  for (int thread = 0; thread < team.threads; ++thread) {
    for (int gpu = 0; gpu < team.gpus; ++gpu) {
      cudaDeviceProp properties{};
      check_cuda(cudaGetDeviceProperties(&properties, team.device(thread, gpu)), "cudaGetDeviceProperties");
      if (last_name != properties.name) text << (last_name.empty() ? "" : "; ") << properties.name;
      text << (last_name != properties.name ? " " : ",") << team.device(thread, gpu);
      last_name = properties.name;
    }
  }
  return text.str();
}

std::vector<Place> gather_places(const Team& team, Channel& channel) {
  const std::vector<std::string> all = channel.all_gather(host_name() + "\n" + describe_devices(team));
  std::vector<Place> places;
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t line_end = all[i].find('\n');
    places.push_back({all[i].substr(0, line_end), static_cast<int>(i), all[i].substr(line_end + 1)});
  }
  return places;
}

std::vector<Library> open_libraries(const Options& options) {
  std::vector<Library> libraries;
  libraries.emplace_back(options.library.empty() ? default_library_path() : options.library);
  if (!options.against.empty()) libraries.emplace_back(options.against);
  if (libraries.size() > 1 && libraries[0].same_object(libraries[1])) {
    throw PerfError("--against names the very library that is measured: " + libraries[0].path());
  }
  return libraries;
}

std::string time_text() {
  char text[64];
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

int run(const Options& options) {
  Channel channel = open_channel(options);
  const int process = channel.process();
  try {
    const Team team = make_team(options, channel);
    std::vector<Place> places = gather_places(team, channel);
    const std::vector<Case> cases = cases_of(options, team.ranks());
    Session session(options, team, std::move(channel), open_libraries(options));
    Report report(session, std::move(places), time_text());
    std::atomic<bool> wrong = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < team.threads; ++i) {
      threads.emplace_back([&, i] {
        try {
          Measurer measurer(session, i);
          if (measurer.run(cases, process == 0 && i == 0 ? &report : nullptr) > 0) wrong = true;
        } catch (const std::exception& error) {
          give_up(process, error.what());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (process == 0) report.finish();
    return wrong ? kWrong : 0;
  } catch (const std::exception& error) {
    give_up(process, error.what());
  }
}

int main_body(int argc, char** argv) {
  try {
    const ParseResult parsed = parse_options(argc, argv);
    if (parsed.exit_code) return *parsed.exit_code;
    const Options& options = parsed.options;
    if (options.processes > 1 && options.worker.empty() && job_environment().processes > 1) {
      throw PerfError("-p starts processes by itself; leave it out under mpirun or srun");
    }
    if (options.processes > 1 && options.worker.empty()) return launch_processes(options.processes, argc, argv);
    return run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nitinol-perf: %s\n", error.what());
    return kFailed;
  }
}

}  // namespace
}  // namespace nitinol::perf

int main(int argc, char** argv) { return nitinol::perf::main_body(argc, argv); }
