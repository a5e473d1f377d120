#include "bootstrap/acceptor.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "bootstrap/network.h"
#include "bootstrap/testing.h"
#include "failing_allocation.h"
#include "scarcity.h"

namespace nitinol {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

/// On loopback.
std::shared_ptr<Listener> listen_here() {
  SocketAddress any;
  any.family = AF_INET;
  any.host = {127, 0, 0, 1};
  return Network::instance().listen(any);
}

/// What somebody who listens there is told, once that is what is wanted.
Error error_at(const Listener& listener, bool wanted) {
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    Error error = error_of([&] { listener.check(begin); });
    if ((error.code() != ncclSuccess) == wanted ||
        std::chrono::steady_clock::now() - begin > std::chrono::seconds(20)) {
      return error;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Somebody who comes there. It has its descriptor before it does.
class Client {
 public:
  explicit Client(const Listener& listener) : length_(listener.address().to_sockaddr(storage_)) {}
  void come() const { ASSERT_EQ(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&storage_), length_), 0); }
  /// Waits until it has been let in and dropped.
  void go() const {
    ::shutdown(fd_.get(), SHUT_WR);
    char none = 0;
    EXPECT_EQ(::recv(fd_.get(), &none, 1, 0), 0);
  }

 private:
  UniqueFd fd_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_storage storage_{};
  socklen_t length_;
};

TEST(Listener, SaysThatThereIsNoDescriptorForThoseWhoWaitAsLongAsThatIsSo) {
  if (!testing::kDescriptorsCanBeLimited) GTEST_SKIP();
  const auto listener = listen_here();
  const Client client(*listener);
  {
    const testing::FullDescriptors full;
    client.come();
    const Error error = error_at(*listener, true);
    EXPECT_EQ(error.code(), ncclSystemError);
    EXPECT_THAT(error.what(), HasSubstr("Too many open files"));
  }
  EXPECT_STREQ(error_at(*listener, false).what(), "no error");
}

/// Until the next who waits is let in, which takes a moment.
TEST(Listener, SaysNothingOfALackThatWasOverBeforeSomebodyCame) {
  if (!testing::kDescriptorsCanBeLimited) GTEST_SKIP();
  const auto listener = listen_here();
  const Client client(*listener);
  std::optional<testing::FullDescriptors> full(std::in_place);
  client.come();
  ASSERT_EQ(error_at(*listener, true).code(), ncclSystemError);
  full.reset();
  EXPECT_STREQ(error_of([&] { listener->check(std::chrono::steady_clock::now()); }).what(), "no error");
  EXPECT_STREQ(error_of([] { listen_here(); }).what(), "no error");
}

TEST(Listener, TakesNoDescriptorWhileNobodyWaits) {
  if (!testing::kDescriptorsCanBeLimited) GTEST_SKIP();
  const auto listener = listen_here();
  std::atomic<bool> over{false};
  std::atomic<int> refused{0};
  const testing::FewDescriptors few(2 + 1);  // a connection's ends, and the one that is for others
  std::thread another([&] {
    while (!over) {
      if (!UniqueFd(::dup(STDERR_FILENO))) ++refused;
    }
  });
  for (int i = 0; i < 2000 && refused == 0; ++i) {
    const Client client(*listener);
    client.come();
    client.go();
  }
  over = true;
  another.join();
  EXPECT_EQ(refused, 0);
}

TEST(Acceptor, LetsInWhoeverComesAsSoonAsThereIsMemory) {
  Network& network = Network::instance();
  std::promise<void> armed;
  network.reactor().post([wait = armed.get_future().share()] { wait.wait(); });
  const auto listener = listen_here();  // its acceptor begins behind that
  {
    const testing::FailingAllocation failing(0, testing::FailsIn::kEveryThread, testing::Fails::kAllFromThere);
    armed.set_value();
    while (!failing.has_failed()) std::this_thread::yield();
  }
  const Client client(*listener);
  client.come();
  client.go();
}

/// It also returns: the lock of the table is not taken twice.
TEST(ServiceTable, HasNothingOfAServiceThatItGotNoMemoryFor) {
  ensure_crypto();
  ServiceTable table;
  const Secret key = random_secret();
  testing::fail_each_allocation_of([&] {
    try {
      EXPECT_NE(table.add({key, {}}), nullptr);
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(table.find(key_id(key)), nullptr);
    }
    EXPECT_EQ(table.find(key_id(key)), nullptr);
  });
}

TEST(ServiceTable, KeepsTheFirstServiceOfAKey) {
  ensure_crypto();
  ServiceTable table;
  const Secret key = random_secret();
  const auto first = table.add({key, {}});
  EXPECT_EQ(table.add({key, {}}), nullptr);
  EXPECT_NE(table.find(key_id(key)), nullptr);
}

}  // namespace
}  // namespace nitinol
