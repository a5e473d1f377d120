// What a group recorded of operations, and what becomes of them: for each communicator one launch.
#pragma once

#include <cuda_runtime.h>

#include <span>
#include <variant>
#include <vector>

#include "model/plan.h"

namespace nitinol {

class Communicator;

/// One operation to be put into a stream. A pointer to its communicator is enough: a group that the program has opened
/// keeps that alive, and for a single call the handle does.
struct Task {
  template <class Work>
  Task(Communicator& whose, cudaStream_t where, const Work& what) : communicator(&whose), stream(where), work(what) {}

  Communicator* communicator;
  cudaStream_t stream;
  std::variant<CollectiveWork, MessageWork> work;
};

/// The tasks of one communicator, and their streams.
struct Batch {
  Communicator* communicator = nullptr;
  Launch launch;
  std::vector<cudaStream_t> streams;

  void add(const Task& task);
  /// Keeps the memory.
  void clear();
  /// Whether one of the streams is being captured. Throws Error.
  bool is_captured() const;
  /// Throws Error unless each message to oneself has its match in the same group, in the same order and of the same
  /// count and type.
  void check_messages_to_self() const;
};

/// In the order of the communicators' identities: ranks may name communicators in different orders, in a group, but
/// kernels are to begin in one.
std::vector<Batch> batches_of(std::span<const Task> tasks);

}  // namespace nitinol
