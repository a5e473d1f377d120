#include "executor/cpu/kernel.h"

#include <exception>
#include <utility>

#include "executor/cpu/plain_arithmetic.h"

namespace nitinol::cpu {
namespace {

Kernel g_no_more;  // stands in the place of a spare once its engine is closed

}  // namespace

std::unique_ptr<Kernel> Engine::take_spare() {
  if (Kernel* const spare = spare_.load(std::memory_order_acquire)) {
    spare_.store(nullptr, std::memory_order_relaxed);  // nobody else takes it, and nobody replaces it
    return std::unique_ptr<Kernel>(spare);
  }
  const std::lock_guard lock(spares_mutex_);
  if (spares_.empty()) {
    auto kernel = std::make_unique<Kernel>();
    kernel->engine_ = shared_from_this();
    return kernel;
  }
  std::unique_ptr<Kernel> kernel = std::move(spares_.back());
  spares_.pop_back();
  return kernel;
}

std::unique_ptr<Kernel> Engine::make_kernel(const Launch& launch, const LaunchStreams& streams) {
  std::unique_ptr<Kernel> kernel = take_spare();
  rank_.occupancy().issue(streams);
  kernel->streams_ = streams;
  kernel->collectives_ = launch.collectives;
  kernel->messages_.assign(launch.messages, rank_);
  return kernel;
}

void Engine::recycle(std::unique_ptr<Kernel> kernel) {
  Kernel* none = nullptr;
  if (kernel->engine_->spare_.compare_exchange_strong(none, kernel.get())) {
    static_cast<void>(kernel.release());
    return;
  }
  const std::shared_ptr<Engine> engine = kernel->engine_;
  const std::lock_guard lock(engine->spares_mutex_);
  if (!engine->closed_ && engine->spares_.size() < kMostSpares) engine->spares_.push_back(std::move(kernel));
}

void Engine::close() {
  rank_.close();
  Kernel* const spare = spare_.exchange(&g_no_more);
  if (spare != &g_no_more) delete spare;
  std::vector<std::unique_ptr<Kernel>> spares;
  const std::lock_guard lock(spares_mutex_);
  closed_ = true;
  spares.swap(spares_);
}

void Kernel::run() {
  Rank& rank = engine_->rank();
  const std::lock_guard lock(rank.turn());
  rank.occupancy().begin(streams_);
  try {
    run_operations(rank);
    rank.ring_for_single_slots();
  } catch (const std::exception& thrown) {  // nobody in a stream could catch it
    rank.give_up(thrown);
  }
  rank.occupancy().end();
}

void Kernel::run_operations(Rank& rank) {
  const PlainArithmetic plain;
  for (const CollectiveWork& work : collectives_) run_collective(rank, engine_->workspace(), work);
  if (messages_.empty()) return;
  rank.begin_messages();
  messages_.run(rank);
  rank.end_messages();
}

}  // namespace nitinol::cpu
