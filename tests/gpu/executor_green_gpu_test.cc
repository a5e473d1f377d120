// In streams of green contexts few CTAs of a launch are resident at once: none of them waits for one that is not.
#include <gtest/gtest.h>

#include <map>

#include "cluster.h"
#include "messages.h"

namespace nitinol::gpu_testing {

namespace {

/// Of each rank: at most 16 small CTAs have room there.
constexpr Settings kFew{.multiprocessors = 8};

class InGreenContexts : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, InGreenContexts, testing::Values(2, 3, 4), testing::PrintToStringParamName());

TEST_P(InGreenContexts, PartsWithCtasOfTheirOwnMeet) {
  REQUIRE_GPU();
  const int n = GetParam();
  Cluster cluster(n, kFew);
  const Limits limits = cluster.ranks().limits();
  int tried = 0;
  for_each_algorithm(n, limits, [&](CollectiveWork work) {
    if (!work.plan.apart || testing::Test::HasFailure()) return;
    ++tried;
    work.type = reduces(work.what) ? DataType::kFloat32 : DataType::kUint8;
    work.plan.channels = limits.apart(work.what).channels;
    work.plan.chunk = 256;
    work.count = static_cast<size_t>(work.plan.channels) * 40 * 256;  // more chunks for each than there are slots
    const Case test{.work = work};
    ASSERT_EQ(cluster.run(test), "") << describe(test, n);
  });
  EXPECT_GT(tried, 0);
}

TEST_P(InGreenContexts, MessagesOfManyChannelsArrive) {
  REQUIRE_GPU();
  Cluster cluster(GetParam(), kFew);
  for (const size_t base : {400UL, 1'000'001UL}) {
    std::map<char*, Bytes> expected;
    const std::vector<Launch> launches = message_launches(cluster, 1, base, expected);
    cluster.ranks().prepare(launches);
    cluster.ranks().launch(launches);
    cluster.ranks().synchronize();
    expect_arrived(expected);
  }
}

}  // namespace

}  // namespace nitinol::gpu_testing
