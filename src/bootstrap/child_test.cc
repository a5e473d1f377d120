// Communicators split off others.
#include "bootstrap/child.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>

#include "bootstrap/closed_descriptors_testing.h"
#include "bootstrap/exchange.h"
#include "bootstrap/messages.h"
#include "bootstrap/testing.h"
#include "bootstrap/tree.h"
#include "bootstrap/wire.h"
#include "failing_allocation.h"
#include "scarcity.h"

namespace nitinol {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::join_all;
using testing::run_threads;
using ::testing::StrEq;

TEST(Child, GroupsOfAParentAreIndependent) {
  auto all = join_all(10);
  // Odd ranks in reverse order; even ranks but 0; rank 0 in none.
  const std::vector<std::vector<int>> groups = {{9, 7, 5, 3, 1}, {2, 4, 6, 8}};
  std::vector<std::unique_ptr<Bootstrap>> children(10);
  run_threads(10, [&](int rank) {
    const auto& group = groups[rank % 2 == 1 ? 0 : 1];
    const auto place = std::find(group.begin(), group.end(), rank);
    auto child = rank == 0
                     ? all[0]->make_child({}, -1)
                     : all[static_cast<std::size_t>(rank)]->make_child(group, static_cast<int>(place - group.begin()));
    if (rank == 0) {
      EXPECT_EQ(child, nullptr);
      return;
    }
    EXPECT_EQ(child->all_gather_value(rank), group);
    children[static_cast<std::size_t>(rank)] = std::move(child);
  });
  EXPECT_TRUE(children[1]->secret() == children[9]->secret());
  EXPECT_FALSE(children[1]->secret() == children[2]->secret());
  EXPECT_FALSE(children[1]->secret() == all[1]->secret());
  // The parent may go first.
  run_threads(10, [&](int rank) { all[static_cast<std::size_t>(rank)]->shutdown(); });
  all.clear();
  run_threads(4, [&](int i) { children[static_cast<std::size_t>(2 * i + 2)]->barrier(); });
}

TEST(Child, ChildrenOfChildrenAndRepeatedSplits) {
  auto all = join_all(4);
  run_threads(4, [&](int rank) {
    auto& mine = all[static_cast<std::size_t>(rank)];
    const auto first = mine->make_child({0, 1, 2, 3}, rank);
    const auto second = mine->make_child({0, 1, 2, 3}, rank);
    const auto grandchild = first->make_child({rank / 2 * 2, rank / 2 * 2 + 1}, rank % 2);
    EXPECT_FALSE(first->secret() == second->secret());
    EXPECT_EQ(grandchild->all_gather_value(rank)[0], rank / 2 * 2);
    second->barrier();
    for (const auto* one : {&first, &second, &grandchild}) (*one)->shutdown();
  });
}

TEST(Child, SentencesNameTheDevicesThatTheParentKnows) {
  auto all = join_all(3);
  run_threads(3, [&](int rank) {
    auto& mine = all[static_cast<std::size_t>(rank)];
    mine->know_devices(std::vector<int>{5, 6, 7});
    auto child = rank == 0 ? mine->make_child({}, -1) : mine->make_child({2, 1}, 2 - rank);
    if (rank == 2) {
      EXPECT_THAT(error_of([&] { child->barrier(); }).what(), HasSubstr("device 6) exited"));
    }
    child.reset();  // of rank 1: without a shutdown
  });
}

TEST(Child, DifferentListsAreAnError) {
  auto all = join_all(3);
  run_threads(3, [&](int rank) {
    const std::vector<int> members = rank == 2 ? std::vector<int>{2, 1} : std::vector<int>{1, 2};
    const int index = rank == 2 ? 0 : rank - 1;
    if (rank == 0) {
      EXPECT_EQ(all[0]->make_child({}, 0), nullptr);
      return;
    }
    const Error error = error_of([&] { all[static_cast<std::size_t>(rank)]->make_child(members, index); });
    EXPECT_EQ(error.code(), ncclInvalidUsage);
  });
  run_threads(3, [&](int rank) { all[static_cast<std::size_t>(rank)]->barrier(); });
}

TEST(Child, AWrongListFailsTheMembersAndNobodyElse) {
  auto all = join_all(3);
  run_threads(3, [&](int rank) {
    auto& mine = all[static_cast<std::size_t>(rank)];
    if (rank == 0) {
      EXPECT_EQ(error_of([&] { mine->make_child({0, 1, 1}, 0); }).code(), ncclInvalidArgument);
    } else if (rank == 1) {
      EXPECT_THAT(error_of([&] { mine->make_child({0, 1}, 1); }).what(), HasSubstr("rank 0 (host "));
    } else {
      EXPECT_EQ(mine->make_child({2}, 0)->size(), 1);
    }
    mine->barrier();
  });
}

TEST(Child, AParentThatFailsEndsTheSplit) {
  auto all = join_all(3);
  all[2].reset();
  run_threads(2, [&](int rank) {
    const Error error = error_of([&] { all[static_cast<std::size_t>(rank)]->make_child({0, 1, 2}, rank); });
    EXPECT_EQ(error.code(), ncclRemoteError);
    EXPECT_THAT(error.what(), HasSubstr("rank 2"));
  });
}

std::shared_ptr<Tree> start_tree(int rank, const Secret& secret,
                                 const BootstrapOptions& options = testing::quick_options()) {
  return Tree::start({rank, TreeShape(2, 1), secret, options, nullptr});
}

/// A rank of two in the first split of its parent, which tells the other how to reach it and no more.
std::shared_ptr<Tree> split_half_way(Tree& parent) {
  ByteWriter members;
  members.integer(parent.next_child_number());
  for (const std::int32_t member : {0, 1}) members.integer(member);
  const auto context = members.take();
  const int rank = parent.rank();
  auto tree = start_tree(rank, derive_secret(parent.secret(), "split",
                                             {reinterpret_cast<const std::uint8_t*>(context.data()), context.size()}));
  const KeyId group = key_id(tree->secret());
  ByteWriter line;
  line.block(group.data(), group.size());
  const auto reply = encode(ParentReply{rank, tree->listener_address(), tree->contact(), this_process()});
  line.block(reply.data(), reply.size());
  static_cast<void>(exchange_all_gather_variable(parent, line.take()));
  return tree;
}

/// The two ranks of a parent.
struct Pair {
  std::shared_ptr<Tree> first;
  std::shared_ptr<Tree> second;
  Deadline limit = std::chrono::steady_clock::now() + testing::quick_options().init_timeout;

  explicit Pair(const BootstrapOptions& options = testing::quick_options()) {
    const Secret secret = random_secret();
    first = start_tree(0, secret, options);
    second = start_tree(1, secret, options);
    second->connect_parent({0, first->listener_address(), first->contact(), this_process()}, limit, {});
    first->wait_for_children(limit, {});
  }
};

TEST(Child, WhatARankTellsTheParentsRanksIsTheCauseThoughItsEndIsSeenBefore) {
  BootstrapOptions options = testing::quick_options();
  options.patience_with_cause = std::chrono::seconds(60);
  const Pair parent(options);
  Error error(ncclSuccess, "");
  std::thread splitting([&] { error = error_of([&] { make_child_tree(*parent.second, {0, 1}, 1, nullptr); }); });
  auto child = split_half_way(*parent.first);
  child->wait_for_children(parent.limit, {});
  child.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  parent.first->report({0, ncclRemoteError, "rank 0 gives up"});
  splitting.join();
  EXPECT_STREQ(error.what(), "rank 0 gives up");
}

/// As that of its parent's operations, though more time is for ranks that join.
TEST(Child, OfWhichARankDoesNotComeOnEndsWhenTheTimeOfItsParentsOperationsIsOver) {
  for (const int silent : {0, 1}) {
    const Pair parent;
    for (const auto& tree : {parent.first, parent.second}) tree->set_operation_timeout(std::chrono::seconds(5));
    Tree& other = silent == 0 ? *parent.second : *parent.first;
    Error error(ncclSuccess, "");
    std::thread splitting([&] { error = error_of([&] { make_child_tree(other, {0, 1}, 1 - silent, nullptr); }); });
    const auto child = split_half_way(silent == 0 ? *parent.first : *parent.second);
    splitting.join();
    EXPECT_LT(std::chrono::steady_clock::now(), parent.limit);
    const auto sentence = silent == 0 ? HasSubstr(" ms for rank 0 (host ")
                                      : HasSubstr("it did not connect to rank 0 within 5 s (NITINOL_TIMEOUT)");
    EXPECT_THAT(error.what(), sentence);
  }
}

/// One of two ranks has no memory at an allocation of the split, each time at a later one, until all were tried.
void split_without_memory(testing::Fails which) {
  const std::vector<int> members{0, 1};
  BootstrapOptions options = testing::quick_options();
  options.operation_timeout = std::chrono::seconds(10);
  bool failed = true;
  for (int nth = 0; failed; ++nth) {
    auto all = join_all(2, options);
    const auto begin = std::chrono::steady_clock::now();
    run_threads(2, [&](int rank) {
      auto& mine = all[static_cast<std::size_t>(rank)];
      if (rank == 0) {
        const Error error = error_of([&] { mine->make_child(members, 0); });
        EXPECT_THAT(error.what(), AnyOf(StrEq("no error"), HasSubstr("rank 1 (host "))) << nth;
        return;
      }
      const testing::FailingAllocation failing(nth, testing::FailsIn::kThisThread, which);
      try {
        static_cast<void>(mine->make_child(members, 1));
      } catch (const std::exception&) {
      }
      failed = failing.has_failed();
    });
    ASSERT_LT(std::chrono::steady_clock::now() - begin, options.operation_timeout) << nth;
  }
}

TEST(Child, OthersAreToldOfARankThatHasNoMemoryForIt) {
  split_without_memory(testing::Fails::kOne);
  split_without_memory(testing::Fails::kAllFromThere);
}

/// In a process of its own, in which nothing else closes descriptors.
void split_with_few_descriptors() {
  const auto before = testing::open_descriptors().size();
  auto all = join_all(3);
  constexpr std::size_t kKept = 2 + 1 + 2 * 2;  // of the network thread, to listen, and connections' ends
  while (testing::open_descriptors().size() > before + kKept) std::this_thread::yield();
  const testing::FewDescriptors few(3);  // two ranks connect to rank 0, which can let one of them in
  const auto begin = std::chrono::steady_clock::now();
  run_threads(3, [&](int rank) {
    const Error error = error_of([&] { all[static_cast<std::size_t>(rank)]->make_child({0, 1, 2}, rank); });
    EXPECT_EQ(error.code(), rank == 0 ? ncclSystemError : ncclRemoteError);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(rank == 0 ? "letting in" : "rank 0 (host "), HasSubstr("open files")));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, testing::quick_options().init_timeout);
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST(Child, ARankThatHasNoDescriptorToLetItsNeighboursInSaysSoToAll) {
  if (!testing::kDescriptorsCanBeLimited) GTEST_SKIP();
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(split_with_few_descriptors(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace nitinol
