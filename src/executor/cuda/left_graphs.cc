#include "executor/cuda/left_graphs.h"

#include <chrono>

#include "base/last_error.h"
#include "executor/call_words.h"
#include "executor/cuda/domain.h"
#include "executor/cuda/late_watch.h"

namespace nitinol::cuda {

LeftGraphs::LeftGraphs(Domain& domain, std::chrono::milliseconds timeout)
    : domain_(domain), waits_(domain.signals(), no_names_), late_ranks_(domain) {
  late_ranks_.set_timeout(timeout);
  watch_ = start_watching([this] { look(); });
}

LeftGraphs::~LeftGraphs() { stop_watching(watch_); }

void LeftGraphs::look() {
  if (domain_.signals().aborted != 0 || late_ranks_.is_just_back()) return;
  const auto trouble = find_trouble();
  if (!trouble) return;
  domain_.signals().aborted = 1;  // before anything that needs memory
  const std::string sentence = behind_the_end_of_its_communicator(*trouble);
  set_last_error(sentence);
  if (domain_.setup().warned) domain_.setup().warned(sentence);
}

std::optional<std::string> LeftGraphs::find_trouble() {
  const auto late = late_ranks_.look(nullptr);
  return late ? late : find_dead();
}

std::optional<std::string> LeftGraphs::find_dead() {
  const KernelWait wait = waits_.read();
  if (!wait.any()) return std::nullopt;
  const ExecutorSetup& setup = domain_.setup();
  const Peer& self = setup.peers[static_cast<size_t>(setup.rank)];
  const auto peer = [&setup](int rank) -> const Peer& { return setup.peers[static_cast<size_t>(rank)]; };
  const auto state_of = [&](int rank) {
    const bool matters = wait.is_for(rank) && peer(rank).host == self.host;  // others may have ended as they were to
    return matters ? process_of(peer(rank), self) : ProcessState::kUnknown;
  };
  const auto dead = dead_peers_.look(domain_.ranks(), std::chrono::steady_clock::now(), state_of,
                                     [&wait](int rank) { return wait.is_for(rank); });
  if (!dead) return std::nullopt;
  return dead_sentence(setup.rank, "an operation in a graph", describe_rank(*dead, peer(*dead)));
}

}  // namespace nitinol::cuda
