// How long an algorithm takes by small CTAs in chunks of several lengths, as the simulator (executor/simulate) has it
// with every channel of a launch: to see what a change of chunks, channels or an algorithm's order may bring before
// GPUs are there to measure it. Results are only as good as the rates and times that it is given;
// bench/results/tuning.md has them beside measurements. Prints microseconds, a line for each length of chunks.
//   plan_times COLLECTIVE ALGORITHM [options]
#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "algorithm/table.h"
#include "executor/simulate/simulator.h"

namespace {

using namespace nitinol;

struct Options {
  std::string what;
  std::string algorithm;
  int ranks = 4;
  int root = 0;
  int channels = 128;
  size_t element_bytes = 4;
  std::vector<size_t> chunks{32, 16, 8};            // KB
  std::vector<size_t> sizes{16, 32, 64, 128, 256};  // MB
  double rate = 345;                                // GB/s
  double memory = 40;                               // GB/s
  double latency = 1.5;                             // us
  double step = 1;                                  // us
  int slots = 8;
};

void parse(CLI::App& app, Options& o) {
  app.add_option("collective", o.what, "as logs name it: AllReduce, ReduceScatter, ...")->required();
  app.add_option("algorithm", o.algorithm, "OneShot, TwoShot, Ring or Tree")->required();
  app.add_option("--ranks", o.ranks, "GPUs of a host")->check(CLI::Range(2, 1024))->capture_default_str();
  app.add_option("--root", o.root)->capture_default_str();
  app.add_option("--channels", o.channels)->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--element", o.element_bytes, "bytes of an element")->check(CLI::Range(1, 8))->capture_default_str();
  app.add_option("--chunks", o.chunks, "KB")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--sizes", o.sizes, "MB of the larger buffer")->check(CLI::PositiveNumber)->capture_default_str();
  const auto add_figure = [&app](const char* name, double& figure, const char* meaning) {
    app.add_option(name, figure, meaning)->check(CLI::NonNegativeNumber)->capture_default_str();
  };
  add_figure("--rate", o.rate, "GB/s of a link in each direction");
  add_figure("--memory", o.memory, "GB/s at which a CTA reads and writes memory");
  add_figure("--latency", o.latency, "us until a message and word of it have arrived");
  add_figure("--step", o.step, "us that a transfer costs a CTA besides");
  app.add_option("--slots", o.slots, "of a connection")->check(CLI::Range(2, 1024))->capture_default_str();
}

template <class Kind>
std::optional<Kind> named(const std::string& name, int kinds) {
  for (int i = 0; i < kinds; ++i) {
    if (name == name_of(static_cast<Kind>(i))) return static_cast<Kind>(i);
  }
  return std::nullopt;
}

/// Elements of one rank's block.
size_t count_of(const Options& o, Collective what, size_t mega) {
  return (mega << 20) / o.element_bytes / (has_block_per_rank(what) ? static_cast<size_t>(o.ranks) : 1);
}

double time_of(const Options& o, Collective what, Algorithm algorithm, size_t chunk, size_t mega) {
  constexpr size_t kGrain = 128;  // bytes
  std::vector<algorithm::Program> channels;
  for (int channel = 0; channel < o.channels; ++channel) {
    Share share = share_of(count_of(o, what, mega), (chunk << 10) / o.element_bytes, channel, o.channels,
                           kGrain / o.element_bytes);
    if (share.begin == share.end) continue;
    share.turn = algorithm::turn_of(channel, o.ranks);
    share.channels = o.channels;
    channels.push_back(algorithm::record(algorithm, {what, o.ranks, o.root, share}));
  }
  TopologyModel model;
  model.local = {.latency_us = o.latency, .bytes_per_us = o.rate * 1e3};
  model.memory_bytes_per_us = o.memory * 1e3;
  model.step_us = o.step;
  model.start_us = 2;
  model.element_bytes = o.element_bytes;
  model.slots = o.slots;
  return simulate::simulate(channels, model);
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Simulated times of an algorithm by small CTAs");
  parse(app, o);
  CLI11_PARSE(app, argc, argv);
  const auto what = named<Collective>(o.what, kCollectives);
  const auto algorithm = named<Algorithm>(o.algorithm, kAlgorithms);
  if (!what || !algorithm || !algorithm::exists(*what, *algorithm) || o.root < 0 || o.root >= o.ranks) {
    std::fprintf(stderr, "plan_times: there is no %s by %s to rank %d of %d\n", o.what.c_str(), o.algorithm.c_str(),
                 o.root, o.ranks);
    return 2;
  }
  std::printf("%-10s", "chunk");
  for (const size_t mega : o.sizes) std::printf(" %6zu MB", mega);
  for (const size_t chunk : o.chunks) {
    std::printf("\n%7zu KB", chunk);
    for (const size_t mega : o.sizes) std::printf(" %9.1f", time_of(o, *what, *algorithm, chunk, mega));
  }
  std::printf("\n");
}
