// Meeting points of threads and processes, and the list of cases.
#include "session.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace nitinol::perf {
namespace {

std::vector<ncclUniqueId> share_ids(Channel& channel, const std::vector<Library>& libraries) {
  std::string text;
  if (channel.process() == 0) {
    for (const Library& library : libraries) {
      ncclUniqueId id;
      library.check(library.nccl().get_unique_id(&id), "ncclGetUniqueId");
      text.append(id.internal, sizeof id.internal);
    }
  }
  const std::string all = channel.all_gather(text).at(0);
  std::vector<ncclUniqueId> ids(libraries.size());
  if (all.size() != ids.size() * sizeof(ncclUniqueId))
    throw PerfError("processes measure different numbers of libraries");
  std::memcpy(ids.data(), all.data(), all.size());
  return ids;
}

std::vector<int> roots_of(const Options& options, const OperationTraits& traits, int ranks) {
  if (!traits.rooted) return {-1};
  if (!options.roots.empty()) return options.roots;
  std::vector<int> roots;
  for (int rank = 0; rank < ranks; ++rank) roots.push_back(rank);
  return roots;
}

// Small sizes may round to the same count: such a size is measured once.
void add_sizes(const Options& options, const Case& model, int ranks, std::vector<Case>& cases) {
  const OperationTraits& traits = traits_of(model.operation);
  size_t last = ~size_t{0};
  for (const size_t bytes : sizes_of(options)) {
    Case next = model;
    next.count = count_for_bytes(model.operation, bytes, model.type->size, ranks);
    if (next.count == last) continue;
    last = next.count;
    next.in_place = false;
    if (options.places != Places::kIn || !traits.in_place) cases.push_back(next);
    next.in_place = true;
    if (options.places != Places::kOut && traits.in_place) cases.push_back(next);
  }
}

}  // namespace

std::vector<Case> cases_of(const Options& options, int ranks) {
  std::vector<Case> cases;
  for (const Operation operation : options.operations) {
    const OperationTraits& traits = traits_of(operation);
    const std::vector<Reduction> none{Reduction::kNone};
    if (operation == Operation::kHypercube && !std::has_single_bit(static_cast<unsigned>(ranks))) {
      throw PerfError("hypercube needs a power of two of ranks, not " + std::to_string(ranks));
    }
    for (const ElementType* type : options.types) {
      for (const Reduction reduction : traits.reduces ? options.reductions : none) {
        for (const int root : roots_of(options, traits, ranks)) {
          if (root >= ranks)
            throw PerfError("root " + std::to_string(root) + " is not among " + std::to_string(ranks) + " ranks");
          add_sizes(options, {operation, type, reduction, root, 0, false}, ranks, cases);
        }
      }
    }
  }
  return cases;
}

Session::Session(const Options& options, const Team& team, Channel channel, std::vector<Library> libraries)
    : options_(options),
      team_(team),
      channel_(std::move(channel)),
      libraries_(std::move(libraries)),
      ids_(share_ids(channel_, libraries_)),
      watchdog_(options.timeout, team.process),
      barrier_(team.threads),
      slots_(static_cast<size_t>(team.threads)) {}

std::vector<double> Session::merge(int thread, std::vector<double> mine, bool take_max) {
  slots_[static_cast<size_t>(thread)] = std::move(mine);
  meet();
  if (thread == 0) {
    std::vector<double> total = slots_[0];
    for (size_t other = 1; other < slots_.size(); ++other) {
      for (size_t i = 0; i < total.size(); ++i) {
        const double value = slots_[other][i];
        total[i] = take_max ? std::max(total[i], value) : total[i] + value;
      }
    }
    merged_ = take_max ? channel_.max(total) : channel_.sum(total);
  }
  meet();
  return merged_;  // thread 0 writes it again only after everybody has come back
}

}  // namespace nitinol::perf
