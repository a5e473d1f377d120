#include "base/host.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>

#include "base/settings_testing.h"
#include "base/thread_name.h"

namespace nitinol {
namespace {

TEST(HostName, EndsBeforeTheFirstDot) {
  EXPECT_FALSE(host_name().empty());
  EXPECT_EQ(host_name().find('.'), std::string::npos);
}

TEST(HostIdentity, IsStableAndReplacedByTheVariable) {
  const ScopedVariable unset("NCCL_HOSTID", nullptr);
  const std::uint64_t real = host_identity();
  EXPECT_EQ(host_identity(), real);
  const ScopedVariable given("NCCL_HOSTID", "elsewhere");
  EXPECT_EQ(host_identity(), stable_hash("elsewhere"));
  EXPECT_NE(host_identity(), real);
}

TEST(NetworkIdentity, IsThatOfTheNetworkNamespace) {
  const std::uint64_t ours = network_identity();
  EXPECT_NE(ours, 0U);
  EXPECT_EQ(network_identity(), ours);
  constexpr int kForbidden = 2;
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) _exit(kForbidden);
    _exit(network_identity() != ours ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == kForbidden) GTEST_SKIP() << "this system lets us have no network of our own";
  EXPECT_EQ(status, 0);
}

TEST(StableHash, TellsNearTextsApart) {
  EXPECT_NE(stable_hash("a"), stable_hash("b"));
  EXPECT_NE(stable_hash(""), stable_hash(std::string_view("\0", 1)));
}

std::string name_after(const char* wish) {
  std::array<char, 32> name{};
  std::thread([&] {
    set_thread_name(wish);
    pthread_getname_np(pthread_self(), name.data(), name.size());
  }).join();
  return name.data();
}

TEST(ThreadName, IsSetOnlyOnRequestAndCutTo15Characters) {
  {
    const ScopedVariable off("NCCL_SET_THREAD_NAME", nullptr);
    EXPECT_NE(name_after("nitinol-one"), "nitinol-one");
  }
  const ScopedVariable on("NCCL_SET_THREAD_NAME", "1");
  EXPECT_EQ(name_after("nitinol-one"), "nitinol-one");
  EXPECT_EQ(name_after("nitinol-0123456789"), "nitinol-0123456");
}

}  // namespace
}  // namespace nitinol
