// What goes wrong while ranks join: every rank gets one sentence that says who and what.
#include <gmock/gmock.h>

#include <atomic>
#include <optional>

#include "base/log_testing.h"
#include "bootstrap/connect.h"
#include "bootstrap/root.h"
#include "bootstrap/root_link.h"
#include "bootstrap/testing.h"
#include "bootstrap/tree.h"

namespace nitinol {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::join_all;
using testing::quick_options;
using testing::run_threads;

struct Joining {
  int rank;
  int nranks;
};

/// Lets each of `who` join with one id; returns their errors.
std::vector<Error> join_errors(const std::vector<Joining>& who, const BootstrapOptions& options,
                               const std::vector<UniqueId>& ids) {
  std::vector<Error> errors(who.size(), Error(ncclSuccess, ""));
  run_threads(static_cast<int>(who.size()), [&](int i) {
    const Joining& joining = who[static_cast<std::size_t>(i)];
    errors[static_cast<std::size_t>(i)] = error_of([&] {
      Bootstrap::join({ids, joining.rank, joining.nranks, options, nullptr});
    });
  });
  return errors;
}

/// Of a port that was free a moment ago.
std::string free_address() {
  const UniqueId probe = make_unique_id(quick_options());
  join_all(1, {probe});  // uses the id up, which frees its port
  return probe.root.to_string();
}

TEST(JoinFailure, NamesTheRanksThatDidNotArrive) {
  BootstrapOptions options = quick_options();
  options.init_timeout = std::chrono::seconds(5);
  const auto errors = join_errors({{0, 6}, {1, 6}, {2, 6}, {4, 6}}, options, {make_unique_id(options)});
  for (const auto& error : errors) {
    EXPECT_EQ(error.code(), ncclRemoteError);
    EXPECT_THAT(error.what(), HasSubstr("ranks 3, 5 (of 6) did not arrive within 5 s"));
  }
}

/// Rank 1 has waited for the root for most of its time when that comes with rank 0.
TEST(JoinFailure, NamesTheRankThatDidNotArriveAlsoIfTheRootCameLate) {
  BootstrapOptions options = quick_options();
  options.init_timeout = std::chrono::seconds(15);
  options.retry_count = 1000;
  options.comm_id = free_address();
  const UniqueId id = make_unique_id(options);
  run_threads(2, [&](int rank) {
    if (rank == 0) std::this_thread::sleep_for(std::chrono::seconds(8));
    const Error error = error_of([&] { Bootstrap::join({{id}, rank, 3, options, nullptr}); });
    EXPECT_THAT(error.what(), HasSubstr("rank 2 (of 3) did not arrive within "));
  });
}

TEST(JoinFailure, NamesTheRankThatWasStartedTwice) {
  const auto options = quick_options();
  const auto errors = join_errors({{0, 4}, {1, 4}, {1, 4}, {3, 4}}, options, {make_unique_id(options)});
  for (const auto& error : errors) {
    EXPECT_EQ(error.code(), ncclInvalidUsage);
    EXPECT_THAT(error.what(), HasSubstr("rank 1 was started twice"));
  }
}

TEST(JoinFailure, NamesTheRanksThatDisagreeAboutTheirNumber) {
  const auto options = quick_options();
  const auto errors = join_errors({{0, 3}, {1, 4}, {2, 3}}, options, {make_unique_id(options)});
  for (const auto& error : errors) {
    EXPECT_EQ(error.code(), ncclInvalidUsage);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("gives 3"), HasSubstr("gives 4")));
  }
}

TEST(JoinFailure, RefusesRanksOutOfRange) {
  const auto options = quick_options();
  const auto id = make_unique_id(options);
  EXPECT_EQ(error_of([&] { Bootstrap::join({{id}, 4, 4, options, nullptr}); }).code(), ncclInvalidArgument);
  EXPECT_EQ(error_of([&] { Bootstrap::join({{id}, -1, 4, options, nullptr}); }).code(), ncclInvalidArgument);
  EXPECT_EQ(error_of([&] { Bootstrap::join({{id}, 0, 0, options, nullptr}); }).code(), ncclInvalidArgument);
  EXPECT_EQ(error_of([&] { Bootstrap::join({{}, 0, 1, options, nullptr}); }).code(), ncclInvalidArgument);
  EXPECT_EQ(error_of([&] { Bootstrap::join({{id, id}, 0, 1, options, nullptr}); }).code(), ncclInvalidArgument);
}

TEST(JoinFailure, RefusesAnIdThatWasUsed) {
  const auto options = quick_options();
  const auto id = make_unique_id(options);
  const auto first = join_all(2, {id}, options);
  const Error error = error_of([&] { Bootstrap::join({{id}, 0, 2, options, nullptr}); });
  EXPECT_EQ(error.code(), ncclInvalidUsage);
  EXPECT_THAT(error.what(), HasSubstr("has served its communicator already"));
}

TEST(JoinFailure, AbortEndsAJoinThatWaits) {
  const auto options = quick_options();
  const auto id = make_unique_id(options);
  std::atomic<bool> abort{false};
  Error error(ncclSuccess, "");
  std::thread joining([&] { error = error_of([&] { Bootstrap::join({{id}, 0, 2, options, &abort}); }); });
  abort = true;
  joining.join();
  EXPECT_THAT(error.what(), HasSubstr("rank 0 aborts"));
  // Whoever comes later hears that it is over, as soon as the root knows.
  const Error late = error_of([&] { Bootstrap::join({{id}, 1, 2, options, &abort}); });
  EXPECT_NE(late.code(), ncclSuccess);
}

/// Rank 1 of two up to where it has its parent and is one of all who enter together.
struct HalfWay {
  HalfWay(const UniqueId& id, const BootstrapOptions& options)
      : tree(Tree::start({1, TreeShape(2, 1), derive_secret(id.secret, "ranks"), options, nullptr})),
        root(connect_to_peer({id.root, root_key(id.secret), "the root", options, limit, {}}), "the root") {
    Registration registration;
    registration.rank = 1;
    registration.nranks = 2;
    registration.timeout_ms = options.init_timeout.count();
    registration.listener = tree->listener_address();
    registration.contact = tree->contact();
    registration.list = name_of_list(std::span(&id, 1));
    registration.identity = this_process();
    root.send(FrameType::kRegister, encode(registration));
    tree->connect_parent(*root.wait_for_parent(limit, [] {}), limit, {});
  }

  Deadline limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::shared_ptr<Tree> tree;
  RootLink root;
};

TEST(JoinFailure, WhatTheRootKnowsOfARankIsToldWhileItsNeighboursWaitForIt) {
  const auto options = quick_options();
  const auto id = make_unique_id(options);
  const auto begin = std::chrono::steady_clock::now();
  Error error(ncclSuccess, "");
  std::thread joining([&] { error = error_of([&] { Bootstrap::join({{id}, 0, 2, options, nullptr}); }); });
  HalfWay other(id, options);
  other.root.send(FrameType::kError, encode(Failure{1, ncclRemoteError, "rank 1 gives up"}));
  joining.join();
  EXPECT_STREQ(error.what(), "rank 1 gives up");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, options.init_timeout);
}

TEST(JoinFailure, AnAbortBeforeARankHasRegisteredIsToldToAll) {
  const auto options = quick_options();
  const auto id = make_unique_id(options);
  const std::atomic<bool> abort{true};
  Error error(ncclSuccess, "");
  std::thread joining([&] { error = error_of([&] { Bootstrap::join({{id}, 1, 2, options, nullptr}); }); });
  EXPECT_THAT(error_of([&] { Bootstrap::join({{id}, 0, 2, options, &abort}); }).what(), HasSubstr("rank 0 aborts"));
  joining.join();
  EXPECT_EQ(error.code(), ncclRemoteError);
  EXPECT_THAT(error.what(), HasSubstr("rank 0 aborts"));
}

TEST(JoinFailure, ARankThatCannotEvenStartSaysSoToTheRanksOfAllIds) {
  const auto options = quick_options();
  auto without_interface = options;
  without_interface.interfaces = "=there_is_none";
  const auto begin = std::chrono::steady_clock::now();
  for (const int odd : {0, 2, 3}) {
    const std::vector<UniqueId> ids = {make_unique_id(options), make_unique_id(options)};
    std::vector<Error> errors(4, Error(ncclSuccess, ""));
    run_threads(4, [&](int rank) {
      errors[static_cast<std::size_t>(rank)] = error_of([&] {
        Bootstrap::join({ids, rank, 4, rank == odd ? without_interface : options, nullptr});
      });
    });
    for (int rank = 0; rank < 4; ++rank) {
      const Error& error = errors[static_cast<std::size_t>(rank)];
      const std::string name = rank == odd ? "" : formatted("rank {} (host ", odd);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(name), HasSubstr("there_is_none")));
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, options.init_timeout);
}

TEST(JoinFailure, AMissingRankOfAnotherIdIsNamedEverywhere) {
  BootstrapOptions options = quick_options();
  options.init_timeout = std::chrono::seconds(5);
  std::vector<UniqueId> ids = {make_unique_id(options), make_unique_id(options)};
  // Blocks {0, 1, 2} and {3, 4, 5}; rank 4 never comes.
  const auto errors = join_errors({{0, 6}, {1, 6}, {2, 6}, {3, 6}, {5, 6}}, options, ids);
  for (const auto& error : errors) {
    EXPECT_EQ(error.code(), ncclRemoteError);
    EXPECT_THAT(error.what(), AnyOf(HasSubstr("rank 4 (of 6) did not arrive"), HasSubstr("rank 3 did not arrive")));
  }
}

/// All ranks hear that one was given another list of ids.
void must_tell_of_ids(int nranks, int odd, const std::vector<UniqueId>& ids, const std::vector<UniqueId>& of_odd) {
  const auto options = quick_options();
  std::vector<Error> errors(static_cast<std::size_t>(nranks), Error(ncclSuccess, ""));
  run_threads(nranks, [&](int rank) {
    errors[static_cast<std::size_t>(rank)] = error_of([&] {
      Bootstrap::join({rank == odd ? of_odd : ids, rank, nranks, options, nullptr});
    });
  });
  const std::string name = formatted("rank {} (host ", odd);
  for (const auto& error : errors) {
    EXPECT_EQ(error.code(), ncclInvalidUsage);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(name), HasSubstr("do not pass the same list of unique ids")));
  }
}

TEST(JoinFailure, IdsInAnotherOrderOnOneRankAreToldToTheRanksOfAllIds) {
  const auto options = quick_options();
  for (const int odd : {0, 1, 2, 3}) {
    const UniqueId a = make_unique_id(options);
    const UniqueId b = make_unique_id(options);
    must_tell_of_ids(4, odd, {a, b}, {b, a});
  }
  for (const int odd : {0, 3, 6}) {
    const UniqueId a = make_unique_id(options);
    const UniqueId b = make_unique_id(options);
    const UniqueId c = make_unique_id(options);
    must_tell_of_ids(7, odd, {a, b, c}, {a, c, b});  // no other root for rank 0
  }
}

TEST(JoinFailure, OtherIdsOnOneRankAreToldToAllAsLongAsOneIsTheSame) {
  const auto options = quick_options();
  for (const int odd : {0, 1, 2, 3}) {
    const UniqueId a = make_unique_id(options);
    const UniqueId b = make_unique_id(options);
    const UniqueId strange = make_unique_id(options);
    must_tell_of_ids(4, odd, {a, b}, {a, strange});
    must_tell_of_ids(4, odd, {make_unique_id(options), b}, {strange, b});
  }
}

TEST(JoinFailure, FewerIdsOnOneRankAreToldToAll) {
  const auto options = quick_options();
  for (const int odd : {0, 2, 3}) {
    const UniqueId a = make_unique_id(options);
    must_tell_of_ids(4, odd, {a, make_unique_id(options)}, {a});
  }
}

TEST(JoinFailure, AnotherNumberOfIdsIsToldToRanksThatAreAloneWithTheirIdToo) {
  const auto options = quick_options();
  const auto begin = std::chrono::steady_clock::now();
  for (const int odd : {0, 1}) {
    const UniqueId a = make_unique_id(options);
    must_tell_of_ids(2, odd, {a, make_unique_id(options)}, {a});
  }
  for (const int odd : {0, 1, 2}) {
    const UniqueId a = make_unique_id(options);
    const UniqueId b = make_unique_id(options);
    must_tell_of_ids(3, odd, {a, b}, {a, b, make_unique_id(options)});
    must_tell_of_ids(3, odd, {a, make_unique_id(options), make_unique_id(options)}, {a, b});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, options.init_timeout);
}

TEST(JoinFailure, AnotherIdOfAnotherRankIsToldToRanksThatAreAloneWithTheirId) {
  const auto options = quick_options();
  const auto begin = std::chrono::steady_clock::now();
  const UniqueId b = make_unique_id(options);
  must_tell_of_ids(2, 1, {make_unique_id(options), b}, {make_unique_id(options), b});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, options.init_timeout);
}

TEST(JoinFailure, SaysWhereTheRootShouldBe) {
  BootstrapOptions options = quick_options();
  options.retry_count = 1;
  UniqueId id;
  id.secret = random_secret();
  id.root.family = AF_INET;
  id.root.host = {127, 0, 0, 1};
  id.root.port = 1;
  const Error error = error_of([&] { Bootstrap::join({{id}, 0, 1, options, nullptr}); });
  EXPECT_EQ(error.code(), ncclSystemError);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("127.0.0.1:1"), HasSubstr("refused"), HasSubstr("2 attempts")));
}

/// What connecting there fails with, at the deadline or after the attempts of the options.
Error error_of_nobody(const BootstrapOptions& options, std::chrono::milliseconds time) {
  SocketAddress nobody;
  nobody.family = AF_INET;
  nobody.host = {127, 0, 0, 1};
  nobody.port = 1;
  const Deadline deadline = std::chrono::steady_clock::now() + time;
  return error_of([&] { connect_to_peer({nobody, random_secret(), "nobody", options, deadline, {}}); });
}

/// Not only that its time was over.
TEST(JoinFailure, SaysWhatWasWrongWhenThereWasTimeToTry) {
  BootstrapOptions options = quick_options();
  options.retry_count = 1000;
  options.retry_sleep = std::chrono::milliseconds(600);
  const Error error = error_of_nobody(options, std::chrono::milliseconds(1500));
  EXPECT_THAT(error.what(), HasSubstr("refused"));
}

TEST(JoinFailure, IsInTheLogOnceAsLongAsItMayStillEndWell) {
  const LogInFile warnings("WARN");
  BootstrapOptions options = quick_options();
  options.retry_count = 20;
  options.retry_sleep = std::chrono::milliseconds(1);
  options.warn_after = std::chrono::milliseconds(20);
  error_of_nobody(options, std::chrono::seconds(60));
  const std::string warning =
      "NCCL WARN still trying (NCCL_SOCKET_RETRY_CNT or NITINOL_INIT_TIMEOUT ends it): cannot connect to nobody at ";
  const std::string log = warnings.text();
  EXPECT_THAT(log, AllOf(HasSubstr(warning + "127.0.0.1:1: "), HasSubstr("refused"), HasSubstr(" attempts)")));
  EXPECT_EQ(log.find(warning), log.rfind(warning));
}

TEST(CommId, RanksMeetAtTheAddressAgainAndAgain) {
  BootstrapOptions options = quick_options();
  options.comm_id = free_address();
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Bootstrap>> all(4);
    std::vector<ncclUniqueId> ids(4);
    run_threads(4, [&](int rank) {
      const UniqueId id = make_unique_id(options);
      ids[static_cast<std::size_t>(rank)] = serialise(id);
      all[static_cast<std::size_t>(rank)] = Bootstrap::join({{id}, rank, 4, options, nullptr});
      all[static_cast<std::size_t>(rank)]->barrier();
    });
    for (const auto& id : ids) EXPECT_EQ(parse_unique_id(id), parse_unique_id(ids[0]));
    EXPECT_TRUE(all[0]->secret() == all[3]->secret());
  }
}

}  // namespace
}  // namespace nitinol
