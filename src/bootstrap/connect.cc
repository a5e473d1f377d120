// Connecting with repeats and the client's half of the proof.
#include "bootstrap/connect.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "bootstrap/connection.h"
#include "bootstrap/handshake.h"
#include "bootstrap/long_wait.h"

namespace nitinol {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kConnectSlice = 100ms;
constexpr auto kAttemptLimit = 20s;

struct TimedOut {};

bool worth_repeating(int error) {
  return error == ECONNREFUSED || error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == ECONNRESET || error == EADDRNOTAVAIL || error == EAGAIN || error == EINTR || error == EPIPE ||
         error == ECONNABORTED;
}

std::string error_text(int error) { return std::system_category().message(error); }

void wait_or_time_out(int fd, short events, Deadline deadline, const Interrupt& interrupt) {
  while (true) {
    if (interrupt) interrupt();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left <= 0ms) throw TimedOut();
    pollfd entry{fd, events, 0};
    const int count =
        ::poll(&entry, 1, static_cast<int>(std::min<std::chrono::milliseconds>(left, kConnectSlice).count()));
    if (count > 0) return;
    if (count < 0 && errno != EINTR) fail_errno(errno, "poll of a bootstrap connection");
  }
}

/// False: the peer closed; errno says more, 0 if it closed properly.
bool read_exactly(int fd, std::span<std::uint8_t> bytes, Deadline deadline, const Interrupt& interrupt) {
  while (!bytes.empty()) {
    const auto got = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(got));
      continue;
    }
    if (got == 0) errno = 0;
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) return false;
    wait_or_time_out(fd, POLLIN, deadline, interrupt);
  }
  return true;
}

std::string prove(int fd, const Secret& key, Deadline deadline, const Interrupt& interrupt) {
  const ClientHandshake handshake(key);
  const auto send = [fd](std::span<const std::uint8_t> bytes) {
    // A fresh connection has room for these few bytes.
    return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
  };
  if (!send(handshake.hello())) return error_text(errno);
  AnswerBytes answer{};
  if (!read_exactly(fd, answer, deadline, interrupt)) {
    return errno != 0 ? error_text(errno) : "it closed the connection instead of proving that it knows the secret";
  }
  const auto proof = handshake.answer(answer);
  if (!proof) return "it does not know the secret";
  if (!send(*proof)) return error_text(errno);
  return "";
}

struct Attempt {
  UniqueFd fd;
  std::string problem;
  bool repeat = true;
  bool reached = false;  // somebody listens there
  bool refused = false;  // nobody does
};

struct Target {
  const SocketAddress& address;
  const Secret& key;
  Deadline deadline;
};

int connect_socket(int fd, const SocketAddress& to, Deadline deadline, const Interrupt& interrupt) {
  sockaddr_storage storage;
  const socklen_t length = to.to_sockaddr(storage);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&storage), length) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  wait_or_time_out(fd, POLLOUT, deadline, interrupt);
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

Attempt attempt_once(UniqueFd fd, const Target& target, const Interrupt& interrupt) {
  try {
    const int error = connect_socket(fd.get(), target.address, target.deadline, interrupt);
    if (error != 0) return {UniqueFd(), error_text(error), worth_repeating(error), false, error == ECONNREFUSED};
    tune_tcp(fd.get());
    std::string problem = prove(fd.get(), target.key, target.deadline, interrupt);
    if (!problem.empty()) return {UniqueFd(), std::move(problem), true, true};
  } catch (const TimedOut&) {
    return {UniqueFd(), "it did not answer in time", true};
  }
  return {std::move(fd), "", false};
}

UniqueFd socket_to(const SocketAddress& address) {
  return UniqueFd(::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

std::string complaint(const ConnectArguments& arguments, const Attempt& attempt, int attempts) {
  const bool unserved = attempt.reached && !arguments.unserved.empty();
  return formatted("cannot connect to {} at {}: {} ({} attempts){}", arguments.peer, arguments.to.to_string(),
                   unserved ? arguments.unserved : attempt.problem, attempts, arguments.fate ? arguments.fate() : "");
}

}  // namespace

UniqueFd try_to_connect(const SocketAddress& to, const Secret& key, Deadline deadline, const Interrupt& interrupt,
                        bool* refused) {
  UniqueFd fd = socket_to(to);
  if (!fd) return fd;
  Attempt attempt = attempt_once(std::move(fd), {to, key, deadline}, interrupt);
  if (refused != nullptr) *refused = attempt.refused;
  return std::move(attempt.fd);
}

void wait_for_fd(int fd, short events, Deadline deadline, const Interrupt& interrupt) {
  try {
    wait_or_time_out(fd, events, deadline, interrupt);
  } catch (const TimedOut&) {
    fail(ncclRemoteError, "it did not answer in time");
  }
}

std::string prove_as_client(int fd, const Secret& key, Deadline deadline, const Interrupt& interrupt) {
  try {
    return prove(fd, key, deadline, interrupt);
  } catch (const TimedOut&) {
    return "it did not answer in time";
  }
}

void sleep_interruptibly(std::chrono::milliseconds duration, Deadline deadline, const Interrupt& interrupt) {
  const Deadline end = std::min(deadline, Clock::now() + duration);
  for (auto now = Clock::now(); now < end; now = Clock::now()) {
    if (interrupt) interrupt();
    std::this_thread::sleep_for(std::min<Clock::duration>(end - now, kConnectSlice));
  }
}

bool Refusals::are_steady(bool refused_now) {
  const auto now = Clock::now();
  if (!std::exchange(refuses_, refused_now)) since_ = now;
  return refused_now && now - since_ >= patience_;
}

UniqueFd connect_to_peer(const ConnectArguments& arguments) {
  const BootstrapOptions& options = arguments.options;
  const Deadline begin = Clock::now();
  bool warned = options.warn_after.count() == 0;
  int attempts = 0;
  Refusals refusals(arguments.patience_with_refusals);
  while (true) {
    UniqueFd fd = socket_to(arguments.to);
    if (!fd) fail_errno(errno, formatted("creating a socket to reach {}", arguments.peer));
    const Deadline limit = std::min(arguments.deadline, Clock::now() + kAttemptLimit);
    Attempt attempt = attempt_once(std::move(fd), {arguments.to, arguments.key, limit}, arguments.interrupt);
    ++attempts;
    if (attempt.fd) return std::move(attempt.fd);
    const bool repeats = attempt.repeat && attempts <= options.retry_count;
    const bool refused = refusals.are_steady(attempt.refused) || (attempt.refused && !repeats);
    if (refused && arguments.in_vain) arguments.in_vain();
    if (repeats && !warned && Clock::now() - begin >= options.warn_after) {
      warned = true;
      tell_of_wait([&] {
        return formatted("still trying (NCCL_SOCKET_RETRY_CNT or NITINOL_INIT_TIMEOUT ends it): {}",
                         complaint(arguments, attempt, attempts));
      });
    }
    if (repeats) sleep_interruptibly(options.retry_sleep * attempts, arguments.deadline, arguments.interrupt);
    // An attempt that has no time would say no more than that.
    if (!repeats || Clock::now() >= arguments.deadline) {
      const char* const advice = attempt.reached
                                     ? "The address can be reached: check that the rank there makes the same call"
                                     : "Check that its process is alive and that this address is reachable from here "
                                       "(NCCL_SOCKET_IFNAME chooses the interface)";
      fail(ncclSystemError, "{}. {}", complaint(arguments, attempt, attempts), advice);
    }
  }
}

}  // namespace nitinol
