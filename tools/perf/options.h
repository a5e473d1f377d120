// What the user asked for.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "buffers.h"
#include "element.h"
#include "operation.h"
#include "pattern.h"

namespace nitinol::perf {

enum class Places { kBoth, kOut, kIn };

struct Options {
  std::vector<Operation> operations;
  std::vector<const ElementType*> types;
  std::vector<Reduction> reductions;
  std::vector<int> roots;  // empty: every rank in turn
  size_t min_bytes = 0;
  size_t max_bytes = 0;
  size_t step_bytes = 0;  // 0: multiply by factor
  double factor = 4;

  int processes = 0;  // 0: this one, with a thread for each device unless more is said
  int threads = 0;    // 0: chosen after the number of devices is known
  int gpus = 0;
  std::string worker;  // set in processes that the tool starts itself
  std::string id_file;

  int iterations = 20;
  int batches = 5;
  int warmups = 5;
  double budget = 2;  // seconds per row and library
  Places places = Places::kBoth;
  Registration registration = Registration::kNone;
  size_t shift = 0;  // bytes by which buffers begin beyond their allocation
  bool graph = false;
  bool sync_each = false;
  bool non_blocking = false;
  bool check = true;
  int timeout = 300;

  std::string library;
  std::string against;
  std::string json;

  std::string command_line;
};

/// Reads the command line; returns an exit code instead of options when the program is to end at once (help, mistakes).
struct ParseResult {
  Options options;
  std::optional<int> exit_code;
};
ParseResult parse_options(int argc, char** argv);

/// The sizes to run through, in bytes.
std::vector<size_t> sizes_of(const Options& options);

/// "64K", "1.5M", "1G" and plain numbers; throws PerfError.
size_t parse_bytes(const std::string& text);

}  // namespace nitinol::perf
