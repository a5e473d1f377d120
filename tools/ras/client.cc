#include "client.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace nitinol::ras_tool {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// The processes of a host share the port, and the system chooses which of them gets a connection: one that is stopped
// says nothing, the next one does.
constexpr int kAttempts = 12;
constexpr auto kGreetingPatience = 700ms;
constexpr auto kConnectPatience = 5s;
constexpr auto kMargin = 10s;  // for the answer to be written, beyond the timeout

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string where(const Options& options) { return options.host + " port " + options.port; }

/// False if nothing came in time.
bool wait_for(int fd, short events, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left <= 0ms) return false;
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw NoAnswer(std::string("poll: ") + std::strerror(errno));
  }
}

/// A connection to one address; nothing, and `trouble`, if there is none.
std::optional<Socket> connect_to(const addrinfo& address, std::string& trouble) {
  Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = 0;
  if (socket.get() < 0 || (::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS)) {
    error = errno;
  } else if (!wait_for(socket.get(), POLLOUT, Clock::now() + kConnectPatience)) {
    error = ETIMEDOUT;
  } else {
    socklen_t size = sizeof(error);
    if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  }
  if (error == 0) return socket;
  trouble = std::strerror(error);
  return std::nullopt;
}

/// An address at which the job may be, and what came of trying it.
struct Place {
  std::shared_ptr<const addrinfo> address;  ///< one of a list, which lives as long
  std::string name{};                       ///< "127.0.0.1"
  enum class State : int { kSilent, kUnreached, kStrange } state = State::kSilent;
  std::string trouble{};
};

std::string name_of(const addrinfo& address) {
  std::array<char, NI_MAXHOST> name{};
  const int code =
      getnameinfo(address.ai_addr, address.ai_addrlen, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST);
  return code == 0 ? name.data() : "an address without a name";
}

std::vector<Place> places_of(const Options& options) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  // A job that is told localhost listens at 127.0.0.1, or else at ::1, whatever /etc/hosts says; no name means both.
  const char* const host = options.host == "localhost" ? nullptr : options.host.c_str();
  const int code = getaddrinfo(host, options.port.c_str(), &hints, &found);
  if (code != 0) throw NoAnswer("cannot find " + where(options) + ": " + gai_strerror(code));
  const std::shared_ptr<const addrinfo> all(found, freeaddrinfo);
  std::vector<Place> places;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    places.push_back({.address = {all, entry}, .name = name_of(*entry)});
  }
  const auto is_v4 = [](const Place& place) { return place.address->ai_family == AF_INET; };
  if (host == nullptr) std::stable_partition(places.begin(), places.end(), is_v4);
  return places;
}

/// False: the connection is lost.
bool send_line(const Socket& socket, const std::string& line) {
  const std::string text = line + "\n";
  return ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

/// Adds what comes to `text`; false at the end.
bool receive(const Socket& socket, std::string& text) {
  std::array<char, 65536> buffer;
  const auto got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
  if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got < 0) throw NoAnswer(std::string("the connection was lost: ") + std::strerror(errno));
  return got > 0;
}

/// One line; nothing if it does not come in time or the connection ends before.
std::optional<std::string> receive_line(const Socket& socket, std::string& pending, Clock::time_point deadline) {
  while (true) {
    const auto end = pending.find('\n');
    if (end != std::string::npos) {
      const std::string line = pending.substr(0, end);
      pending.erase(0, end + 1);
      return line;
    }
    if (!wait_for(socket.get(), POLLIN, deadline) || !receive(socket, pending)) return std::nullopt;
  }
}

/// A connection to a process of a job; nothing if none answers there.
std::optional<Socket> greet_at(Place& place, std::string& pending) {
  auto socket = connect_to(*place.address, place.trouble);
  place.state = socket ? Place::State::kSilent : Place::State::kUnreached;
  if (!socket) return std::nullopt;
  pending.clear();
  try {
    if (!send_line(*socket, "CLIENT PROTOCOL 2")) return std::nullopt;
    const auto line = receive_line(*socket, pending, Clock::now() + kGreetingPatience);
    if (!line) return std::nullopt;
    if (line->rfind("SERVER PROTOCOL ", 0) == 0) return socket;
    place.state = Place::State::kStrange;
    place.trouble = *line;
  } catch (const NoAnswer&) {  // it went away; another one may be there
  }
  return std::nullopt;
}

std::string words_for(const Place& place) {
  switch (place.state) {
    case Place::State::kUnreached: return place.name + ": " + place.trouble;
    case Place::State::kSilent:
      return place.name + " says nothing: its process may be stopped, or it is another program";
    case Place::State::kStrange: return place.name + " says: " + place.trouble;
  }
  return place.name;
}

[[noreturn]] void give_up(const Options& options, const std::vector<Place>& places) {
  bool reached = false;
  std::string tried;
  for (const Place& place : places) {
    reached = reached || place.state != Place::State::kUnreached;
    tried += (tried.empty() ? "" : "; ") + words_for(place);
  }
  if (reached) throw NoAnswer("no job answers at " + where(options) + " (" + tried + ")");
  throw NoAnswer("nothing listens at " + where(options) + " (" + tried +
                 "): is a job with several ranks running on that host, with NCCL_RAS_ENABLE and the same "
                 "NCCL_RAS_ADDR?");
}

/// A connection to a process of the job, at the first address where one answers: at others may be other programs.
Socket greet(const Options& options, std::string& pending) {
  std::vector<Place> places = places_of(options);
  for (int i = 0; i < kAttempts; ++i) {
    for (Place& place : places) {
      if (place.state != Place::State::kSilent) continue;
      if (auto socket = greet_at(place, pending)) return std::move(*socket);
    }
  }
  give_up(options, places);
}

std::string seconds_text(double seconds) {
  std::string text = std::to_string(seconds);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::string ask(const Options& options, const std::string& question, bool json) {
  std::string pending;
  const Socket socket = greet(options, pending);
  const auto soon = Clock::now() + kConnectPatience;
  const std::string commands[] = {"TIMEOUT " + seconds_text(options.timeout),
                                  std::string("SET FORMAT ") + (json ? "json" : "text")};
  for (const std::string& command : commands) {
    const auto line = send_line(socket, command) ? receive_line(socket, pending, soon) : std::nullopt;
    if (!line) throw NoAnswer("the process that answered at " + where(options) + " has gone silent");
    if (*line != "OK") throw NoAnswer(where(options) + " says: " + *line);
  }
  if (!send_line(socket, question)) throw NoAnswer("the connection was lost");
  const auto margin =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.timeout) + kMargin);
  const bool endless = options.timeout == 0;
  while (true) {
    if (!wait_for(socket.get(), POLLIN, endless ? Clock::time_point::max() - 1h : Clock::now() + margin)) {
      throw NoAnswer("the process that was asked has gone silent, or has too many other questions to answer");
    }
    if (!receive(socket, pending)) break;
  }
  if (pending.empty()) throw NoAnswer("the process that was asked went away before it could answer");
  if (pending.rfind("ERROR", 0) == 0)
    throw NoAnswer(where(options) + " says: " + pending.substr(0, pending.find('\n')));
  return pending;
}

}  // namespace nitinol::ras_tool
