#include "executor/cuda/left_graphs.h"

#include <chrono>
#include <vector>

#include "base/last_error.h"
#include "executor/call_words.h"
#include "executor/cuda/domain.h"
#include "executor/cuda/late_ranks.h"
#include "executor/cuda/late_watch.h"

namespace nitinol::cuda {

LeftGraphs::LeftGraphs(Domain& domain)
    : domain_(domain), waits_(domain.signals(), no_names_), watch_(start_watching([this] { look(); })) {}

LeftGraphs::~LeftGraphs() { stop_watching(watch_); }

void LeftGraphs::look() {
  if (domain_.signals().aborted != 0) return;
  const auto trouble = find_trouble();
  if (!trouble) return;
  domain_.signals().aborted = 1;  // before anything that needs memory
  const std::string sentence = behind_the_end_of_its_communicator(*trouble);
  set_last_error(sentence);
  if (domain_.setup().warned) domain_.setup().warned(sentence);
}

std::optional<std::string> LeftGraphs::find_trouble() {
  const auto late = find_late();
  return late ? late : find_dead();
}

std::optional<std::string> LeftGraphs::find_late() const {
  const std::vector<int> noted = ranks_noted_as_late(domain_);
  if (noted.empty()) return std::nullopt;
  const ExecutorSetup& setup = domain_.setup();
  const std::chrono::milliseconds limit((uint64_t{domain_.signals().patience} << 20) / 1'000'000);
  const int first = noted.front();
  return delay_sentence(setup.rank, "an operation in a graph makes", limit, Delay::kOver,
                        "nothing came from: " + describe_rank(first, setup.peers[static_cast<size_t>(first)]));
}

std::optional<std::string> LeftGraphs::find_dead() {
  const KernelWait wait = waits_.read();
  if (!wait.any()) return std::nullopt;
  const ExecutorSetup& setup = domain_.setup();
  const Peer& self = setup.peers[static_cast<size_t>(setup.rank)];
  const auto peer = [&setup](int rank) -> const Peer& { return setup.peers[static_cast<size_t>(rank)]; };
  const auto state_of = [&](int rank) {
    return peer(rank).host == self.host ? process_of(peer(rank), self) : ProcessState::kUnknown;
  };
  const auto dead = dead_peers_.look(domain_.ranks(), std::chrono::steady_clock::now(), state_of,
                                     [&wait](int rank) { return wait.is_for(rank); });
  if (!dead) return std::nullopt;
  return dead_sentence(setup.rank, "an operation in a graph", describe_rank(*dead, peer(*dead)));
}

}  // namespace nitinol::cuda
