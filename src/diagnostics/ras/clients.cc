#include "diagnostics/ras/clients.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "bootstrap/connection.h"
#include "bootstrap/interfaces.h"
#include "diagnostics/ras/render.h"

namespace nitinol::ras {
namespace {

using namespace std::chrono_literals;

constexpr int kBacklog = 64;
constexpr int kAcceptsAtOnce = 16;
constexpr std::size_t kMostClients = 64;
constexpr std::size_t kMostAsking = 4;
constexpr int kMostMistakes = 16;
constexpr std::size_t kLongestLine = 256;
constexpr std::size_t kMostInput = 4096;
constexpr std::size_t kMostReplies = 4096;  // unsent bytes of one that only commands and never reads
constexpr auto kAnswerPatience = 5s;
constexpr std::chrono::milliseconds kSilencePatience = 60s;
constexpr auto kIdlePatience = 60s;
constexpr auto kSendPatience = 30s;
constexpr auto kLinger = 2s;
constexpr auto kSweepInterval = 500ms;
constexpr auto kPause = 50ms;
constexpr std::uint32_t kNoMore = Reactor::kClosed | Reactor::kBlind;

std::string answer_to(const Command::Kind question, bool json, const Job& job) {
  if (question == Command::Kind::kDump) return json ? render_dumps_json(job) : render_dumps_text(job);
  return json ? render_json(job) : render_text(job, question == Command::Kind::kVerboseStatus);
}

}  // namespace

bool is_of_this_host(const SocketAddress& address) {
  if (address.is_loopback()) return true;
  const auto interfaces = list_interfaces();
  return std::any_of(interfaces.begin(), interfaces.end(), [&](const NetworkInterface& interface) {
    return interface.address.family == address.family && interface.address.host == address.host;
  });
}

Clients::Clients(Reactor& reactor, int timeout_factor, Ask ask)
    : reactor_(reactor), timeout_factor_(timeout_factor), ask_(std::move(ask)) {}

std::optional<SocketAddress> Clients::listen(const std::vector<SocketAddress>& addresses, std::string& trouble) {
  for (const SocketAddress& address : addresses) {
    trouble = listen_at(address);
    if (trouble.empty()) return address;
  }
  return std::nullopt;
}

std::string Clients::listen_at(const SocketAddress& address) {
  const auto trouble = [&] { return address.to_string() + ": " + std::system_category().message(errno); };
  OwnSocket fd{UniqueFd(::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))};
  if (!fd) return trouble();
  const int one = 1;
  // Shared by the processes of one user: the system gives each new client to one of those that live.
  if (setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0) return trouble();
  if (setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) != 0) return trouble();
  sockaddr_storage storage;
  const socklen_t length = address.to_sockaddr(storage);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0) return trouble();
  if (::listen(fd.get(), kBacklog) != 0) return trouble();
  listening_ = std::move(fd);
  listening_token_ = reactor_.add(listening_.get(), EPOLLIN, [this](std::uint32_t events) { on_listening(events); });
  return "";
}

void Clients::on_listening(std::uint32_t events) {
  if ((events & kNoMore) != 0) return stop_listening();
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    sockaddr_storage storage{};
    socklen_t length = sizeof(storage);
    UniqueFd fd(
        accept4(listening_.get(), reinterpret_cast<sockaddr*>(&storage), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      const auto peer = SocketAddress::from_sockaddr(reinterpret_cast<sockaddr*>(&storage));
      const bool local = peer && is_of_this_host(*peer);
      admit(std::move(fd), local);
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      if (!clients_.empty()) return drop_one();
      return pause();
    }
    if (errno != EINTR && errno != ECONNABORTED) return;
  }
}

/// Instead of spinning.
void Clients::pause() {
  reactor_.modify(listening_token_, listening_.get(), 0);
  reactor_.run_after(kPause, [this] {
    if (listening_.is_there()) reactor_.modify(listening_token_, listening_.get(), EPOLLIN);
  });
}

void Clients::stop_listening() {
  reactor_.remove(listening_token_, listening_.get());
  listening_.reset();
  log_info(Subsystem::kRas, "RAS listens for clients no more: the program has closed descriptors of the library");
}

void Clients::admit(UniqueFd fd, bool local) {
  if (clients_.size() >= kMostClients) drop_one();
  Client& added = clients_.emplace_back();
  const auto position = std::prev(clients_.end());
  added.fd = OwnSocket(std::move(fd));
  added.timeout = kAnswerPatience * timeout_factor_;
  enter(added, Stage::kReading);
  added.token =
      reactor_.add(added.fd.get(), EPOLLIN, [this, position](std::uint32_t events) { on_events(position, events); });
  sweep_later();
  if (local) return;
  reply(added, "ERROR: health monitoring answers clients of its own host only; run nitinol-ras there\n");
  enter(added, Stage::kSending);
  update(position);
}

/// Who has asked nothing first, and the oldest of those.
void Clients::drop_one() {
  auto victim = clients_.begin();
  for (auto position = clients_.begin(); position != clients_.end(); ++position) {
    if (position->stage != Stage::kReading) continue;
    victim = position;
    break;
  }
  drop(victim);
}

void Clients::drop(Position position) {
  reactor_.remove(position->token, position->fd.get());
  const bool asking = position->stage == Stage::kAsking;
  clients_.erase(position);
  if (asking) start_waiting();
}

void Clients::sweep() {
  sweeping_ = false;
  if (clients_.empty()) return;
  sweep_later();
  const auto now = Reactor::Clock::now();
  for (auto position = clients_.begin(); position != clients_.end();) {
    const auto next = std::next(position);
    // There may have been no memory to ask, or for the answer: nobody brings one any more.
    const bool is_lost = position->stage == Stage::kAsking && !position->search;
    if (is_lost || position->deadline <= now) drop(position);
    position = next;
  }
}

void Clients::sweep_later() {
  if (sweeping_) return;
  reactor_.run_after(kSweepInterval, [this] { sweep(); });
  sweeping_ = true;  // not before: without memory for it the next client tries again
}

void Clients::enter(Client& client, Stage stage) {
  using Time = Reactor::Clock::time_point;
  const auto now = Reactor::Clock::now();
  client.stage = stage;
  switch (stage) {
    case Stage::kReading: client.deadline = now + kIdlePatience * timeout_factor_; break;
    case Stage::kWaiting:
    case Stage::kAsking: client.deadline = Time::max(); break;  // the answer has a limit of its own
    case Stage::kSending: client.deadline = now + kSendPatience * timeout_factor_; break;
    case Stage::kLingering: client.deadline = now + kLinger; break;
  }
}

void Clients::on_events(Position position, std::uint32_t events) {
  if ((events & kNoMore) != 0) return drop(position);
  Client& client = *position;
  switch (client.stage) {
    case Stage::kReading:
      if (!read(client)) return drop(position);
      return obey(position);
    case Stage::kWaiting:
    case Stage::kAsking: return (events & (EPOLLHUP | EPOLLERR)) != 0 ? drop(position) : update(position);
    case Stage::kSending: return update(position);
    case Stage::kLingering:
      if (!read(client)) return drop(position);
      client.input.clear();
      return;
  }
}

bool Clients::read(Client& client) {
  std::array<char, 1024> buffer;
  while (client.input.size() < kMostInput) {
    const auto got = ::recv(client.fd.get(), buffer.data(), buffer.size(), kNeverWait);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    if (got == 0) {  // one that has said all it wants to say may still wait for the answer
      if (client.stage != Stage::kReading || client.input.empty()) return false;
      if (!client.input.ends_with('\n')) client.input += '\n';
      return true;
    }
    client.input.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return true;
}

/// Carries out the lines that have come, as long as they need no waiting.
void Clients::obey(Position position) {
  Client& client = *position;
  while (client.stage == Stage::kReading) {
    const auto end = client.input.find('\n');
    if (end == std::string::npos || end > kLongestLine) {
      if (client.input.size() <= kLongestLine) break;
      reply(client, "ERROR: a line of more than 256 characters\n");
      enter(client, Stage::kSending);
      break;
    }
    const std::string line = client.input.substr(0, end);
    client.input.erase(0, end + 1);
    handle(position, line);
  }
  update(position);
}

void Clients::handle(Position position, std::string_view line) {
  Client& client = *position;
  const Command command = parse_command(line);
  enter(client, Stage::kReading);
  switch (command.kind) {
    case Command::Kind::kNothing: return;
    case Command::Kind::kProtocol: return reply(client, "SERVER PROTOCOL 2\n");
    case Command::Kind::kTimeout:
      // A process that is silent for that long counts as dead; so no question keeps others waiting for ever.
      client.timeout = kSilencePatience * timeout_factor_;
      if (command.timeout.count() > 0) client.timeout = std::min(client.timeout, command.timeout);
      return reply(client, "OK\n");
    case Command::Kind::kFormat: client.json = command.json; return reply(client, "OK\n");
    case Command::Kind::kStatus:
    case Command::Kind::kVerboseStatus:
    case Command::Kind::kDump: client.asked = command.kind; return ask_or_wait(client);
    case Command::Kind::kMistake: break;
  }
  reply(client, "ERROR: " + command.mistake + "\n");
  if (++client.mistakes >= kMostMistakes) enter(client, Stage::kSending);
}

void Clients::ask_or_wait(Client& client) {
  enter(client, Stage::kAsking);
  Question question;
  question.dumps = client.asked == Command::Kind::kDump;
  question.dumps_as_text = question.dumps && !client.json;
  question.patience = client.timeout;
  client.search = search_for(question);
  if (!client.search) enter(client, Stage::kWaiting);
}

/// Null: too many others ask something else. Who asks the same as they do has their answer, though it may have been
/// found out in part before: to wait for it and then for another one takes longer than clients wait.
std::shared_ptr<Clients::Search> Clients::search_for(const Question& question) {
  std::erase_if(searches_, [](const auto& each) { return each.expired(); });
  if (searches_.size() >= kMostAsking) {
    const auto is_same = [&](const auto& each) { return each.lock()->question == question; };
    const auto last = std::find_if(searches_.rbegin(), searches_.rend(), is_same);
    return last == searches_.rend() ? nullptr : last->lock();
  }
  auto search = std::make_shared<Search>();
  search->question = question;
  searches_.push_back(search);
  search->gather = ask_(question, [this, weak = std::weak_ptr(search)](const Job& job) {
    if (const auto found = weak.lock()) on_job(found, job);
  });
  return search;
}

void Clients::start_waiting() {
  for (Client& client : clients_) {
    if (client.stage == Stage::kWaiting) ask_or_wait(client);
  }
}

void Clients::on_job(const std::shared_ptr<Search>& search, const Job& job) {
  std::erase_if(searches_, [&](const auto& each) { return each.lock() == search; });
  std::vector<Position> asking;
  for (auto position = clients_.begin(); position != clients_.end(); ++position) {
    if (position->search == search) asking.push_back(position);
  }
  for (const Position position : asking) position->search.reset();  // for whom there is no memory is lost
  for (const Position position : asking) {
    position->output += answer_to(position->asked, position->json, job);
    enter(*position, Stage::kSending);
    update(position);
  }
  start_waiting();
}

void Clients::reply(Client& client, std::string_view text) {
  if (client.output.size() - client.sent + text.size() > kMostReplies) return enter(client, Stage::kSending);
  client.output += text;
}

bool Clients::send(Client& client) {
  while (client.sent < client.output.size()) {
    const auto done =
        ::send(client.fd.get(), client.output.data() + client.sent, client.output.size() - client.sent, kNeverWait);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno == EAGAIN;
    client.sent += static_cast<std::size_t>(done);
    if (client.stage == Stage::kSending) enter(client, Stage::kSending);  // it makes progress
  }
  client.output.clear();
  client.output.shrink_to_fit();
  client.sent = 0;
  return true;
}

/// Sends what can be sent, and waits for what the stage wants.
void Clients::update(Position position) {
  Client& client = *position;
  if (!client.fd.is_there() || !send(client)) return drop(position);
  const bool unsent = !client.output.empty();
  if (client.stage == Stage::kSending && !unsent) {
    // The client closes: to close first, with input unread, could cost it the end of the answer.
    ::shutdown(client.fd.get(), SHUT_WR);
    enter(client, Stage::kLingering);
  }
  std::uint32_t events = 0;
  if (client.stage == Stage::kReading || client.stage == Stage::kLingering) events |= EPOLLIN;
  if (unsent) events |= EPOLLOUT;
  reactor_.modify(client.token, client.fd.get(), events);
}

}  // namespace nitinol::ras
