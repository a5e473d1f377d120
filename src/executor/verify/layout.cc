#include "executor/verify/layout.h"

namespace nitinol::verify {

Layout layout_of(const algorithm::Task& task, int rank) {
  const size_t n = task.ranks;
  const size_t stride = task.share.stride;
  const bool root = rank == task.root;
  const Layout::InPlace same{};
  switch (task.what) {
    case Collective::kAllReduce: return {1, 1, same};
    case Collective::kBroadcast: return {root ? 1u : 0u, 1, same};
    case Collective::kReduce: return root ? Layout{1, 1, same} : Layout{1, 0, std::nullopt};
    case Collective::kAllGather: return {1, n, Layout::InPlace{rank * stride, 0}};
    case Collective::kReduceScatter: return {n, 1, Layout::InPlace{0, rank * stride}};
    case Collective::kAllToAll: return {n, n, std::nullopt};
    case Collective::kGather:
      return root ? Layout{1, n, Layout::InPlace{rank * stride, 0}} : Layout{1, 0, std::nullopt};
    case Collective::kScatter:
      return root ? Layout{n, 1, Layout::InPlace{0, rank * stride}} : Layout{0, 1, std::nullopt};
  }
  return {};
}

Expected expected_in(const algorithm::Task& task, int rank, size_t block) {
  const size_t stride = task.share.stride;
  const auto element_of = [](int who) { return Value{Value::Shape::kOne, false, false, {{who, who + 1}}}; };
  const Value sum{Value::Shape::kRankOrder, true, true, {{0, task.ranks}}};
  switch (task.what) {
    case Collective::kAllReduce:
    case Collective::kReduce: return {sum, 0};
    case Collective::kReduceScatter: return {sum, rank * stride};
    case Collective::kBroadcast: return {element_of(task.root), 0};
    case Collective::kAllGather:
    case Collective::kGather: return {element_of(static_cast<int>(block)), 0};
    case Collective::kAllToAll: return {element_of(static_cast<int>(block)), rank * stride};
    case Collective::kScatter: return {element_of(task.root), rank * stride};
  }
  return {};
}

}  // namespace nitinol::verify
