#include "comm/kernel_memory.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "device/check.h"
#include "device/guards.h"

namespace nitinol {

struct KeptMemory {
  std::shared_ptr<void> memory;
  std::shared_ptr<void> order{};
  Idle idle{};
};

namespace {

/// Memory is freed within milliseconds.
constexpr std::chrono::seconds kPatience{1};

struct Keeper {
  std::mutex mutex;
  std::list<KeptMemory> kept;                                         // a list: to put something back takes no memory
  std::vector<std::weak_ptr<const KernelsOfProcess::Entry>> running;  ///< of the process's communicators
  std::atomic<int> frees{0};                                          ///< under way, or looking whether they may be
};

Keeper& keeper() {
  static Keeper* const instance = new Keeper;  // graphs may go when the process ends
  return *instance;
}

/// Called by CUDA, on a thread that may not use it.
void on_graph_gone(void* pointer) {
  const std::unique_ptr<std::list<KeptMemory>> what(static_cast<std::list<KeptMemory>*>(pointer));
  const std::lock_guard lock(keeper().mutex);
  keeper().kept.splice(keeper().kept.end(), *what);
}

/// What is kept, taken out of the keeper's hands for a while: CUDA is not to be called with its lock, for which CUDA
/// may wait.
class Taken {
 public:
  Taken() {
    const std::lock_guard lock(keeper().mutex);
    all.swap(keeper().kept);
  }
  ~Taken() {
    const std::lock_guard lock(keeper().mutex);
    keeper().kept.splice(keeper().kept.end(), all);
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  std::list<KeptMemory> all;
};

/// Drops what somebody else holds too, so that nothing is freed: of what is kept several times, all but the last.
void drop_what_others_hold(std::list<KeptMemory>& kept) {
  for (auto one = kept.begin(); one != kept.end();)
    one = one->memory.use_count() != 1 ? kept.erase(one) : std::next(one);
}

/// Without those that have ended. Under the lock.
std::vector<std::weak_ptr<const KernelsOfProcess::Entry>>& running_locked() {
  std::erase_if(keeper().running, [](const auto& one) { return one.expired(); });
  return keeper().running;
}

bool no_kernels_run() {
  std::vector<std::weak_ptr<const KernelsOfProcess::Entry>> running;
  {
    const std::lock_guard lock(keeper().mutex);
    running = running_locked();
  }
  return std::all_of(running.begin(), running.end(), [](const auto& one) {
    const auto entry = one.lock();
    return entry == nullptr || (!entry->launching && entry->idle());
  });
}

/// While it lives no launch begins.
class Free {
 public:
  Free() { ++keeper().frees; }
  ~Free() { --keeper().frees; }
  Free(const Free&) = delete;
  Free& operator=(const Free&) = delete;
};

}  // namespace

KernelsOfProcess::KernelsOfProcess(Idle idle) : entry_(std::make_shared<Entry>()) {
  entry_->idle = std::move(idle);
  const std::lock_guard lock(keeper().mutex);
  running_locked().emplace_back(entry_);
}

// Each side says what it is about to do before it looks at what the other does, so one of them sees the other. Graphs
// are launched without a word to anybody: whoever frees may wait for a kernel that needs this launch, so not for ever.
KernelsOfProcess::Launch::Launch(Entry* entry) : entry_(entry) {
  if (entry_ == nullptr) return;
  entry_->launching = true;
  if (keeper().frees == 0) return;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (keeper().frees != 0 && std::chrono::steady_clock::now() < deadline) {
    entry_->launching = false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    entry_->launching = true;
  }
}

KernelsOfProcess::Launch::~Launch() {
  if (entry_ != nullptr) entry_->launching.store(false, std::memory_order_release);
}

void keep_with_graph(cudaStream_t stream, std::shared_ptr<void> memory, std::shared_ptr<void> order, Idle idle) {
  let_go_of_idle_memory();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  cuda_check(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, nullptr, nullptr, nullptr),
             "cudaStreamGetCaptureInfo");
  auto held = std::make_unique<std::list<KeptMemory>>();
  held->push_back({std::move(memory), std::move(order), std::move(idle)});
  cudaUserObject_t object = nullptr;
  cuda_check(cudaUserObjectCreate(&object, held.get(), on_graph_gone, 1, cudaUserObjectNoDestructorSync),
             "cudaUserObjectCreate");
  static_cast<void>(held.release());  // on_graph_gone() frees it
  const cudaError_t status_of_retain = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
  if (status_of_retain != cudaSuccess) static_cast<void>(cudaUserObjectRelease(object, 1));
  cuda_check(status_of_retain, "cudaGraphRetainUserObject");
}

KeepUntilIdle::KeepUntilIdle(std::shared_ptr<void> memory, Idle idle) {
  one_.push_back({std::move(memory), {}, std::move(idle)});
}

KeepUntilIdle::~KeepUntilIdle() {
  const std::lock_guard lock(keeper().mutex);
  keeper().kept.splice(keeper().kept.end(), one_);
}

void let_go_of_idle_memory() {
  const RelaxedCaptureGuard relaxed;  // what goes is freed, and this may happen during another capture
  static std::mutex one_at_a_time;
  std::optional<Free> free;
  std::list<KeptMemory> to_be_freed;  // goes after the lock
  const std::lock_guard lock(one_at_a_time);
  Taken kept;
  drop_what_others_hold(kept.all);
  if (kept.all.empty()) return;
  free.emplace();  // before it looks whether kernels run
  if (!no_kernels_run()) return;
  const auto through =
      std::partition(kept.all.begin(), kept.all.end(), [](const KeptMemory& one) { return !one.idle(); });
  to_be_freed.splice(to_be_freed.end(), kept.all, through, kept.all.end());
}

}  // namespace nitinol
