// The executor of virtual GPUs: a launch is a kernel that a stream's thread runs.
#include "executor/executor.h"

#include <vgpu.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "device/check.h"
#include "executor/cpu/kernel.h"
#include "executor/cpu/watch.h"

namespace nitinol {

namespace cpu {
namespace {

void run_kernel(void* state) { static_cast<Kernel*>(state)->run(); }

constexpr size_t kOneShotTotal = 512 << 10;
constexpr size_t kLeastOneShot = 2 << 10;
constexpr size_t kMostOneShot = 128 << 10;

/// Of ranks on this machine alone, whose data is in the processor's caches: near to what `nitinol-perf -t` says of 2, 4
/// and 8 ranks on 2 cores of an AMD EPYC, 1 KB to 4 MB.
TopologyModel topology_of(int ranks) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const bool crowded = ranks > cores;
  const double rate = 100e3 / (crowded ? static_cast<double>(ranks) / cores : 1);
  TopologyModel model;
  model.local = {.latency_us = crowded ? 0.5 : 0.1, .bytes_per_us = rate};
  model.memory_bytes_per_us = rate;
  model.copy_bytes_per_us = rate / 2;
  model.start_us = crowded ? 0.8 * ranks : 0.2;
  model.slots = kSlots;
  return model;
}

class CpuExecutor : public Executor {
 public:
  explicit CpuExecutor(ExecutorSetup setup) : idle_(setup.idle), engine_(std::make_shared<Engine>(std::move(setup))) {
    vgpuKernelIsInnocent(run_kernel);
  }
  ~CpuExecutor() override { engine_->close(); }

  Limits limits() const override {
    Limits limits;
    limits.slot_bytes[static_cast<size_t>(Protocol::kSimple)] = engine_->rank().slot_bytes(Lane::kCollectives);
    // In one shot all ranks together move about n*n times the data, in two about n times in twice as many steps.
    const auto ranks = static_cast<size_t>(engine_->rank().ranks());
    limits.one_shot_bytes = std::clamp(kOneShotTotal / (ranks * ranks), kLeastOneShot, kMostOneShot);
    limits.broadcast_one_shot_bytes = limits.one_shot_bytes;
    limits.reduce_one_shot_bytes = limits.one_shot_bytes;
    return limits;
  }

  TopologyModel topology(Protocol) const override { return topology_of(engine_->rank().ranks()); }

  void connect() override { engine_->rank().connect(); }
  bool is_ready_for(const Launch& launch) override { return engine_->rank().is_ready_for(launch); }
  void prepare(const Launch& launch, cudaStream_t) override { engine_->rank().prepare(launch); }

  void announce(const CollectiveWork* next) override { engine_->rank().announce(next); }
  void note_wait(const HeldProgram* held) override { engine_->rank().note_wait(held); }
  void wait_on_host(HostCall call, std::span<const int> ranks) override { engine_->rank().wait_on_host(call, ranks); }
  void note(const Launch&, cudaStream_t, std::span<const unsigned long long> ids, bool captured) override {
    streams_.main = {};
    streams_.joined.clear();
    if (captured) return;
    const int device = engine_->rank().device();
    streams_.main = {ids.front(), device};
    for (const unsigned long long id : ids.subspan(1)) {
      if (id != kNoStreamId) streams_.joined.push_back({id, device});
    }
  }

  void launch(const Launch& launch, cudaStream_t stream) override {
    std::unique_ptr<Kernel> kernel = engine_->make_kernel(launch, streams_);
    const VgpuKernel call{
        .run = run_kernel,
        .state = kernel.get(),
        .release = [](void* state) { Engine::recycle(std::unique_ptr<Kernel>(static_cast<Kernel*>(state))); },
    };
    cuda_check(vgpuLaunchKernel(stream, &call), "vgpuLaunchKernel");
    static_cast<void>(kernel.release());  // the stream's now
  }

  std::optional<Progress> progress() const override {
    const auto calls = engine_->rank().calls();
    const uint64_t ended = calls->ended();
    return Progress{calls->begun(), ended};
  }
  /// What was aborted is over, but has not come to its end: then nothing is known.
  Passed passed() const override {
    Passed passed = passed_of(engine_->rank().arena(), engine_->rank().ranks());
    if (idle_) passed.all = idle_();
    return engine_->rank().stopped() ? Passed{} : passed;
  }
  std::vector<int> awaited() override { return engine_->rank().awaited(); }
  std::shared_ptr<const OperationTimes> times() const override { return engine_->rank().calls(); }
  DoingsOfPeer doings_of(int rank) const override { return engine_->rank().doings_of(rank); }
  bool follows_empty_collectives() const override { return true; }
  void set_timeout(std::chrono::milliseconds timeout) override { engine_->rank().set_timeout(timeout); }

  void stop_reports() override { engine_->rank().stop_reports(); }
  std::optional<std::string> difference_in_the_end() const override { return engine_->rank().difference_in_the_end(); }
  void leave() override { engine_->rank().leave(); }
  bool is_needed() const override { return engine_->rank().is_needed(); }
  void abort() override { engine_->rank().abort(); }
  bool is_quiet() override { return engine_->rank().is_quiet(); }

 private:
  std::function<bool()> idle_;
  std::shared_ptr<Engine> engine_;
  LaunchStreams streams_;  ///< where what is launched next runs
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Executor> make_executor(ExecutorSetup setup) {
  return std::make_unique<cpu::CpuExecutor>(std::move(setup));
}

}  // namespace nitinol
