#include "executor/simulate/estimate.h"

#include <algorithm>

#include "executor/simulate/ports.h"
#include "executor/simulate/simulator.h"

namespace nitinol::simulate {
namespace {

/// Elements of a channel's share that are simulated at most: some chunks, or rounds of one for each rank, and fewer of
/// them where each is many messages.
size_t most_elements(const Plan& plan, size_t chunk, int ranks) {
  constexpr size_t kMessages = 100'000;
  const auto n = static_cast<size_t>(ranks);
  const size_t rounds = std::clamp<size_t>(kMessages / (n * n), 2, 64);
  return rounds * chunk * (plan.algorithm == Algorithm::kTwoShot ? n : 1);
}

double time_of_bytes(double bytes, double bytes_per_us) { return microseconds(time_of(bytes, bytes_per_us)); }

double time_of_copy(double bytes, const TopologyModel& model) {
  return time_of_bytes(2 * bytes, model.memory_bytes_per_us);
}

/// What one of so many channels has of the machine.
TopologyModel part_of(TopologyModel model, size_t channels) {
  const auto parts = static_cast<double>(channels);
  model.local.bytes_per_us /= parts;
  model.network.bytes_per_us /= parts;
  model.memory_bytes_per_us /= parts;
  return model;
}

}  // namespace

double estimate(const CollectiveWork& work, int ranks, size_t grain, TopologyModel model) {
  if (work.count == 0) return 0;
  model.element_bytes = bytes_of(work.type);
  if (ranks == 1) {
    const bool copies = work.input != work.output;
    return model.start_us + (copies ? time_of_copy(static_cast<double>(work.count * model.element_bytes), model) : 0);
  }
  const size_t chunk = work.plan.chunk > 0 ? work.plan.chunk : work.count;
  const Share whole = share_of(work.count, chunk, 0, work.plan.channels, grain);
  const size_t elements = whole.end - whole.begin;
  const TopologyModel part = part_of(model, (work.count + elements - 1) / elements);
  const auto time_of_first = [&](size_t count) {
    Share share = whole;
    share.end = share.begin + count;
    const algorithm::Task task{work.what, ranks, work.root, share};
    return simulate(algorithm::record(work.plan.algorithm, task), part);
  };
  const size_t most = most_elements(work.plan, chunk, ranks);
  if (elements <= most) return time_of_first(elements);
  const double half = time_of_first(most / 2);
  const double all = time_of_first(most);
  return all + (all - half) * static_cast<double>(elements - most) / static_cast<double>(most - most / 2);
}

double estimate(std::span<const MessageWork> messages, int rank, const TopologyModel& model) {
  if (messages.empty()) return 0;
  double bytes[2] = {0, 0};  // by direction
  double to_itself = 0;
  for (const MessageWork& message : messages) {
    const auto size = static_cast<double>(message.bytes);
    if (message.peer != rank) {
      bytes[static_cast<int>(message.direction)] += size;
    } else if (message.direction == MessageWork::Direction::kSend) {
      to_itself += size;
    }
  }
  const double on_link = std::max(bytes[0], bytes[1]);
  const double passage =
      on_link > 0 ? 2 * model.step_us + model.local.latency_us + time_of_bytes(on_link, model.local.bytes_per_us) : 0;
  return model.start_us + std::max(passage, time_of_copy(to_itself, model));
}

}  // namespace nitinol::simulate
