// A program that closes descriptors which are not its own, and opens files of its own, is left alone with those.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/temporary_folder_testing.h"
#include "base/unique_fd.h"
#include "bootstrap/closed_descriptors_testing.h"
#include "bootstrap/loopback_testing.h"
#include "bootstrap/waker.h"
#include "diagnostics/ras/clients.h"
#include "diagnostics/ras/dump_signal.h"
#include "diagnostics/ras/link.h"
#include "diagnostics/ras/service.h"

namespace nitinol::ras {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);

/// What the program has at the number from now on, unless the library closes it.
class Takeover {
 public:
  Takeover(int number, const UniqueFd& file) : number_(number) { syscall(SYS_dup3, file.get(), number, O_CLOEXEC); }
  Takeover(const Takeover&) = delete;
  Takeover& operator=(const Takeover&) = delete;
  ~Takeover() {
    EXPECT_NE(::fcntl(number_, F_GETFD), -1) << "the library has closed it";
    syscall(SYS_close, number_);
  }

 private:
  int number_;
};

/// The two ends of a connection.
struct Pair {
  UniqueFd one;
  UniqueFd other;

  Pair() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
    one = UniqueFd(ends[0]);
    other = UniqueFd(ends[1]);
  }
};

bool has_something(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

SocketAddress name_of(int fd, int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  auto* const here = reinterpret_cast<sockaddr*>(&storage);
  if (name(fd, here, &length) != 0) return {};
  return SocketAddress::from_sockaddr(here).value_or(SocketAddress());
}

/// The number of the other end of a connection, which is in this process, too.
int other_end_of(const UniqueFd& fd) {
  const SocketAddress self = name_of(fd.get(), ::getsockname);
  for (const int each : nitinol::testing::open_descriptors()) {
    if (name_of(each, ::getpeername) == self) return each;
  }
  throw std::runtime_error("there is no other end");
}

UniqueFd listening_socket(SocketAddress& address) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  address = bind_to_loopback(fd.get());
  if (::listen(fd.get(), 8) != 0) throw std::runtime_error("listen");
  return fd;
}

std::string heard(const UniqueFd& fd, std::size_t size) {
  std::string text(size, ' ');
  const auto got = ::recv(fd.get(), text.data(), size, MSG_WAITALL);
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return text;
}

void say(const UniqueFd& fd, const std::string& text) {
  EXPECT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

class ReactorWithThread : public Reactor {
 public:
  ~ReactorWithThread() { end(); }
  void begin() {
    thread_ = std::thread([this] { run(); });
  }
  void end() {
    stop();
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
};

class ClosedDescriptorsOfClients : public ::testing::Test {
 protected:
  ClosedDescriptorsOfClients()
      : clients_(reactor_, 1, [this](const Question&, const Gather::Done&) {
          ++questions_;
          return std::shared_ptr<Gather>();
        }) {
    std::string trouble;
    const auto before = nitinol::testing::open_descriptors();
    EXPECT_TRUE(clients_.listen({address_}, trouble)) << trouble;
    for (const int fd : nitinol::testing::open_descriptors()) {
      if (!before.contains(fd)) listening_ = fd;
    }
    reactor_.begin();
  }
  ~ClosedDescriptorsOfClients() override { reactor_.end(); }

  /// Until it has been seen twice which descriptors are closed: all that were before have been told of.
  void await_looks() {
    std::promise<void> over;
    reactor_.post([&] {
      looking_ = reactor_.add(looked_at_.get(), EPOLLIN, [this, &over](std::uint32_t) {
        if (++looks_ < 2) return;
        reactor_.remove(looking_, looked_at_.get());
        over.set_value();
      });
      syscall(SYS_dup3, port_.get(), looked_at_.get(), O_CLOEXEC);
    });
    ASSERT_EQ(over.get_future().wait_for(kPatience), std::future_status::ready);
  }

  const UniqueFd port_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const SocketAddress address_ = bind_to_loopback(port_.get());
  const UniqueFd looked_at_{eventfd(0, EFD_CLOEXEC)};
  Reactor::Token looking_ = 0;
  int looks_ = 0;
  std::atomic<int> questions_{0};
  ReactorWithThread reactor_;
  int listening_ = -1;
  Clients clients_;
};

TEST_F(ClosedDescriptorsOfClients, NobodyIsLetInAtASocketThatIsTheProgramsNow) {
  SocketAddress address;
  const UniqueFd own = listening_socket(address);
  const Takeover taken(listening_, own);
  const UniqueFd client = connect_to(address);
  await_looks();
  EXPECT_TRUE(has_something(own.get())) << "somebody else has accepted it";
}

TEST_F(ClosedDescriptorsOfClients, WhatTheProgramIsToReadIsLeftToIt) {
  const UniqueFd client = connect_to(address_);
  say(client, "TIMEOUT 1\n");
  EXPECT_EQ(heard(client, 3), "OK\n");
  const Pair own;
  const Takeover taken(other_end_of(client), own.one);
  say(own.other, "STATUS\n");
  await_looks();
  EXPECT_TRUE(has_something(own.one.get()));
  EXPECT_EQ(questions_, 0);
}

TEST(ClosedDescriptors, OfALinkIsNotReadFrom) {
  SocketAddress address;
  const UniqueFd other_process = listening_socket(address);
  std::promise<std::string> told;
  std::shared_ptr<Link> link;
  ReactorWithThread reactor;
  reactor.begin();
  reactor.post([&] {
    link = Link::start(reactor, {{address, random_secret()}}, {},
                       [&](const auto&, const std::string& trouble) { told.set_value(trouble); });
  });
  pollfd waiting{other_process.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&waiting, 1, 20'000), 1);
  const UniqueFd accepted(::accept4(other_process.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_EQ(heard(accepted, sizeof(HelloBytes)).size(), sizeof(HelloBytes));
  const Pair own;
  const Takeover taken(other_end_of(accepted), own.one);
  say(own.other, "not for the library");
  auto trouble = told.get_future();
  ASSERT_EQ(trouble.wait_for(kPatience), std::future_status::ready);
  EXPECT_NE(trouble.get().find("has closed descriptors of the library"), std::string::npos);
  EXPECT_TRUE(has_something(own.one.get()));
  reactor.end();
  link.reset();
}

/// A rank that counts how often it is dumped.
struct CountingSubject : Subject {
  RankReport health() const override { return {}; }
  bool has_failed() const override { return false; }
  std::string dump(bool) const override { return std::to_string(++dumps); }
  mutable std::atomic<int> dumps{0};
};

bool comes_true(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return condition();
}

TEST(ClosedDescriptors, OfTheDumpSignalIsNotTakenForTheSignal) {
  ensure_crypto();
  const TemporaryFolder folder;
  const std::array<Peer, 2> peers{Peer{.rank = 0}, Peer{.rank = 1}};
  CountingSubject rank;
  Registry registry;
  registry.set_dump_pattern(folder.file("dump"));
  registry.enter({.id = {1}, .secret = random_secret(), .rank = 0, .peers = peers}, rank);
  std::string trouble;
  ServiceOptions options;
  options.enabled = false;
  const int number = options.dump_descriptor = watch_signal(SIGUSR2, trouble);
  Service service(std::move(options), registry);
  raise(SIGUSR2);
  ASSERT_TRUE(comes_true([&] { return rank.dumps == 1; }));
  {
    const Waker own;
    own.wake();
    const UniqueFd file(::dup(own.fd()));
    const Takeover taken(number, file);
    EXPECT_TRUE(comes_true([&] { return watch_signal(SIGUSR2, trouble) != number; })) << "nobody has noticed";
    EXPECT_TRUE(has_something(own.fd()));
    EXPECT_EQ(rank.dumps, 1);
  }
  ASSERT_TRUE(service.stop());
  registry.leave({1}, 0);
  forget_signal_descriptor();
  signal(SIGUSR2, SIG_DFL);
}

}  // namespace
}  // namespace nitinol::ras
