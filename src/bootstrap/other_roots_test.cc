// When a rank takes the root of another id for gone, and when it must not.
#include "bootstrap/other_roots.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/host.h"
#include "bootstrap/testing.h"

namespace nitinol {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::quick_options;

/// Rank 0 of four with two ids, of which the second one's root is nowhere.
class OtherRootsOf : public ::testing::Test {
 protected:
  OtherRootsOf() : ids_{UniqueId(), UniqueId()} {
    ids_[0].secret = random_secret();
    UniqueId& other = ids_[1];
    other.secret = random_secret();
    other.root.family = AF_INET;
    other.root.host = {127, 0, 0, 1};
    other.root.port = 1;
    other.maker = 4711;
    other.network = network_identity();
  }

  OtherRoots roots() {
    return OtherRoots({.ids = ids_,
                       .shape = TreeShape(4, 2),
                       .rank = 0,
                       .reach = [this](int, Deadline, const Interrupt&, bool* refused) { return reach(refused); },
                       .registration = [](int) { return Registration(); },
                       .awaited = [this] { return awaited_; }});
  }

  /// What they say within that time.
  static Error word_of(OtherRoots& roots, std::chrono::milliseconds patience = std::chrono::minutes(1)) {
    return error_of([&] {
      const Deadline end = std::chrono::steady_clock::now() + patience;
      while (std::chrono::steady_clock::now() < end) {
        roots.ask_now_and_then({});
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    });
  }
  /// For longer than it takes to say that one is gone.
  static void must_say_nothing(OtherRoots& roots) {
    EXPECT_STREQ(word_of(roots, 2 * patience_with_root(true)).what(), "no error");
  }

  std::unique_ptr<RootLink> reach(bool* refused) {
    *refused = !times_out_;
    if (!std::exchange(answers_once_, false)) return nullptr;
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    const UniqueFd theirs(ends[1]);
    *refused = false;
    return std::make_unique<RootLink>(UniqueFd(ends[0]), "another root");
  }

  std::vector<UniqueId> ids_;
  std::vector<int> awaited_;
  bool answers_once_ = false;
  bool times_out_ = false;
};

TEST_F(OtherRootsOf, TheOwnNetworkAreGoneWhenTheyRefuse) {
  awaited_ = {2};
  OtherRoots others = roots();
  const Error error = word_of(others);
  EXPECT_EQ(error.code(), ncclRemoteError);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("the root of unique id 2 of 2 at 127.0.0.1:1 in pid 4711 (of ranks 2 to 3) "
                                            "is gone"),
                                  HasSubstr("rank 2 has not come to rank 0")));
}

TEST_F(OtherRootsOf, AnotherNetworkMayBeOutOfReach) {
  ids_[1].network ^= 1;
  OtherRoots others = roots();
  must_say_nothing(others);
}

TEST_F(OtherRootsOf, AnUnknownNetworkMayBeOutOfReach) {
  ids_[1].network = 0;
  OtherRoots others = roots();
  must_say_nothing(others);
}

TEST_F(OtherRootsOf, AnotherNetworkAreGoneWhenTheyRefuseAndHaveAnswered) {
  ids_[1].network ^= 1;
  answers_once_ = true;
  OtherRoots others = roots();
  EXPECT_THAT(word_of(others).what(), HasSubstr("is gone"));
}

TEST_F(OtherRootsOf, AnAddressMayBeToCome) {
  ids_[1].maker = 0;
  OtherRoots others = roots();
  must_say_nothing(others);
}

TEST_F(OtherRootsOf, TheOwnNetworkAreNotGoneWhenTheyAreSlow) {
  times_out_ = true;
  OtherRoots others = roots();
  must_say_nothing(others);
}

TEST_F(OtherRootsOf, RanksThatAreAllThereMayBeThrough) {
  OtherRoots others = roots();
  others.expect_ends();
  must_say_nothing(others);
}

TEST(Refusals, AreSteadyOnlyWithoutABreak) {
  Refusals endless(std::chrono::hours(1));
  EXPECT_FALSE(endless.are_steady(true));
  EXPECT_FALSE(endless.are_steady(true));
  Refusals once(std::chrono::milliseconds(0));
  EXPECT_FALSE(once.are_steady(false));
  EXPECT_TRUE(once.are_steady(true));
}

/// What rank 0 of two hears when the other rank's id comes from there, and nobody listens.
Error word_of_refusal_from(std::uint64_t network, std::chrono::seconds init_timeout) {
  BootstrapOptions options = quick_options();
  options.init_timeout = init_timeout;
  UniqueId other = make_unique_id(options);
  other.root.port = 1;
  other.network = network;
  const std::vector<UniqueId> ids = {make_unique_id(options), other};
  return error_of([&] { Bootstrap::join({ids, 0, 2, options, nullptr}); });
}

TEST(JoinWithALostRoot, IsNamedToARankThatWaitsForItsRank) {
  const Error error = word_of_refusal_from(network_identity(), std::chrono::seconds(60));
  EXPECT_EQ(error.code(), ncclRemoteError);
  EXPECT_THAT(
      error.what(),
      AllOf(HasSubstr(formatted("the root of unique id 2 of 2 at 127.0.0.1:1 in pid {} (of rank 1) is gone", getpid())),
            HasSubstr("rank 1 has not come to rank 0")));
}

/// Ranks 0 and 1 cannot tell: rank 3, whose root it would be, says so to theirs.
TEST(JoinWithALostRoot, IsNamedByARankThatCannotDoWithoutItToThoseWhoCannotTell) {
  const BootstrapOptions options = quick_options();
  UniqueId other = make_unique_id(options);
  other.root.port = 1;
  other.network ^= 1;
  const std::vector<UniqueId> ids = {make_unique_id(options), other};
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Error> errors(4, Error(ncclSuccess, ""));
  testing::run_threads(4, [&](int rank) {
    if (rank == 2) return;
    errors[static_cast<std::size_t>(rank)] = error_of([&] { Bootstrap::join({ids, rank, 4, options, nullptr}); });
  });
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(errors[static_cast<std::size_t>(rank)].code(), ncclRemoteError);
    EXPECT_THAT(errors[static_cast<std::size_t>(rank)].what(), HasSubstr("(of ranks 2 to 3) is gone"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, options.init_timeout);
}

TEST(JoinWithALostRoot, IsNoneThatOnlyCannotBeReachedFromHere) {
  EXPECT_THAT(word_of_refusal_from(network_identity() ^ 1, std::chrono::seconds(3)).what(),
              HasSubstr("rank 1 did not arrive"));
}

}  // namespace
}  // namespace nitinol
