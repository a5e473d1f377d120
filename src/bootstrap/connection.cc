// Reading, queued sending and closing of framed connections.
#include "bootstrap/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include "base/error.h"

namespace nitinol {
namespace {

constexpr std::chrono::milliseconds kLinger{5000};
constexpr int kReadsAtOnce = 16;
constexpr std::size_t kPiecesAtOnce = 16;

bool is_of_somebody_else(int error) { return error == EBADF || error == ENOTSOCK; }

Ending ending_by(int error) {
  // Others see this as the end of this process.
  if (!is_of_somebody_else(error)) return {" (" + std::system_category().message(error) + ")"};
  return {" (a descriptor was closed behind the library's back: " + std::system_category().message(error) + ")", true};
}

Ending ending_because(const std::exception& thrown) noexcept {
  try {
    return {formatted(" ({})", as_error(thrown).what()), true, lacks_memory(thrown)};
  } catch (const std::exception&) {
    return {" (no memory)", true, lacks_memory(thrown)};  // short enough to need none
  }
}

}  // namespace

void tune_tcp(int fd) {
  const auto set = [fd](int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof(value)); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 120'000);
}

Connection::Connection(Reactor& reactor, Events events) : reactor_(reactor), events_(std::move(events)) {}

Connection::~Connection() = default;

std::shared_ptr<Connection> Connection::start(UniqueFd&& fd, Reactor& reactor, Events events) {
  auto connection = std::make_shared<Connection>(reactor, std::move(events));
  connection->fd_ = GuardedFd(std::move(fd));
  try {
    reactor.post([connection] { connection->begin(); });
  } catch (const std::exception&) {
    fd = connection->fd_.release();
    throw;
  }
  return connection;
}

void Connection::begin() {
  if (!fd_) return;
  attempt([&] {
    token_ = reactor_.add(fd_.get(), EPOLLIN,
                          [self = shared_from_this()](std::uint32_t events_seen) { self->on_events(events_seen); });
    update_interest();
  });
}

void Connection::send(const Frame& frame) {
  send(frame, frame.payload.empty() ? nullptr : std::make_shared<const std::vector<std::byte>>(frame.payload));
}

void Connection::send(const Frame& header, const SharedBytes& payload) {
  const std::size_t size = payload ? payload->size() : 0;
  bool arm = false;
  {
    const std::lock_guard lock(mutex_);
    if (!fd_ || broken_) return;
    const bool idle = queue_.empty();
    queue_.push_back({std::make_shared<const std::vector<std::byte>>(encode_header(header, size))});
    try {
      if (size > 0) queue_.push_back({payload});
    } catch (const std::bad_alloc&) {  // what follows would be taken for the payload
      queue_.pop_back();
      throw;
    }
    if (idle) flush_locked();
    arm = !armed_ && !arming_ && (!queue_.empty() || broken_);
    arming_ = arming_ || arm;
  }
  if (arm) ask_to_arm();
}

/// Without memory for it the next who sends asks again: what is queued would stay there.
void Connection::ask_to_arm() {
  try {
    reactor_.post([self = shared_from_this()] { self->attempt([&] { self->update_interest(); }); });
  } catch (const std::exception&) {
    const std::lock_guard lock(mutex_);
    arming_ = false;
    throw;
  }
}

bool Connection::send_at_once(std::span<const std::byte> bytes) noexcept {
  const std::lock_guard lock(mutex_);
  return send_at_once_locked(bytes);
}

void Connection::send_if_free(std::span<const std::byte> bytes) noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) static_cast<void>(send_at_once_locked(bytes));
}

bool Connection::send_at_once_locked(std::span<const std::byte> bytes) noexcept {
  return fd_ && !broken_ && queue_.empty() &&
         ::send(fd_.get(), bytes.data(), bytes.size(), kNeverWait) == static_cast<ssize_t>(bytes.size());
}

void Connection::keep_last_word(SharedBytes bytes) {
  const std::lock_guard lock(mutex_);
  last_word_ = std::move(bytes);
}

void Connection::say_last_word() noexcept {
  SharedBytes word;
  {
    const std::lock_guard lock(mutex_);
    word = last_word_;
  }
  if (word) static_cast<void>(send_at_once(*word));
}

bool Connection::send_descriptor(const Frame& frame, int descriptor) {
  const std::lock_guard lock(mutex_);
  auto bytes = encode_frame(frame);
  iovec piece{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  return fd_ && queue_.empty() && ::sendmsg(fd_.get(), &message, kNeverWait) == static_cast<ssize_t>(bytes.size());
}

void Connection::flush_locked() {
  while (!queue_.empty()) {
    std::array<iovec, kPiecesAtOnce> pieces;
    std::size_t count = 0;
    for (const auto& chunk : queue_) {
      if (count == pieces.size()) break;
      auto* begin = const_cast<std::byte*>(chunk.bytes->data()) + chunk.offset;
      pieces[count++] = {begin, chunk.bytes->size() - chunk.offset};
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const auto sent = ::sendmsg(fd_.get(), &message, kNeverWait);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) {
      broken_ = true;
      queue_.clear();
      return;
    }
    for (auto left = static_cast<std::size_t>(sent); left > 0;) {
      Chunk& chunk = queue_.front();
      const std::size_t part = std::min(left, chunk.bytes->size() - chunk.offset);
      chunk.offset += part;
      left -= part;
      if (chunk.offset == chunk.bytes->size()) queue_.pop_front();
    }
  }
}

bool Connection::flushed() const {
  const std::lock_guard lock(mutex_);
  return !fd_ || queue_.empty();
}

void Connection::update_interest() {
  if (token_ == 0) return;
  bool shut_now = false;
  {
    std::unique_lock lock(mutex_);
    arming_ = false;
    if (!fd_) return;
    flush_locked();
    if (broken_ && !closing_) {  // nothing comes from a descriptor that was closed behind the library's back
      lock.unlock();
      read_some();
      return;
    }
    const bool wanted = !queue_.empty();
    if (wanted != armed_) reactor_.modify(token_, fd_.get(), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
    armed_ = wanted;
    shut_now = closing_ && !wanted && !shut_;
    if (shut_now) ::shutdown(fd_.get(), SHUT_WR);
  }
  shut_ = shut_ || shut_now;
}

void Connection::on_events(std::uint32_t events) {
  const auto self = shared_from_this();
  attempt([&] {
    if ((events & (Reactor::kClosed | Reactor::kBlind)) != 0) return on_closed_descriptor(events);
    if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0 && !read_some()) return;
    if ((events & EPOLLOUT) != 0) update_interest();
  });
}

/// Without memory or whatever else a step needs, nobody is to wait for what it was to bring.
template <typename Step>
void Connection::attempt(const Step& step) {
  try {
    step();
  } catch (const std::bad_alloc& lack) {
    say_last_word();
    finish(ending_because(lack));
  } catch (const std::exception& thrown) {
    finish(ending_because(thrown));
  }
}

/// If only the reactor is blind the socket may still be this connection's, and the peer is to see its end.
void Connection::on_closed_descriptor(std::uint32_t events) {
  char next = 0;
  const bool read = ::recv(fd_.get(), &next, 1, MSG_PEEK | kNeverWait) >= 0;
  const bool gone = (events & Reactor::kClosed) != 0 || (!read && is_of_somebody_else(errno));
  if (gone) give_up_descriptor();
  finish(ending_by(EBADF));
}

bool Connection::read_some() {
  for (int i = 0; i < kReadsAtOnce; ++i) {
    if (!fd_) return false;  // closed by a callback
    const auto buffer = reactor_.scratch();
    const auto got = ::recv(fd_.get(), buffer.data(), buffer.size(), kNeverWait);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return true;
    if (got < 0) {
      const int error = errno;
      if (is_of_somebody_else(error)) give_up_descriptor();
      finish(ending_by(error));
      return false;
    }
    if (got == 0) {
      finish({});
      return false;
    }
    if (closing_ || at_once_) continue;
    const bool valid = reader_.feed(buffer.first(static_cast<std::size_t>(got)));
    while (!at_once_) {
      auto frame = reader_.take();
      if (!frame) break;
      if (events_.on_frame) events_.on_frame(std::move(*frame));
    }
    if (!valid) {
      finish({" (it sent bytes that are no valid message)"});
      return false;
    }
    if (static_cast<std::size_t>(got) < buffer.size()) return true;
  }
  return true;
}

/// Its number is the program's now: it is not to be closed.
void Connection::give_up_descriptor() {
  const std::lock_guard lock(mutex_);
  is_ours_ = false;
}

void Connection::finish(const Ending& ending) {
  {
    const std::lock_guard lock(mutex_);
    if (!fd_) return;
    if (token_ != 0) reactor_.remove(token_, fd_.get());
    UniqueFd fd = fd_.release();
    if (!is_ours_) static_cast<void>(fd.release());
    queue_.clear();
  }
  if (linger_) reactor_.cancel(*linger_);
  const Events events = std::exchange(events_, {});
  if (events.on_closed) events.on_closed(ending);
}

void Connection::close_after_flush() noexcept { reactor_.ask_to_leave(shared_from_this()); }

void Connection::close_now() noexcept {
  at_once_ = true;
  close_after_flush();
}

void Connection::leave() {
  events_ = {};
  if (at_once_) return finish({});
  try {
    linger();
  } catch (const std::exception&) {  // without memory for more it closes at least
    finish({});
  }
}

void Connection::linger() {
  if (!fd_ || linger_) return;
  closing_ = true;
  update_interest();
  linger_ = reactor_.run_after(kLinger, [self = shared_from_this()] { self->finish({}); });
}

}  // namespace nitinol
