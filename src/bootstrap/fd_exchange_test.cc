// Handing descriptors around.
#include "bootstrap/fd_exchange.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <new>
#include <optional>
#include <thread>

#include "bootstrap/testing.h"
#include "failing_allocation.h"
#include "scarcity.h"

namespace nitinol {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::run_threads;

std::chrono::steady_clock::time_point soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

UniqueFd memory_with(const std::string& text) {
  UniqueFd fd(memfd_create("nitinol-test", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  return fd;
}

std::string text_of(const UniqueFd& fd) {
  std::array<char, 64> text{};
  const auto size = ::pread(fd.get(), text.data(), text.size(), 0);
  return std::string(text.data(), size < 0 ? 0 : static_cast<std::size_t>(size));
}

TEST(FdExchangeOf, APublishedDescriptorIsFetchedWithItsMetadata) {
  const Secret secret = random_secret();
  FdExchange exchange(secret);
  const FdKey key = FdKey::random();
  exchange.publish(key, memory_with("hello"), 4096);
  for (int i = 0; i < 3; ++i) {
    const SharedFd got = exchange.fetch(exchange.server_name(), key, soon());
    EXPECT_EQ(text_of(got.fd), "hello");
    EXPECT_EQ(got.metadata, 4096u);
    EXPECT_NE(::fcntl(got.fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  }
}

TEST(FdExchangeOf, RanksOfOneCommunicatorShareAndThreadsFetchAtOnce) {
  const Secret secret = random_secret();
  FdExchange first(secret);
  std::vector<FdKey> keys(8);
  for (auto& key : keys) {
    key = FdKey::random();
    first.publish(key, [] { return SharedFd{memory_with("made"), 7}; });
  }
  run_threads(8, [&](int i) {
    const FdExchange mine(secret);
    const SharedFd got = mine.fetch(first.server_name(), keys[static_cast<std::size_t>(i)], soon());
    EXPECT_EQ(text_of(got.fd), "made");
  });
}

TEST(FdExchangeOf, WhatTakesLongHoldsUpNothingElse) {
  const Secret secret = random_secret();
  FdExchange exchange(secret);
  const FdKey slow = FdKey::random();
  const FdKey quick = FdKey::random();
  std::promise<void> go_on;
  const std::shared_future<void> may_go_on = go_on.get_future().share();
  std::atomic<int> begun{0};
  exchange.publish_on_demand(slow, [&begun, may_go_on] {
    ++begun;
    may_go_on.wait();
    return SharedFd{memory_with("slow"), 5};
  });
  exchange.publish(quick, memory_with("quick"), 6);
  run_threads(3, [&](int i) {
    if (i > 0) {
      EXPECT_EQ(text_of(exchange.fetch(exchange.server_name(), slow, soon()).fd), "slow");
      return;
    }
    while (begun == 0) std::this_thread::yield();
    EXPECT_EQ(text_of(exchange.fetch(exchange.server_name(), quick, soon()).fd), "quick");
    EXPECT_EQ(begun, 1);  // one after the other
    go_on.set_value();
  });
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(exchange.fetch(exchange.server_name(), slow, soon()).metadata, 5u);
}

TEST(FdExchangeOf, WhoeverWaitsMayBeInterrupted) {
  FdExchange exchange(random_secret());
  const FdKey key = FdKey::random();
  std::promise<void> go_on;
  exchange.publish_on_demand(key, [may_go_on = go_on.get_future().share()] {
    may_go_on.wait();
    return SharedFd{memory_with("late"), 0};
  });
  int looks = 0;
  const auto interrupt = [&looks] {
    if (++looks == 5) fail(ncclInternalError, "enough");
  };
  EXPECT_EQ(error_of([&] { exchange.fetch(exchange.server_name(), key, soon(), interrupt); }).code(),
            ncclInternalError);
  go_on.set_value();
}

TEST(FdExchangeOf, WhoCannotMakeWhatItOffersSaysWhy) {
  FdExchange exchange(random_secret());
  const FdKey quick = FdKey::random();
  const FdKey slow = FdKey::random();
  exchange.publish(quick, []() -> SharedFd { throw std::bad_alloc(); });
  exchange.publish_on_demand(slow, []() -> SharedFd { fail(ncclUnhandledCudaError, "no room\nfor {} bytes", 4096); });
  const auto asked = [&](const FdKey& key) {
    return error_of([&] { static_cast<void>(exchange.fetch(exchange.server_name(), key, soon())); });
  };
  EXPECT_THAT(asked(quick).what(), HasSubstr("out of memory"));
  EXPECT_THAT(asked(slow).what(), HasSubstr("no room?for 4096 bytes"));
  EXPECT_EQ(asked(slow).code(), ncclRemoteError);

  const FdKey verbose = FdKey::random();
  exchange.publish(verbose, []() -> SharedFd { fail(ncclSystemError, "{}", std::string(5000, 'x')); });
  EXPECT_THAT(asked(verbose).what(), HasSubstr(std::string(200, 'x')));
}

TEST(FdExchangeOf, WhoHasNoMemoryToSayWhyLeavesNobodyWaiting) {
  FdExchange exchange(random_secret());
  const FdKey key = FdKey::random();
  std::optional<testing::FailingAllocation> failing;  // from there on, in the thread that makes it
  std::atomic<bool> begun{false};
  exchange.publish_on_demand(key, [&]() -> SharedFd {
    failing.emplace(0, testing::FailsIn::kThisThread, testing::Fails::kAllFromThere);
    begun = true;
    throw std::bad_alloc();
  });
  const Error error = error_of([&] { static_cast<void>(exchange.fetch(exchange.server_name(), key, soon())); });
  ASSERT_TRUE(begun);
  failing.reset();
  EXPECT_EQ(error.code(), ncclRemoteError);
  EXPECT_THAT(error.what(), HasSubstr("closed the connection"));
}

TEST(FdExchangeOf, WhoHasNoMemoryToGiveWhatItHasMadeLeavesNobodyWaiting) {
  FdExchange exchange(random_secret());
  const FdKey key = FdKey::random();
  std::optional<testing::FailingAllocation> failing;
  int nth = 0;
  exchange.publish_on_demand(key, [&] {
    SharedFd made{memory_with("made"), 7};
    failing.emplace(nth, testing::FailsIn::kEveryThread);
    return made;
  });
  for (bool failed = true; failed; ++nth) {
    const auto begin = std::chrono::steady_clock::now();
    try {
      static_cast<void>(exchange.fetch(exchange.server_name(), key, begin + std::chrono::seconds(10)));
    } catch (const std::exception&) {
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << nth;
    failed = failing->has_failed();
    failing.reset();
  }
}

TEST(FdExchangeOf, WhoHasNoThreadToMakeItSaysSo) {
  FdExchange exchange(random_secret());
  const FdKey key = FdKey::random();
  exchange.publish_on_demand(key, [] { return SharedFd{memory_with("made"), 7}; });
  const auto fetch = [&] { return exchange.fetch(exchange.server_name(), key, soon()); };
  {
    const testing::NoThreads none;
    EXPECT_THAT(error_of([&] { static_cast<void>(fetch()); }).what(), HasSubstr("out of memory or of threads"));
  }
  EXPECT_EQ(text_of(fetch().fd), "made");
}

TEST(FdExchangeOf, WithdrawnUnknownAndForeignKeysAreErrors) {
  FdExchange exchange(random_secret());
  const FdKey key = FdKey::random();
  exchange.publish(key, memory_with("x"), 0);
  exchange.withdraw(key);
  EXPECT_EQ(error_of([&] { exchange.fetch(exchange.server_name(), key, soon()); }).code(), ncclRemoteError);
  exchange.publish(key, []() -> SharedFd { throw std::runtime_error("no"); });
  EXPECT_EQ(error_of([&] { exchange.fetch(exchange.server_name(), key, soon()); }).code(), ncclRemoteError);
  exchange.publish(key, memory_with("x"), 0);
  // Another communicator's secret does not open this one's door.
  const FdExchange other(random_secret());
  const FdExchange neighbour(random_secret());
  EXPECT_EQ(error_of([&] { other.fetch(exchange.server_name(), key, soon()); }).code(), ncclRemoteError);
}

TEST(FdExchangeOf, ADestroyedExchangeHasWithdrawnItsKeys) {
  const Secret secret = random_secret();
  const FdExchange stays(secret);
  const FdKey key = FdKey::random();
  {
    FdExchange goes(secret);
    goes.publish(key, memory_with("x"), 0);
    EXPECT_TRUE(stays.fetch(stays.server_name(), key, soon()).fd);
  }
  EXPECT_EQ(error_of([&] { stays.fetch(stays.server_name(), key, soon()); }).code(), ncclRemoteError);
}

TEST(FdExchangeOf, AProcessThatIsGoneIsAnErrorThatSaysWhatToTry) {
  const FdExchange exchange(random_secret());
  FdServerName nobody = exchange.server_name();
  nobody.text[12] = nobody.text[12] == 'a' ? 'b' : 'a';
  const Error error = error_of([&] { exchange.fetch(nobody, FdKey::random(), soon()); });
  EXPECT_EQ(error.code(), ncclRemoteError);
  EXPECT_THAT(error.what(), HasSubstr("network namespace"));
}

}  // namespace
}  // namespace nitinol
