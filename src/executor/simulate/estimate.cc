#include "executor/simulate/estimate.h"

#include <algorithm>
#include <vector>

#include "executor/simulate/simulator.h"

namespace nitinol::simulate {
namespace {

/// Not in whole picoseconds as the simulator's: sizes may be whatever the API admits.
double time_of_bytes(double bytes, double bytes_per_us) { return bytes_per_us > 0 ? bytes / bytes_per_us : 0; }

/// Whether each rank sends to each other one in every round.
bool is_from_all_to_all(const CollectiveWork& work) {
  return work.plan.algorithm == Algorithm::kTwoShot || (!rooted(work.what) && work.plan.algorithm != Algorithm::kTree);
}

/// Whether a round is a chunk for each rank, not one chunk.
bool has_rounds_of_blocks(const CollectiveWork& work) {
  return work.plan.algorithm == Algorithm::kTwoShot ||
         (work.what == Collective::kAllReduce && work.plan.algorithm == Algorithm::kRing);
}

/// One collective on some of its channels.
class Sample {
 public:
  Sample(const CollectiveWork& work, int ranks, size_t grain, const TopologyModel& model)
      : work_(work),
        ranks_(ranks),
        chunk_(work.plan.chunk > 0 ? work.plan.chunk : work.count),
        share_(share_of(work.count, chunk_, 0, work.plan.channels, grain)),
        model_(model) {
    const size_t used = (work.count + elements() - 1) / elements();
    channels_ = std::min<size_t>(used, kMostChannels);
    model_.local.bytes_per_us *= static_cast<double>(channels_) / static_cast<double>(used);
    model_.memory_bytes_per_us /= static_cast<double>(used);  // of each channel
  }

  /// Elements of a channel.
  size_t elements() const { return share_.end - share_.begin; }

  /// So many of them are simulated at most: an even number of rounds, fewer where each is many messages, but more than
  /// any algorithm takes for few.
  size_t most() const {
    constexpr size_t kMessages = 50'000;
    const auto n = static_cast<size_t>(ranks_);
    const size_t messages = is_from_all_to_all(work_) ? n * n : n;
    const size_t pairs = std::clamp<size_t>(kMessages / channels_ / messages / 2, 4, 64);
    return 2 * pairs * chunk_ * (has_rounds_of_blocks(work_) ? n : 1);
  }

  /// Of so many elements of each channel.
  double time(size_t count) const {
    std::vector<algorithm::Program> programs;
    for (size_t channel = 0; channel < channels_; ++channel) {
      Share share = share_;
      share.end = share.begin + count;
      share.turn = algorithm::turn_of(static_cast<int>(channel), ranks_);
      programs.push_back(
          algorithm::record(work_.plan.algorithm, {work_.what, ranks_, work_.root, share, work_.any_order()}));
    }
    return simulate(programs, model_);
  }

 private:
  /// While one waits others have the ports.
  static constexpr size_t kMostChannels = 4;

  const CollectiveWork& work_;
  int ranks_;
  size_t chunk_;
  Share share_;
  TopologyModel model_;
  size_t channels_ = 1;
};

}  // namespace

double estimate(const CollectiveWork& work, int ranks, size_t grain, TopologyModel model) {
  if (work.count == 0) return 0;
  model.element_bytes = bytes_of(work.type);
  if (ranks == 1) {
    const double bytes = static_cast<double>(work.count) * static_cast<double>(model.element_bytes);
    return model.start_us + (work.input != work.output ? time_of_bytes(bytes, model.copy_bytes_per_us) : 0);
  }
  const Sample sample(work, ranks, grain, model);
  const size_t elements = sample.elements();
  const size_t most = sample.most();
  if (elements <= most) return sample.time(elements);
  const double all = sample.time(most);
  const double half = sample.time(most / 2);
  return all + (all - half) * static_cast<double>(elements - most) / static_cast<double>(most / 2);
}

double estimate(std::span<const MessageWork> messages, int rank, const TopologyModel& model) {
  if (messages.empty()) return 0;
  double bytes[2] = {0, 0};  // by direction
  double to_itself = 0;
  for (const MessageWork& message : messages) {
    const auto size = static_cast<double>(message.bytes);
    if (message.peer != rank) {
      bytes[static_cast<int>(message.direction)] += size;
    } else if (message.is_send()) {
      to_itself += size;
    }
  }
  const double on_link = std::max(bytes[0], bytes[1]);
  const double passage =
      on_link > 0 ? 2 * model.step_us + model.local.latency_us + time_of_bytes(on_link, model.local.bytes_per_us) : 0;
  return model.start_us + std::max(passage, time_of_bytes(to_itself, model.copy_bytes_per_us));
}

}  // namespace nitinol::simulate
