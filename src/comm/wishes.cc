#include "comm/wishes.h"

#include <algorithm>

#include "base/error.h"
#include "base/settings.h"

namespace nitinol {
namespace {

constexpr uint32_t kAllAlgorithms = (1U << kAlgorithms) - 1;
constexpr uint32_t kAllProtocols = (1U << kProtocols) - 1;

/// 0 is free, and no limit.
int32_t smaller_limit(int32_t one, int32_t other) {
  if (one == 0 || other == 0) return std::max(one, other);
  return std::min(one, other);
}

}  // namespace

Wishes own_wishes(const Config& config) {
  const Settings& s = settings();
  Rules rules = Rules::any();
  if (const auto text = s.text_if_set(Setting::kAlgo)) restrict_algorithms(*text, rules);
  if (const auto text = s.text_if_set(Setting::kProto)) restrict_protocols(*text, rules);
  Wishes wishes;
  for (size_t what = 0; what < kCollectives; ++what) {  // `^` in a text sets bits of none, too
    wishes.algorithms[what] = rules.algorithms[what] & kAllAlgorithms;
    wishes.protocols[what] = rules.protocols[what] & kAllProtocols;
    if (rules.algorithms_named[what]) wishes.named |= 1U << what;
  }
  wishes.reproducible = s.flag(Setting::kReproducible) ? 1 : 0;
  wishes.min_ctas = config.min_ctas;
  wishes.max_ctas = most_ctas(config);
  wishes.cluster_ctas = config.cga_cluster_size;
  wishes.buffer_bytes = static_cast<uint64_t>(s.integer_if_set(Setting::kBuffSize).value_or(0));
  return wishes;
}

Wishes agreed_wishes(std::span<const Wishes> all) {
  Wishes agreed = all.front();
  for (const Wishes& one : all) {
    agreed.reproducible = std::max(agreed.reproducible, one.reproducible);
    agreed.min_ctas = std::max(agreed.min_ctas, one.min_ctas);
    agreed.max_ctas = smaller_limit(agreed.max_ctas, one.max_ctas);
  }
  agreed.cluster_ctas = std::clamp(agreed.cluster_ctas, -1, kMostCtasOfCluster);
  agreed.max_ctas = std::clamp(agreed.max_ctas, 0, kMostCtas);
  agreed.min_ctas = std::clamp(agreed.min_ctas, 0, agreed.max_ctas > 0 ? agreed.max_ctas : kMostCtas);
  return agreed;
}

std::string told_differences(const Wishes& mine, const Wishes& agreed) {
  std::string told;
  const auto tell_if = [&](bool differs, const std::string& what) {
    if (differs) told += (told.empty() ? "" : ", ") + what;
  };
  tell_if(mine.algorithms != agreed.algorithms || mine.named != agreed.named, "NCCL_ALGO as on rank 0");
  tell_if(mine.protocols != agreed.protocols, "NCCL_PROTO as on rank 0");
  tell_if(mine.buffer_bytes != agreed.buffer_bytes, "NCCL_BUFFSIZE as on rank 0");
  tell_if(mine.cluster_ctas != agreed.cluster_ctas, "NCCL_CGA_CLUSTER_SIZE as on rank 0");
  tell_if(mine.reproducible != agreed.reproducible, "NITINOL_REPRODUCIBLE=1");
  tell_if(mine.min_ctas != agreed.min_ctas, formatted("at least {} CTAs", agreed.min_ctas));
  tell_if(mine.max_ctas != agreed.max_ctas, formatted("at most {} CTAs", agreed.max_ctas));
  return told;
}

Rules rules_of(const Wishes& wishes) {
  Rules rules;
  rules.algorithms = wishes.algorithms;
  rules.protocols = wishes.protocols;
  for (size_t what = 0; what < kCollectives; ++what) rules.algorithms_named[what] = (wishes.named >> what & 1) != 0;
  rules.reproducible = wishes.reproducible != 0;
  rules.min_channels = wishes.min_ctas;
  rules.max_channels = wishes.max_ctas;
  return rules;
}

}  // namespace nitinol
