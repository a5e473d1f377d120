// The command line.
#include "options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "library.h"

namespace nitinol::perf {
namespace {

// What CLI11 fills in before it is turned into Options.
struct Raw {
  std::vector<std::string> operations{"all_reduce"};
  std::vector<std::string> types{"float"};
  std::vector<std::string> reductions{"sum"};
  std::vector<std::string> roots{"0"};
  std::string min = "1K";
  std::string max;
  std::string step;
  std::string places = "both";
  std::string registration = "none";
  std::string shift = "0";
  bool no_check = false;
  bool check = false;
};

constexpr const char* kDescription =
    "nitinol-perf measures and checks the operations of a libnccl.so.2.\n"
    "Each row is one operation, type and size. Every rank runs a warm-up and then batches of iterations; the time of a "
    "batch is that of its slowest rank, the table gives median, least and most over the batches. Results are compared "
    "with exact expectations, in poisoned buffers.\n"
    "Operations: all_reduce all_gather reduce_scatter broadcast reduce all_to_all gather scatter sendrecv hypercube, "
    "or "
    "all. Exit code: 0 fine, 1 wrong results, 2 an error, 3 no progress within --timeout.";

constexpr int kMostIterations = 1'000'000'000;
constexpr int kMostBatches = 1'000'000;  // each keeps its time, and runs whatever the budget says
constexpr size_t kUsualMostBytes = 4UL << 20;
constexpr double kMostBytes = 1ULL << 50;

void add_what(CLI::App& app, Raw& raw, Options& o) {
  app.add_option("operations", raw.operations, "what to measure")->capture_default_str();
  app.add_option("-b,--min-bytes", raw.min, "smallest size, as 8, 4K, 1M, 2G")->capture_default_str();
  app.add_option("-e,--max-bytes", raw.max, "largest size (default 4M, or the smallest if that is larger)");
  app.add_option("-f,--factor", o.factor, "from one size to the next: multiply by this")->capture_default_str();
  app.add_option("-i,--step", raw.step, "from one size to the next: add this many bytes");
  app.add_option("-d,--type", raw.types, "data types, or all")->delimiter(',')->capture_default_str();
  app.add_option("-o,--op", raw.reductions, "sum prod max min avg mulsum, or all")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("-r,--root", raw.roots, "roots, or all")->delimiter(',')->capture_default_str();
  app.add_option("--place", raw.places, "in, out or both")
      ->check(CLI::IsMember({"in", "out", "both"}))
      ->capture_default_str();
}

void add_who(CLI::App& app, Options& o) {
  app.add_option("-p,--processes", o.processes, "processes to start on this machine; not under mpirun or srun")
      ->check(CLI::Range(1, 4096));
  app.add_option("-t,--threads", o.threads,
                 "threads per process (default: 1; one per GPU when -p and -g are not given)")
      ->check(CLI::Range(1, 4096));
  app.add_option("-g,--gpus", o.gpus, "GPUs, that is ranks, per thread (default 1)")->check(CLI::Range(1, 4096));
  app.add_option("--id-file", o.id_file,
                 "under mpirun or srun: file through which the processes meet; put it on a "
                 "shared file system when they run on several hosts");
  app.add_option("--worker", o.worker)->group("");
}

void add_how(CLI::App& app, Raw& raw, Options& o) {
  app.add_option("-n,--iterations", o.iterations, "iterations per batch")
      ->check(CLI::Range(1, kMostIterations))
      ->capture_default_str();
  app.add_option("-m,--batches", o.batches, "batches per row")
      ->check(CLI::Range(1, kMostBatches))
      ->capture_default_str();
  app.add_option("-w,--warmups", o.warmups, "iterations before measuring")
      ->check(CLI::Range(0, kMostIterations))
      ->capture_default_str();
  app.add_option("--budget", o.budget, "seconds per row and library; long rows get fewer iterations (0: no limit)")
      ->capture_default_str();
  CLI::Option* const graph =
      app.add_flag("-G,--graph", o.graph, "capture the iterations of a batch in a CUDA graph and replay it");
  app.add_flag("-s,--sync", o.sync_each, "synchronise after each iteration")->excludes(graph);
  app.add_flag("--non-blocking", o.non_blocking, "use non-blocking communicators");
  app.add_option("-R,--register", raw.registration,
                 "none, local (ncclCommRegister) or window (symmetric windows); the latter two with ncclMemAlloc")
      ->check(CLI::IsMember({"none", "local", "window"}))
      ->capture_default_str();
  app.add_option(
         "--shift", raw.shift,
         "begin buffers so many bytes behind where they are allocated, a multiple of the type's size: as parts of "
         "larger ones begin")
      ->capture_default_str();
  CLI::Option* const check = app.add_flag("-c,--check", raw.check, "check results (the default)");
  app.add_flag("-C,--no-check", raw.no_check, "do not check results")->excludes(check);
  app.add_option("--timeout", o.timeout, "seconds without progress after which to give up with exit code 3 (0: never)")
      ->capture_default_str();
  app.add_option("--library", o.library,
                 "the libnccl.so.2 to measure (default: ../lib beside this program, else the loader's)");
  app.add_option("--against", o.against,
                 "a second libnccl.so.2 to measure in turns with the first on the same buffers");
  app.add_option("--json", o.json, "write all figures to this file");
}

std::vector<Operation> read_operations(const std::vector<std::string>& names) {
  std::vector<Operation> result;
  for (const std::string& name : names) {
    if (name == "all") {
      for (const OperationTraits& traits : all_operations()) {
        if (traits.operation != Operation::kHypercube) result.push_back(traits.operation);
      }
      continue;
    }
    const OperationTraits* traits = find_operation(name);
    if (traits == nullptr) throw PerfError("there is no operation '" + name + "'; see --help for the list");
    result.push_back(traits->operation);
  }
  return result;
}

std::vector<const ElementType*> read_types(const std::vector<std::string>& names) {
  std::vector<const ElementType*> result;
  for (const std::string& name : names) {
    if (name == "all") {
      for (const ElementType& type : all_element_types()) result.push_back(&type);
      continue;
    }
    const ElementType* type = find_element_type(name);
    if (type == nullptr)
      throw PerfError("there is no data type '" + name + "'; try float, half, bf16, int32 ... or all");
    result.push_back(type);
  }
  return result;
}

std::vector<Reduction> read_reductions(const std::vector<std::string>& names) {
  std::vector<Reduction> result;
  for (const std::string& name : names) {
    if (name == "all") {
      for (int i = 1; i <= static_cast<int>(Reduction::kMulSum); ++i) result.push_back(static_cast<Reduction>(i));
      continue;
    }
    const Reduction reduction = find_reduction(name);
    if (reduction == Reduction::kNone) throw PerfError("there is no reduction '" + name + "'; try sum, avg ... or all");
    result.push_back(reduction);
  }
  return result;
}

std::vector<int> read_roots(const std::vector<std::string>& names) {
  std::vector<int> result;
  for (const std::string& name : names) {
    if (name == "all") return {};
    int root = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), root);
    if (error != std::errc() || *end != '\0' || root < 0)
      throw PerfError("'" + name + "' is no root; give ranks or all");
    result.push_back(root);
  }
  return result;
}

/// Before anything is measured, rather than after.
void check_writable(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "a");
  if (file == nullptr) throw PerfError("cannot write '" + path + "': " + std::strerror(errno));
  std::fclose(file);
}

void finish(const Raw& raw, Options& o) {
  o.operations = read_operations(raw.operations);
  o.types = read_types(raw.types);
  o.reductions = read_reductions(raw.reductions);
  o.roots = read_roots(raw.roots);
  o.min_bytes = parse_bytes(raw.min);
  o.max_bytes = raw.max.empty() ? std::max(kUsualMostBytes, o.min_bytes) : parse_bytes(raw.max);
  if (!raw.step.empty()) o.step_bytes = parse_bytes(raw.step);
  o.places = raw.places == "both" ? Places::kBoth : raw.places == "in" ? Places::kIn : Places::kOut;
  o.registration = raw.registration == "none"    ? Registration::kNone
                   : raw.registration == "local" ? Registration::kLocal
                                                 : Registration::kWindow;
  o.check = !raw.no_check;
  o.shift = parse_bytes(raw.shift);
  for (const ElementType* type : o.types) {
    if (o.shift % type->size != 0)
      throw PerfError("--shift " + raw.shift + " is no multiple of the size of " + type->name);
  }
  if (o.max_bytes < o.min_bytes) throw PerfError("the largest size is smaller than the smallest");
  if (o.step_bytes == 0 && !(o.factor > 1)) throw PerfError("the factor must be larger than 1");
  if (!o.json.empty()) check_writable(o.json);
}

}  // namespace

ParseResult parse_options(int argc, char** argv) {
  Raw raw;
  ParseResult result;
  for (int i = 0; i < argc; ++i) {
    if (std::strncmp(argv[i], "--worker=", 9) == 0) continue;  // ours, not the user's
    result.options.command_line += (i == 0 ? "" : " ") + std::string(argv[i]);
  }
  CLI::App app(kDescription);
  add_what(app, raw, result.options);
  add_who(app, result.options);
  add_how(app, raw, result.options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    result.exit_code = app.exit(error) == 0 ? 0 : 2;
    return result;
  }
  finish(raw, result.options);
  return result;
}

size_t parse_bytes(const std::string& text) {
  size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  double unit = 1;
  if (used < text.size()) {
    switch (std::toupper(static_cast<unsigned char>(text[used]))) {
      case 'K': unit = 1024.0; break;
      case 'M': unit = 1024.0 * 1024; break;
      case 'G': unit = 1024.0 * 1024 * 1024; break;
      default: value = -1;
    }
    if (used + 1 < text.size()) value = -1;
  }
  if (used == 0 || !(value >= 0 && value * unit <= kMostBytes))
    throw PerfError("'" + text + "' is no size; write 8, 4K, 1M or 2G");
  return static_cast<size_t>(value * unit);
}

std::vector<size_t> sizes_of(const Options& options) {
  std::vector<size_t> sizes;
  size_t size = options.min_bytes;
  while (size <= options.max_bytes) {
    sizes.push_back(size);
    const double grown = std::min(static_cast<double>(size) * options.factor, 2 * kMostBytes);
    const size_t next = options.step_bytes != 0 ? size + options.step_bytes : static_cast<size_t>(grown);
    size = std::max(next, size + 1);
  }
  return sizes;
}

}  // namespace nitinol::perf
