// Keeps the memory that kernels use: as long as somebody may run them, since a graph and everything instantiated from
// it may outlive the communicator; and as long as kernels of the process run, since CUDA frees memory only once they
// are done. Who frees it earlier waits for a kernel that may wait for this very thread.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <functional>
#include <list>
#include <memory>

namespace nitinol {

/// Whether the kernels in question are through. Any thread.
using Idle = std::function<bool()>;

/// A communicator's kernels, from its making to its end.
class KernelsOfProcess {
 public:
  KernelsOfProcess() = default;
  explicit KernelsOfProcess(Idle idle);
  KernelsOfProcess(KernelsOfProcess&&) = default;
  KernelsOfProcess& operator=(KernelsOfProcess&&) = default;

  struct Entry {
    Idle idle;
    std::atomic<bool> launching{false};
  };

  /// While it lives a launch is under way, which `idle` need not know of yet: nothing is freed. What is being freed
  /// when it begins it lets go first, for a second at most. One at a time; its communicator outlives it.
  class Launch {
   public:
    explicit Launch(Entry* entry);
    ~Launch();
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

   private:
    Entry* entry_;
  };
  Launch begin_launch() const { return Launch(entry_.get()); }

 private:
  std::shared_ptr<Entry> entry_;
};

/// `memory` lives until the graph into which `stream` is captured, and every instance of it, are gone, and then as with
/// KeepUntilIdle; so does `order`, what puts its launches in order. Throws Error.
void keep_with_graph(cudaStream_t stream, std::shared_ptr<void> memory, std::shared_ptr<void> order, Idle idle);

struct KeptMemory;

/// `memory` lives until `idle` holds and no kernels of the process run, at least: until let_go_of_idle_memory() finds
/// it so. That takes over at the end of this object, before which others who hold the memory let it go: what somebody
/// holds who may free it at any moment is not kept.
class KeepUntilIdle {
 public:
  KeepUntilIdle(std::shared_ptr<void> memory, Idle idle);
  /// Takes no memory.
  ~KeepUntilIdle();
  KeepUntilIdle(const KeepUntilIdle&) = delete;
  KeepUntilIdle& operator=(const KeepUntilIdle&) = delete;

 private:
  std::list<KeptMemory> one_;
};

/// Frees what is kept and nobody uses any more. Waits for nothing: what kernels of the process stand in the way of
/// stays for the next time.
void let_go_of_idle_memory();

}  // namespace nitinol
