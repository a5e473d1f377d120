#include "comm/estimate.h"

#include <algorithm>
#include <compare>
#include <map>
#include <vector>

#include "comm/communicator.h"

namespace nitinol {
namespace {

/// What the time of a collective depends on, of one communicator.
struct Kind {
  Collective what;
  size_t count;
  DataType type;
  int root;
  bool any_order;
  bool in_place;
  Plan plan;

  auto operator<=>(const Kind&) const = default;
};

Kind kind_of(const CollectiveWork& work) {
  return {.what = work.what,
          .count = work.count,
          .type = work.type,
          .root = work.root,
          .any_order = work.any_order(),
          .in_place = work.input == work.output,
          .plan = work.plan};
}

/// The times of one communicator's collectives, which are the same on all its ranks.
using Times = std::map<Kind, double>;

double time_of(Batch& batch, Times& times) {
  Communicator& communicator = *batch.communicator;
  batch.check_messages_to_self();
  communicator.plan_to_estimate(batch.launch);
  double us = 0;
  for (const CollectiveWork& work : batch.launch.collectives) {
    const auto [known, is_new] = times.try_emplace(kind_of(work));
    if (is_new) known->second = communicator.estimate(work);
    us += known->second;
  }
  return us + communicator.estimate(batch.launch.messages);
}

}  // namespace

double estimate(std::span<const Task> tasks) {
  std::vector<Batch> batches = batches_of(tasks);
  std::map<int, double> by_device;
  for (auto begin = batches.begin(); begin != batches.end();) {
    const KeyId& identity = begin->communicator->identity();
    Times times;
    std::map<int, double> of_this;  // by device: its ranks run at the same time, of one GPU, too
    for (; begin != batches.end() && begin->communicator->identity() == identity; ++begin) {
      double& most = of_this[begin->communicator->device()];
      most = std::max(most, time_of(*begin, times));
    }
    for (const auto& [device, us] : of_this) by_device[device] += us;
  }
  double most = 0;
  for (const auto& [device, us] : by_device) most = std::max(most, us);
  return most;
}

}  // namespace nitinol
