#include "comm/config.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/split.h"
#include "base/words.h"
#include "model/limits.h"

namespace nitinol {
namespace {

constexpr unsigned kMagic = 0xcafebeef;
constexpr size_t kSizeBeforeCgaClusterSize = 24;  // version 2.14: up to `blocking`
constexpr size_t kSizeBeforeCommName = 48;        // versions 2.18 to 2.26
constexpr size_t kSmallestConfig = kSizeBeforeCgaClusterSize;

/// A copy in today's layout: what the caller's struct does not reach is undefined.
ncclConfig_t widen(const ncclConfig_t& config) {
  if (config.magic != kMagic) {
    fail(ncclInvalidArgument, "the ncclConfig_t was not initialised with NCCL_CONFIG_INITIALIZER");
  }
  if (config.size < kSmallestConfig) {
    fail(ncclInvalidArgument, "the ncclConfig_t says its size is {}, less than any version has", config.size);
  }
  ncclConfig_t whole = NCCL_CONFIG_INITIALIZER;
  std::memcpy(static_cast<void*>(&whole), &config, std::min(config.size, sizeof(whole)));
  // In older versions two of the fields were padding, which holds anything.
  if (config.size <= kSizeBeforeCgaClusterSize && config.version < NCCL_VERSION(2, 17, 0)) {
    whole.cgaClusterSize = NCCL_CONFIG_UNDEF_INT;
  }
  if (config.size <= kSizeBeforeCommName && config.version < NCCL_VERSION(2, 26, 0)) {
    whole.trafficClass = NCCL_CONFIG_UNDEF_INT;
  }
  return whole;
}

void take(int value, const char* field, int low, int high, auto& into) {
  if (value == NCCL_CONFIG_UNDEF_INT) return;
  if (value < low || value > high) {
    fail(ncclInvalidArgument, "ncclConfig_t: {} is {}; it must be {} to {}", field, value, low, high);
  }
  into = static_cast<std::remove_reference_t<decltype(into)>>(value);
}

/// As NCCL does, too much is taken for as much as there may be.
void take_at_most(int value, const char* field, int low, int high, int& into) {
  if (value > high) log_note("ncclConfig_t: {} is {}; {} are used, the most there may be", field, value, high);
  take(std::min(value, high), field, low, high, into);
}

void take(const char* value, std::string& into) {
  if (value != nullptr) into = value;
}

void take_fields(const ncclConfig_t& c, Config& config) {
  take(c.blocking, "blocking", 0, 1, config.blocking);
  take_at_most(c.cgaClusterSize, "cgaClusterSize", 0, kMostCtasOfCluster, config.cga_cluster_size);
  take_at_most(c.minCTAs, "minCTAs", 1, kMostCtas, config.min_ctas);
  take_at_most(c.maxCTAs, "maxCTAs", 1, kMostCtas, config.max_ctas);
  take(c.netName, config.net_name);
  take(c.splitShare, "splitShare", 0, 1, config.split_share);
  take(c.trafficClass, "trafficClass", 0, INT_MAX, config.traffic_class);
  take(c.commName, config.name);
  take(c.collnetEnable, "collnetEnable", 0, 1, config.collnet);
  take(c.CTAPolicy, "CTAPolicy", 0, NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO, config.cta_policy);
  take(c.shrinkShare, "shrinkShare", 0, 1, config.shrink_share);
  take_at_most(c.nvlsCTAs, "nvlsCTAs", 1, kMostCtas, config.nvls_ctas);
  take_at_most(c.nChannelsPerNetPeer, "nChannelsPerNetPeer", 1, 1024, config.channels_per_net_peer);
  take(c.nvlinkCentricSched, "nvlinkCentricSched", 0, 1, config.nvlink_centric);
}

/// Fields that are taken and do nothing yet, as settings of the environment are told that are so.
void tell_of_no_effect(const ncclConfig_t& given) {
  const auto is_set = [](int value) { return value != NCCL_CONFIG_UNDEF_INT; };
  const std::pair<const char*, bool> fields[] = {{"netName", given.netName != nullptr},
                                                 {"trafficClass", is_set(given.trafficClass)},
                                                 {"collnetEnable", is_set(given.collnetEnable)},
                                                 {"nvlsCTAs", is_set(given.nvlsCTAs)},
                                                 {"nChannelsPerNetPeer", is_set(given.nChannelsPerNetPeer)},
                                                 {"nvlinkCentricSched", is_set(given.nvlinkCentricSched)}};
  for (const auto& [name, set] : fields) {
    if (set) log_info(Subsystem::kInit, "ncclConfig_t: {} is set but has no effect in this version of Nitinol", name);
  }
}

std::optional<int> flag_of_policy(std::string_view word) {
  struct Word {
    std::string_view name;
    std::string_view number;  ///< the older form
    int flag;
  };
  static constexpr Word kWords[] = {{"DEFAULT", "0", NCCL_CTA_POLICY_DEFAULT},
                                    {"EFFICIENCY", "1", NCCL_CTA_POLICY_EFFICIENCY},
                                    {"ZERO", "2", NCCL_CTA_POLICY_ZERO}};
  for (const Word& known : kWords) {
    if (same_ignoring_case(word, known.name) || word == known.number) return known.flag;
  }
  return std::nullopt;
}

/// As the first of them says that is set.
std::optional<int> number_of_ctas(std::initializer_list<Setting> names) {
  for (const Setting name : names) {
    if (const auto ctas = settings().integer_if_set(name)) return static_cast<int>(std::min<int64_t>(*ctas, kMostCtas));
  }
  return std::nullopt;
}

/// Of CTAs, or channels, which each has one.
void take_ctas_of_environment(Config& config) {
  config.min_ctas = number_of_ctas({Setting::kMinCtas}).value_or(config.min_ctas);
  config.max_ctas = number_of_ctas({Setting::kMaxCtas}).value_or(config.max_ctas);
  const int fewest = number_of_ctas({Setting::kMinNchannels, Setting::kMinNrings}).value_or(0);
  config.min_ctas = std::max(config.min_ctas, fewest);
  const int most = number_of_ctas({Setting::kMaxNchannels, Setting::kMaxNrings}).value_or(0);
  if (most > 0) config.max_ctas = config.max_ctas > 0 ? std::min(config.max_ctas, most) : most;
}

bool does_environment_limit_ctas() {
  return number_of_ctas({Setting::kMinCtas, Setting::kMinNchannels, Setting::kMinNrings, Setting::kMaxCtas,
                         Setting::kMaxNchannels, Setting::kMaxNrings})
      .has_value();
}

/// Nothing, with a note in the log, if that is no policy.
std::optional<int> parse_policy(std::string_view text) {
  int flags = 0;
  for (const std::string_view word : split(text, '|')) {
    const std::optional<int> flag = flag_of_policy(word);
    if (!flag) {
      log_note(
          "NCCL_CTA_POLICY={}: '{}' is none of DEFAULT, EFFICIENCY and ZERO, which may be joined by |; it does not "
          "count",
          text, word);
      return std::nullopt;
    }
    flags |= *flag;
  }
  return flags;
}

void take_environment(Config& config) {
  const Settings& s = settings();
  if (const auto blocking = s.integer_if_set(Setting::kCommBlocking)) config.blocking = *blocking != 0;
  if (const auto ctas = s.integer_if_set(Setting::kCgaClusterSize))
    config.cga_cluster_size = static_cast<int>(std::min<int64_t>(*ctas, kMostCtasOfCluster));
  take_ctas_of_environment(config);
  if (const auto policy = s.text_if_set(Setting::kCtaPolicy))
    config.cta_policy = parse_policy(*policy).value_or(config.cta_policy);
}

/// What a child's config says counts more than what it inherits. (Others inherit no limits.)
void let_inherited_ctas_follow(const ncclConfig_t& given, Config& config) {
  if (config.max_ctas == 0 || config.min_ctas <= config.max_ctas) return;
  if (given.minCTAs == NCCL_CONFIG_UNDEF_INT) config.min_ctas = config.max_ctas;
  if (given.maxCTAs == NCCL_CONFIG_UNDEF_INT) config.max_ctas = config.min_ctas;
}

/// More CTAs at least than at most: a program that says so is wrong, but it cannot know what the environment says.
void settle_contradiction(Config& config) {
  if (config.max_ctas == 0 || config.min_ctas <= config.max_ctas) return;
  if (!does_environment_limit_ctas()) {
    fail(ncclInvalidArgument, "ncclConfig_t: minCTAs ({}) is greater than maxCTAs ({})", config.min_ctas,
         config.max_ctas);
  }
  log_note(
      "fewest CTAs (NCCL_MIN_CTAS, NCCL_MIN_NCHANNELS or `minCTAs`) are {}, most (NCCL_MAX_CTAS, "
      "NCCL_MAX_NCHANNELS or `maxCTAs`) {}: {} are used",
      config.min_ctas, config.max_ctas, config.max_ctas);
  config.min_ctas = config.max_ctas;
}

}  // namespace

int most_ctas(const Config& config) {
  if (config.max_ctas > 0 || config.cta_policy == NCCL_CTA_POLICY_DEFAULT) return config.max_ctas;
  // With so many large operations between 4 H200 run at 60 (reduce) to 90 % of their speed.
  return std::max(kCtasOfNccl, config.min_ctas);
}

Config read_config(const ncclConfig_t* config, const Config& base) {
  Config result = base;
  if (config != nullptr) {
    const ncclConfig_t given = widen(*config);
    take_fields(given, result);
    tell_of_no_effect(given);
    let_inherited_ctas_follow(given, result);
  }
  take_environment(result);
  settle_contradiction(result);
  return result;
}

Config read_child_config(const ncclConfig_t* config, const Config& parent, bool shares) {
  Config child = read_config(config, parent);
  if (!shares) return child;
  if (!same_ignoring_case(child.net_name, parent.net_name)) {
    fail(ncclInvalidUsage,
         "ncclConfig_t: netName is '{}', but the communicator shares the resources of its parent, where it is '{}'",
         child.net_name, parent.net_name);
  }
  if (child.traffic_class != parent.traffic_class) {
    log_info(Subsystem::kInit, "a communicator that shares its parent's resources has trafficClass {}, the parent {}",
             child.traffic_class, parent.traffic_class);
  }
  return child;
}

}  // namespace nitinol
