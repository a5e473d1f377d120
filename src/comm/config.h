// A communicator's configuration: ncclConfig_t of any version, completed by a parent's or the defaults, overridden by
// the environment.
#pragma once

#include <string>

#include "nccl.h"

namespace nitinol {

inline constexpr int kMostCtas = 64;
inline constexpr int kMostCtasOfCluster = 8;

struct Config {
  bool blocking = true;
  int cga_cluster_size = -1;  ///< CTAs of a cluster, where kernels have them; 0: none; -1: free
  int min_ctas = 0;           ///< 0: free
  int max_ctas = 0;           ///< 0: free
  std::string net_name;
  bool split_share = false;
  bool shrink_share = false;
  int traffic_class = -1;
  std::string name;
  bool collnet = false;
  int cta_policy = NCCL_CTA_POLICY_DEFAULT;
  int nvls_ctas = 0;
  int channels_per_net_peer = 0;
  int nvlink_centric = 0;
};

/// The most CTAs of an operation on GPUs: as the user says, else by the policy; 0: free. No copy engines are used, so
/// NCCL_CTA_POLICY_ZERO has the effect of NCCL_CTA_POLICY_EFFICIENCY.
int most_ctas(const Config& config);

/// Reads the caller's struct as far as its size says; undefined fields keep what `base` has; then the environment wins.
/// Null means nothing is set. Throws Error(ncclInvalidArgument) for a struct that was not initialised and for values
/// out of range; words in NCCL_CTA_POLICY that it does not know are told in the log.
Config read_config(const ncclConfig_t* config, const Config& base);

/// The same for a communicator that is made of another one. `shares`: it may use the parent's resources; it has its own
/// all the same, but must be such as could: throws Error(ncclInvalidUsage) for another netName than the parent's, and
/// notes another trafficClass in the log.
Config read_child_config(const ncclConfig_t* config, const Config& parent, bool shares);

}  // namespace nitinol
