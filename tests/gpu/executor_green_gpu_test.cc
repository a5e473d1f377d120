// In streams of green contexts few CTAs of a launch are resident at once: none of them waits for one that is not.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "cluster.h"
#include "messages.h"

namespace nitinol::gpu_testing {

namespace {

/// Room for 16 small CTAs, or a few more.
constexpr unsigned kMultiprocessors = 8;

/// With so many ranks, of which every so many'th is in a green context.
class InGreenContexts : public testing::TestWithParam<std::tuple<int, int>> {
 protected:
  void SetUp() override {
    if (gpus() == 0) GTEST_SKIP() << "no GPU here";
    if (!GreenContexts::there_are(0, static_cast<unsigned>(ranks()), kMultiprocessors)) {
      GTEST_SKIP() << "too few green contexts here";
    }
  }
  static int ranks() { return std::get<0>(GetParam()); }
  static Settings settings() { return {.multiprocessors = kMultiprocessors, .apart = std::get<1>(GetParam())}; }
};
INSTANTIATE_TEST_SUITE_P(Ranks, InGreenContexts, testing::Combine(testing::Values(2, 3, 4), testing::Values(1, 2)));

TEST_P(InGreenContexts, PartsWithCtasOfTheirOwnMeet) {
  Cluster cluster(ranks(), settings());
  const Limits limits = cluster.ranks().limits();
  int tried = 0;
  for_each_algorithm(ranks(), limits, [&](CollectiveWork work) {
    if (!work.plan.apart || testing::Test::HasFailure()) return;
    ++tried;
    work.type = reduces(work.what) ? DataType::kFloat32 : DataType::kUint8;
    work.plan.channels = limits.apart(work.what).channels;
    work.plan.chunk = 256;
    work.count = static_cast<size_t>(work.plan.channels) * 40 * 256;  // more chunks for each than there are slots
    const Case test{.work = work};
    ASSERT_EQ(cluster.run(test), "") << describe(test, ranks());
  });
  EXPECT_GT(tried, 0);
}

/// Also more than slots hold, so that sends wait for receives.
TEST_P(InGreenContexts, MessagesOfManyChannelsArrive) {
  Cluster cluster(ranks(), settings());
  const size_t longest = ranks() == 2 ? 5'000'001 : 1'000'001;
  for (const size_t base : {size_t{400}, longest}) {
    std::map<char*, Bytes> expected;
    const std::vector<Launch> launches = message_launches(cluster, 1, base, expected);
    exchange(cluster, launches, expected);
  }
}

}  // namespace

}  // namespace nitinol::gpu_testing
