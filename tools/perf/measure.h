// One thread of the benchmark: its GPUs, communicators and buffers, and the measuring itself.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "session.h"

namespace nitinol::perf {

/// What one library needed for one case.
struct Measurement {
  std::vector<double> microseconds;  // per operation, one entry per batch, of the slowest rank
  double wrong = -1;                 // elements over all ranks; -1: not checked
};

struct Row {
  Case what;
  int iterations = 0;
  std::vector<Measurement> libraries;
};

/// Receives rows as they are measured. Called by thread 0 of process 0 only.
class RowSink {
 public:
  virtual ~RowSink() = default;
  virtual void starting(const Case& what, size_t index, size_t total) = 0;
  virtual void row(const Row& row) = 0;
  virtual void initialised(const std::vector<double>& seconds) = 0;
};

class Measurer {
 public:
  Measurer(Session& session, int thread);
  ~Measurer();
  Measurer(const Measurer&) = delete;
  Measurer& operator=(const Measurer&) = delete;

  /// Measures all cases; `sink` is null in all threads but one. Returns the number of wrong elements seen by all ranks.
  double run(const std::vector<Case>& cases, RowSink* sink);

 private:
  struct Gpu;
  class Graphs;

  std::vector<double> initialise();
  void allocate(const std::vector<Case>& cases);
  Row measure(const Case& what);
  void tear_down();

  void prepare(Gpu& gpu, const Case& what);
  double verify(Gpu& gpu, const Case& what, size_t library);
  double check(const Case& what, size_t library);
  double wrong_after(const Case& what, size_t library);
  double check_batch(const Case& what, size_t library, int iterations, Graphs* graphs);
  Call call_of(const Gpu& gpu, const Case& what, size_t library) const;
  void enqueue_once(const Case& what, size_t library);
  void settle(size_t library, const char* doing);
  void synchronize(size_t library);
  void align(size_t library);
  double timed_batch(const Case& what, size_t library, int iterations, Graphs* graphs);
  int choose_iterations(const Case& what);
  void create_operators(const Case& what);
  void destroy_operators();

  Session& session_;
  int thread_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  double total_wrong_ = 0;
};

}  // namespace nitinol::perf
