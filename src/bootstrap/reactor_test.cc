#include "bootstrap/reactor.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "bootstrap/closed_descriptors_testing.h"
#include "failing_allocation.h"

namespace nitinol {
namespace {

class ReactorWithout : public ::testing::TestWithParam<const char*> {};

/// Nothing is woken by a descriptor that is closed, nor does who waits for it notice.
TEST_P(ReactorWithout, ItsDescriptorsStillRunsWhatIsPostedAndStops) {
  const auto before = testing::open_descriptors();
  Reactor reactor;
  std::thread thread([&] { reactor.run(); });
  std::atomic<int> ran{0};
  reactor.post([&] { ran = 1; });
  while (ran < 1) std::this_thread::yield();
  ASSERT_EQ(1, testing::close_new_descriptors(before, GetParam()));
  reactor.post([&] { ran = 2; });
  while (ran < 2) std::this_thread::yield();
  reactor.stop();
  thread.join();
}

INSTANTIATE_TEST_SUITE_P(Some, ReactorWithout, ::testing::Values("anon_inode:[timerfd]", "anon_inode:[eventpoll]"));

/// What a callback is told of a descriptor of its own once the program has closed some.
std::uint32_t told_after(const std::function<void(int own, const std::set<int>& before)>& close) {
  const auto before = testing::open_descriptors();
  const UniqueFd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Reactor reactor;
  std::uint32_t told = 0;
  reactor.add(fd.get(), EPOLLIN, [&](std::uint32_t events) {
    told = events;
    reactor.stop();
  });
  EXPECT_TRUE(reactor.is_whole());
  close(fd.get(), before);
  reactor.run();
  return told;
}

TEST(Reactor, TellsWhoseDescriptorIsClosed) {
  EXPECT_EQ(told_after([](int own, const auto&) { syscall(SYS_close, own); }), Reactor::kClosed);
}

TEST(Reactor, TellsWhoseNumberIsAnothers) {
  const UniqueFd other(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  EXPECT_EQ(told_after([&](int own, const auto&) { dup3(other.get(), own, O_CLOEXEC); }), Reactor::kClosed);
}

TEST(Reactor, TellsAllIfItsOwnDescriptorsAreClosed) {
  for (const char* const kind : {"anon_inode:[timerfd]", "anon_inode:[eventpoll]"}) {
    EXPECT_EQ(told_after([&](int, const auto& before) { testing::close_new_descriptors(before, kind); }),
              Reactor::kBlind);
  }
}

/// A descriptor at which something is ready for ever.
UniqueFd something_ready() { return UniqueFd(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)); }

/// As after the process has stood still for long: the timer is overdue, and what it was for has come.
TEST(Reactor, SeesWhatIsThereBeforeItsTimersRun) {
  const UniqueFd fd = something_ready();
  Reactor reactor;
  std::vector<std::string> order;
  reactor.run_after(std::chrono::seconds(-10), [&] {
    order.emplace_back("timer");
    reactor.stop();
  });
  // What comes of it takes some rounds more, as a connection does that is accepted, greeted and read.
  std::function<void(int)> go_on = [&](int step) {
    order.push_back(std::to_string(step));
    if (step < 4) reactor.post([&go_on, step] { go_on(step + 1); });
  };
  Reactor::Token token = 0;
  token = reactor.add(fd.get(), EPOLLIN, [&](std::uint32_t) {
    reactor.remove(token, fd.get());
    go_on(1);
  });
  reactor.run();
  EXPECT_THAT(order, ::testing::ElementsAre("1", "2", "3", "4", "timer"));
}

TEST(Reactor, ATimerThatWasInTimeIsCancelledByWhatIsThere) {
  const UniqueFd fd = something_ready();
  Reactor reactor;
  const Reactor::Timer timer = reactor.run_after(std::chrono::seconds(-10), [] { ADD_FAILURE() << "too hasty"; });
  reactor.add(fd.get(), EPOLLIN, [&](std::uint32_t) {
    reactor.cancel(timer);
    reactor.stop();
  });
  reactor.run();
}

TEST(Reactor, RunsTimersThoughThereIsAlwaysSomethingReady) {
  const UniqueFd fd = something_ready();
  Reactor reactor;
  reactor.add(fd.get(), EPOLLIN, [](std::uint32_t) {});
  int ran = 0;
  const std::function<void()> again = [&] {
    if (++ran == 3) return reactor.stop();
    reactor.run_after(std::chrono::milliseconds(0), again);
  };
  reactor.run_after(std::chrono::milliseconds(0), again);
  reactor.run();
  EXPECT_EQ(ran, 3);
}

struct Counted : Reactor::Leaver {
  explicit Counted(Reactor& in) : reactor(in) {}
  void leave() override {
    order += std::to_string(++left);
    reactor.stop();
  }
  Reactor& reactor;
  int left = 0;
  std::string order;
};

TEST(Reactor, AskingToLeaveTakesNoMemoryAndIsDoneOnceBehindWhatWasPosted) {
  Reactor reactor;
  const auto leaver = std::make_shared<Counted>(reactor);
  reactor.post([&] { leaver->order += "posted "; });
  {
    const testing::FailingAllocation failing(0);
    reactor.ask_to_leave(leaver);
    reactor.ask_to_leave(leaver);
    EXPECT_FALSE(failing.has_failed());
  }
  reactor.run();
  EXPECT_EQ(leaver->order, "posted 1");
  EXPECT_EQ(leaver.use_count(), 1);
}

TEST(Reactor, AddsNothingThatItGotNoMemoryFor) {
  const UniqueFd fd = something_ready();
  Reactor reactor;
  testing::fail_each_allocation_of(
      [&] { reactor.remove(reactor.add(fd.get(), EPOLLIN, [](std::uint32_t) {}), fd.get()); });
}

TEST(Reactor, LeavesTheSignalsOfWhoeverCannotStartItAsTheyWere) {
  auto* const reactor = new Reactor;  // once it has started, its thread lives as long as the process
  testing::fail_each_allocation_of([&] {
    try {
      reactor->start();
    } catch (const std::exception&) {
    }
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    EXPECT_FALSE(sigismember(&mask, SIGTERM));
  });
}

}  // namespace
}  // namespace nitinol
