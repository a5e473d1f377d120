#include "executor/cpu/kernel.h"

#include <utility>

namespace nitinol::cpu {

Engine::~Engine() { delete spare_.load(); }

std::unique_ptr<Kernel> Engine::take_spare() {
  if (Kernel* const spare = spare_.exchange(nullptr)) return std::unique_ptr<Kernel>(spare);
  const std::lock_guard lock(spares_mutex_);
  if (spares_.empty()) return std::make_unique<Kernel>();
  std::unique_ptr<Kernel> kernel = std::move(spares_.back());
  spares_.pop_back();
  return kernel;
}

std::unique_ptr<Kernel> Engine::make_kernel(const Launch& launch) {
  std::unique_ptr<Kernel> kernel = take_spare();
  kernel->engine_ = shared_from_this();
  kernel->collectives_ = launch.collectives;
  kernel->messages_.assign(launch.messages, rank_);
  return kernel;
}

void Engine::recycle(std::unique_ptr<Kernel> kernel) {
  const std::shared_ptr<Engine> engine = std::move(kernel->engine_);
  Kernel* none = nullptr;
  if (engine->spare_.compare_exchange_strong(none, kernel.get())) {
    static_cast<void>(kernel.release());
    return;
  }
  const std::lock_guard lock(engine->spares_mutex_);
  if (engine->spares_.size() < kMostSpares) engine->spares_.push_back(std::move(kernel));
}

void Kernel::run() {
  Rank& rank = engine_->rank();
  const std::lock_guard lock(rank.turn());
  for (const CollectiveWork& work : collectives_) run_collective(rank, engine_->workspace(), work);
  if (messages_.empty()) return;
  rank.begin_messages();
  messages_.run(rank);
  rank.end_messages();
}

}  // namespace nitinol::cpu
