#include "comm/config.h"

#include <gtest/gtest.h>

#include <climits>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/settings_testing.h"

namespace nitinol {
namespace {

ncclConfig_t initialised() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  return config;
}

TEST(Config, UndefinedFieldsKeepTheBase) {
  Config base;
  base.max_ctas = 7;
  base.name = "parent";
  const ncclConfig_t config = initialised();
  const Config read = read_config(&config, base);
  EXPECT_EQ(read.max_ctas, 7);
  EXPECT_EQ(read.name, "parent");
  EXPECT_TRUE(read.blocking);
  EXPECT_EQ(read_config(nullptr, base).max_ctas, 7);
}

TEST(Config, DefinedFieldsAreTaken) {
  ncclConfig_t config = initialised();
  config.blocking = 0;
  config.minCTAs = 2;
  config.maxCTAs = 64;
  config.netName = "socket";
  config.commName = "mine";
  config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  const Config read = read_config(&config, Config{});
  EXPECT_FALSE(read.blocking);
  EXPECT_EQ(read.min_ctas, 2);
  EXPECT_EQ(read.max_ctas, 64);
  EXPECT_EQ(read.net_name, "socket");
  EXPECT_EQ(read.name, "mine");
  EXPECT_EQ(read.cta_policy, NCCL_CTA_POLICY_ZERO);
}

TEST(Config, AChildThatSharesMustNameTheNetworkOfItsParent) {
  Config parent;
  parent.net_name = "Socket";
  ncclConfig_t config = initialised();
  EXPECT_EQ(read_child_config(&config, parent, true).net_name, "Socket");
  EXPECT_EQ(read_child_config(nullptr, parent, true).net_name, "Socket");
  config.netName = "SOCKET";
  config.trafficClass = 3;
  EXPECT_EQ(read_child_config(&config, parent, true).traffic_class, 3);
  config.netName = "IB";
  EXPECT_EQ(read_child_config(&config, parent, false).net_name, "IB");
  try {
    read_child_config(&config, parent, true);
    FAIL() << "another network is taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ncclInvalidUsage);
    EXPECT_NE(std::string(error.what()).find("netName is 'IB'"), std::string::npos) << error.what();
  }
}

// Programs built against older headers pass shorter structs; what lies behind is not theirs.
TEST(Config, EveryOlderSizeIsReadOnlyAsFarAsItReaches) {
  for (const size_t size : {24U, 40U, 48U, 72U, 80U}) {
    ncclConfig_t config = initialised();
    config.blocking = 0;
    config.maxCTAs = 5;
    config.shrinkShare = 1;
    config.nvlinkCentricSched = 99;
    config.size = size;
    if (size > offsetof(ncclConfig_t, nvlinkCentricSched)) config.nvlinkCentricSched = 1;
    const Config read = read_config(&config, Config{});
    EXPECT_FALSE(read.blocking);
    EXPECT_EQ(read.max_ctas, size > offsetof(ncclConfig_t, maxCTAs) ? 5 : 0) << size;
    EXPECT_EQ(read.shrink_share, size > offsetof(ncclConfig_t, shrinkShare)) << size;
    EXPECT_EQ(read.nvlink_centric, size > offsetof(ncclConfig_t, nvlinkCentricSched) ? 1 : 0) << size;
  }
}

// Version 2.14's struct ends with 4 bytes of padding where cgaClusterSize came to lie, those of 2.18 to 2.25 where
// trafficClass did.
TEST(Config, PaddingOfOlderVersionsIsNotTakenForAField) {
  ncclConfig_t config = initialised();
  config.size = 24;
  config.version = NCCL_VERSION(2, 14, 3);
  config.cgaClusterSize = 0x77777777;
  EXPECT_EQ(read_config(&config, Config{}).cga_cluster_size, Config{}.cga_cluster_size);
  config = initialised();
  config.size = 48;
  config.version = NCCL_VERSION(2, 21, 5);
  config.trafficClass = 0x77777777;
  EXPECT_EQ(read_config(&config, Config{}).traffic_class, Config{}.traffic_class);
  config.version = NCCL_VERSION(2, 26, 2);
  config.trafficClass = 1000;
  EXPECT_EQ(read_config(&config, Config{}).traffic_class, 1000);
}

TEST(Config, ALargerStructOfALaterVersionIsAccepted) {
  struct Later {
    ncclConfig_t known;
    int unknown[4];
  } later{initialised(), {1, 2, 3, 4}};
  later.known.size = sizeof(later);
  later.known.maxCTAs = 9;
  EXPECT_EQ(read_config(&later.known, Config{}).max_ctas, 9);
}

TEST(Config, TheEnvironmentWinsOverFieldsAndParents) {
  const ScopedVariable blocking("NCCL_COMM_BLOCKING", "0");
  const ScopedVariable least("NCCL_MIN_CTAS", "2");
  const ScopedVariable most("NCCL_MAX_CTAS", "3");
  const ScopedVariable cluster("NCCL_CGA_CLUSTER_SIZE", "0");
  ncclConfig_t config = initialised();
  config.blocking = 1;
  config.maxCTAs = 9;
  config.cgaClusterSize = 2;
  Config base;
  base.min_ctas = 7;
  for (const Config& read : {read_config(&config, base), read_config(nullptr, base)}) {
    EXPECT_FALSE(read.blocking);
    EXPECT_EQ(read.min_ctas, 2);
    EXPECT_EQ(read.max_ctas, 3);
    EXPECT_EQ(read.cga_cluster_size, 0);
  }
}

TEST(Config, OlderNamesOfLimitsAreCombinedWithTheOthers) {
  ncclConfig_t config = initialised();
  config.minCTAs = 4;
  config.maxCTAs = 32;
  const auto limits = [&] {
    settings().forget();
    const Config read = read_config(&config, Config{});
    return std::pair(read.min_ctas, read.max_ctas);
  };
  const ScopedVariable fewest_rings("NCCL_MIN_NRINGS", "6");
  const ScopedVariable most_rings("NCCL_MAX_NRINGS", "12");
  EXPECT_EQ(limits(), std::pair(6, 12));
  const ScopedVariable fewest("NCCL_MIN_NCHANNELS", "2");
  const ScopedVariable most("NCCL_MAX_NCHANNELS", "128");
  EXPECT_EQ(limits(), std::pair(4, 32)) << "the lower one counts, and the higher one";
  const ScopedVariable fewest_ctas("NCCL_MIN_CTAS", "1");
  const ScopedVariable most_ctas("NCCL_MAX_CTAS", "64");
  EXPECT_EQ(limits(), std::pair(2, 64));
  config = initialised();
  const ScopedVariable contradicted("NCCL_MIN_NCHANNELS", "100");
  const ScopedVariable by("NCCL_MAX_NCHANNELS", "24");
  EXPECT_EQ(limits(), std::pair(24, 24));
}

TEST(Config, WhereTheEnvironmentContradictsTheProgramTheMostCtasCount) {
  ncclConfig_t config = initialised();
  config.minCTAs = 8;
  {
    const ScopedVariable most("NCCL_MAX_CTAS", "4");
    const Config read = read_config(&config, Config{});
    EXPECT_EQ(read.min_ctas, 4);
    EXPECT_EQ(read.max_ctas, 4);
    EXPECT_EQ(read_config(&config, read).min_ctas, 4);  // a child's
  }
  config.maxCTAs = 16;
  const ScopedVariable least("NCCL_MIN_CTAS", "32");
  EXPECT_EQ(read_config(&config, Config{}).min_ctas, 16);
}

TEST(Config, WhatAChildSaysOfItsCtasCountsMoreThanWhatItInherits) {
  Config parent;
  parent.min_ctas = 4;
  parent.max_ctas = 8;
  ncclConfig_t config = initialised();
  config.maxCTAs = 2;
  Config child = read_child_config(&config, parent, false);
  EXPECT_EQ(std::pair(child.min_ctas, child.max_ctas), std::pair(2, 2));
  config = initialised();
  config.minCTAs = 16;
  child = read_child_config(&config, parent, false);
  EXPECT_EQ(std::pair(child.min_ctas, child.max_ctas), std::pair(16, 16));
  config.maxCTAs = 12;
  EXPECT_THROW(read_child_config(&config, parent, false), Error);
}

TEST(Config, TheSizeOfClustersIsFreeUnlessSomebodySaysOtherwise) {
  ncclConfig_t config = initialised();
  EXPECT_LT(read_config(&config, Config{}).cga_cluster_size, 0);
  config.cgaClusterSize = 8;
  EXPECT_EQ(read_config(&config, Config{}).cga_cluster_size, 8);
}

TEST(Config, AThriftyPolicyLimitsCtasUnlessTheUserDoes) {
  Config config;
  EXPECT_EQ(most_ctas(config), 0);
  for (const int policy : {NCCL_CTA_POLICY_EFFICIENCY, NCCL_CTA_POLICY_ZERO}) {
    config = Config{};
    config.cta_policy = policy;
    EXPECT_EQ(most_ctas(config), 32);
    config.min_ctas = 40;
    EXPECT_EQ(most_ctas(config), 40);
    config.max_ctas = 50;
    EXPECT_EQ(most_ctas(config), 50);
  }
}

TEST(Config, MoreThanThereCanBeCountsAsTheMost) {
  const ScopedVariable most("NCCL_MAX_CTAS", "65");
  const ScopedVariable cluster("NCCL_CGA_CLUSTER_SIZE", "9");
  const Config config = read_config(nullptr, Config{});
  EXPECT_EQ(config.max_ctas, 64);
  EXPECT_EQ(config.cga_cluster_size, 8);
}

TEST(Config, ThePolicyOfTheEnvironmentIsWordsOrANumber) {
  const auto policy = [](const char* text) {
    const ScopedVariable set("NCCL_CTA_POLICY", text);
    ncclConfig_t config = initialised();
    config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    return read_config(&config, Config{}).cta_policy;
  };
  EXPECT_EQ(policy("DEFAULT"), NCCL_CTA_POLICY_DEFAULT);
  EXPECT_EQ(policy("EFFICIENCY"), NCCL_CTA_POLICY_EFFICIENCY);
  EXPECT_EQ(policy("ZERO|EFFICIENCY"), NCCL_CTA_POLICY_ZERO | NCCL_CTA_POLICY_EFFICIENCY);
  EXPECT_EQ(policy("zero|Efficiency"), NCCL_CTA_POLICY_ZERO | NCCL_CTA_POLICY_EFFICIENCY);
  EXPECT_EQ(policy("1"), NCCL_CTA_POLICY_EFFICIENCY);
  for (const char* const wrong : {"EFFICIENCY|", "cheap", "3"}) {
    EXPECT_EQ(policy(wrong), NCCL_CTA_POLICY_ZERO) << wrong << ", as the program says";
  }
}

TEST(Config, AStructThatWasNotInitialisedIsRefused) {
  ncclConfig_t config;
  std::memset(static_cast<void*>(&config), 0, sizeof(config));
  EXPECT_THROW(read_config(&config, Config{}), Error);
  config = initialised();
  config.size = 16;
  EXPECT_THROW(read_config(&config, Config{}), Error);
}

TEST(Config, MoreCtasThanThereMayBeAreAsManyAsThereMayBe) {
  ncclConfig_t config = initialised();
  config.cgaClusterSize = 9;
  config.minCTAs = 70;
  config.maxCTAs = 65;
  config.nvlsCTAs = INT_MAX;
  const Config read = read_config(&config, Config{});
  EXPECT_EQ(read.cga_cluster_size, 8);
  EXPECT_EQ(read.min_ctas, 64);
  EXPECT_EQ(read.max_ctas, 64);
  EXPECT_EQ(read.nvls_ctas, 64);
}

TEST(Config, ValuesOutOfRangeAreRefused) {
  const auto refused = [](auto change) {
    ncclConfig_t config = initialised();
    change(config);
    EXPECT_THROW(read_config(&config, Config{}), Error);
  };
  refused([](ncclConfig_t& c) { c.blocking = 2; });
  refused([](ncclConfig_t& c) { c.cgaClusterSize = -1; });
  refused([](ncclConfig_t& c) { c.minCTAs = 0; });
  refused([](ncclConfig_t& c) { c.maxCTAs = -3; });
  refused([](ncclConfig_t& c) { c.splitShare = -1; });
  refused([](ncclConfig_t& c) {
    c.minCTAs = 8;
    c.maxCTAs = 4;
  });
}

}  // namespace
}  // namespace nitinol
