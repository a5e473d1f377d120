// Joining and the operations, with ranks as threads.
#include "bootstrap/bootstrap.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cstring>
#include <numeric>

#include "bootstrap/interfaces.h"
#include "bootstrap/testing.h"

namespace nitinol {
namespace {

using testing::join_all;
using testing::quick_options;
using testing::run_threads;

struct Value {
  int rank;
  double data[3];
};

void exercise(Bootstrap& bootstrap) {
  const int n = bootstrap.size();
  const int rank = bootstrap.rank();
  const auto values = bootstrap.all_gather_value(Value{rank, {0.5 * rank, 1, 2}});
  for (int i = 0; i < n; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)].rank, i);
  for (int root = 0; root < n; root = root * 2 + 1) {
    std::array<int, 100> data{};
    if (rank == root) data.fill(root + 7);
    bootstrap.broadcast(data.data(), sizeof(data), root);
    EXPECT_THAT(data, ::testing::Each(root + 7));
  }
  bootstrap.barrier();
  const std::vector<std::byte> mine(static_cast<std::size_t>(rank % 5), static_cast<std::byte>(rank));
  const auto all = bootstrap.all_gather_variable(mine);
  for (int i = 0; i < n; ++i) {
    EXPECT_EQ(all[static_cast<std::size_t>(i)], Bytes(static_cast<std::size_t>(i % 5), static_cast<std::byte>(i)));
  }
}

class JoinOf : public ::testing::TestWithParam<int> {};

TEST(InterfaceLists, WithoutANameStandForAll) {
  for (const char* list : {"=", ",", "=,"}) EXPECT_TRUE(matches_interface_list(list, "eth0")) << list;
  for (const char* list : {"^", "^=", "^,"}) EXPECT_FALSE(matches_interface_list(list, "eth0")) << list;
}

TEST_P(JoinOf, RanksExchangeEverything) {
  auto all = join_all(GetParam());
  run_threads(GetParam(), [&](int rank) {
    Bootstrap& mine = *all[static_cast<std::size_t>(rank)];
    EXPECT_EQ(mine.rank(), rank);
    EXPECT_EQ(mine.size(), GetParam());
    exercise(mine);
    EXPECT_EQ(mine.secret(), all[0]->secret());
    mine.shutdown();
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, JoinOf, ::testing::Values(1, 2, 3, 5, 8, 22));

TEST(Join, ManyRanksInOneProcess) {
  auto all = join_all(256);
  run_threads(256, [&](int rank) { exercise(*all[static_cast<std::size_t>(rank)]); });
}

TEST(Join, OverIpv6) {
  BootstrapOptions options = quick_options();
  options.interfaces.clear();
  options.family = AF_INET6;
  if (select_interfaces(list_interfaces(), options, std::nullopt).empty()) GTEST_SKIP() << "no IPv6 address";
  auto all = join_all(5, options);
  run_threads(5, [&](int rank) { exercise(*all[static_cast<std::size_t>(rank)]); });
}

TEST(Join, SeveralIdsShareTheRendezvous) {
  for (const int ids_count : {2, 3, 6, 7}) {
    std::vector<UniqueId> ids;
    for (int i = 0; i < ids_count; ++i) ids.push_back(make_unique_id(quick_options()));
    auto all = join_all(7, ids);
    run_threads(7, [&](int rank) { exercise(*all[static_cast<std::size_t>(rank)]); });
  }
}

}  // namespace
}  // namespace nitinol
