#include "diagnostics/ras/service.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/settings_testing.h"
#include "bootstrap/closed_descriptors_testing.h"
#include "bootstrap/waker.h"
#include "failing_allocation.h"

namespace nitinol::ras {
namespace {

TEST(Service, StopsThoughTheProgramHasClosedItsDescriptors) {
  for (const char* const kind : {"anon_inode:[timerfd]", "anon_inode:[eventpoll]"}) {
    const Waker dumps;
    dumps.wake();
    const auto before = nitinol::testing::open_descriptors();
    Registry registry;
    ServiceOptions options;
    options.enabled = false;
    options.dump_descriptor = dumps.fd();
    Service service(std::move(options), registry);
    pollfd unread{dumps.fd(), POLLIN, 0};
    while (poll(&unread, 1, 0) != 0) std::this_thread::yield();  // until the thread runs
    ASSERT_EQ(1, nitinol::testing::close_new_descriptors(before, kind));
    ASSERT_TRUE(service.stop());
  }
}

ServiceOptions dumps_only() {
  ServiceOptions options;
  options.enabled = false;
  return options;
}

TEST(Service, StopsWithoutMemory) {
  Registry registry;
  Service service(dumps_only(), registry);
  const nitinol::testing::FailingAllocation failing(0);
  EXPECT_TRUE(service.stop());
}

TEST(Service, LeavesTheSignalsOfWhoeverCannotStartItAsTheyWere) {
  Registry registry;
  nitinol::testing::fail_each_allocation_of([&] {
    try {
      Service service(dumps_only(), registry);
      EXPECT_TRUE(service.stop());
    } catch (const std::exception&) {
    }
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    EXPECT_FALSE(sigismember(&mask, SIGTERM));
  });
}

TEST(ServiceOptions, TakeTheTimeoutFactorFromTheSettings) {
  {
    const ScopedVariable unset("NCCL_RAS_TIMEOUT_FACTOR", nullptr);
    EXPECT_EQ(options_from_settings().timeout_factor, 1);
  }
  const ScopedVariable seven("NCCL_RAS_TIMEOUT_FACTOR", "7");
  EXPECT_EQ(options_from_settings().timeout_factor, 7);
}

/// Where this process listens at the port, as the system tells of its sockets: hexadecimal, as in /proc/net/tcp.
std::vector<std::string> own_listeners(int port) {
  std::set<std::string> own;
  for (const int fd : nitinol::testing::open_descriptors()) {
    std::error_code none;
    own.insert(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), none).string());
  }
  std::vector<std::string> found;
  for (const char* const table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retries, uid, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retries >> uid >> timeout >> inode;
      const size_t colon = local.find(':');
      const bool listens = state == "0A" && own.contains("socket:[" + inode + "]");
      if (listens && std::stoi(local.substr(colon + 1), nullptr, 16) == port) found.push_back(local.substr(0, colon));
    }
  }
  return found;
}

TEST(Service, ListensAtTheLoopbackInterfaceAloneUnlessItIsToldOtherwise) {
  const ScopedVariable unset("NCCL_RAS_ADDR", nullptr);
  Registry registry;
  Service service(options_from_settings(), registry);
  std::vector<std::string> listeners;
  for (int i = 0; i < 5000 && (listeners = own_listeners(28028)).empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (listeners.empty()) GTEST_SKIP() << "another program has the port";
  const std::string v4 = "0100007F";
  const std::string v6 = "00000000000000000000000001000000";
  for (const std::string& where : listeners) EXPECT_TRUE(where == v4 || where == v6) << where;
  ASSERT_TRUE(service.stop());
}

}  // namespace
}  // namespace nitinol::ras
