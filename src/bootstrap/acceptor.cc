// Accepting connections and the server's half of the proof, without ever waiting for one of them.
#include "bootstrap/acceptor.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <thread>

#include "base/error.h"
#include "bootstrap/connection.h"

namespace nitinol {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kHandshakeLimit{5000};
constexpr milliseconds kSweepInterval{500};
constexpr milliseconds kPauseOfAccepting{50};
constexpr milliseconds kWithoutMemory{1};
constexpr milliseconds kSilencePatience{100};  // with those who might be members, where descriptors are scarce
constexpr milliseconds kLackPatience{500};
constexpr std::size_t kMostPending = 512;
constexpr int kAcceptsAtOnce = 64;

bool is_listening(int fd) {
  int answer = 0;
  socklen_t size = sizeof(answer);
  return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &answer, &size) == 0 && answer != 0;
}

}  // namespace

/// Takes a service out of the table again, once it has been put there.
struct ServiceTable::Entry {
  ServiceTable* table = nullptr;
  KeyId id{};

  Entry() = default;
  ~Entry() {
    if (table != nullptr) table->remove(id);
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
};

std::shared_ptr<void> ServiceTable::add(Service service) {
  // What may fail comes first: an entry that ends takes the lock.
  const auto shared = std::make_shared<const Service>(std::move(service));
  auto entry = std::make_shared<Entry>();
  entry->id = key_id(shared->key);
  const std::lock_guard lock(mutex_);
  if (!services_.emplace(entry->id, shared).second) return nullptr;
  entry->table = this;
  return entry;
}

void ServiceTable::remove(const KeyId& id) {
  std::shared_ptr<const Service> last;  // destroyed without the lock: it may own anything
  const std::lock_guard lock(mutex_);
  const auto found = services_.find(id);
  if (found == services_.end()) return;
  last = found->second;
  services_.erase(found);
}

std::shared_ptr<const Service> ServiceTable::find(const KeyId& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = services_.find(id);
  return found == services_.end() ? nullptr : found->second;
}

Acceptor::Acceptor(GuardedFd listening, Reactor& reactor, const ServiceTable& services)
    : reactor_(reactor), services_(services), listening_(std::move(listening)) {}

std::shared_ptr<Acceptor> Acceptor::start(UniqueFd listening, Reactor& reactor, const ServiceTable& services) {
  auto acceptor = std::make_shared<Acceptor>(GuardedFd(std::move(listening)), reactor, services);
  reactor.post([acceptor] { acceptor->begin(); });
  return acceptor;
}

void Acceptor::begin() noexcept {
  try {
    token_ = reactor_.add(listening_.get(), EPOLLIN,
                          [self = shared_from_this()](std::uint32_t events) { self->on_listening(events); });
  } catch (const std::bad_alloc&) {  // once more: nobody comes in otherwise, for as long as a root keeps the socket
    std::this_thread::sleep_for(kWithoutMemory);
    reactor_.ask_to_leave(shared_from_this());
  } catch (const std::exception&) {
    error_ = errno != 0 ? errno : EIO;
  }
}

/// Or begins, if there was no memory for it before.
void Acceptor::leave() {
  if (!stops_) return begin();
  while (!pending_.empty()) drop(pending_.begin());
  reactor_.remove(token_, listening_.get());
  UniqueFd fd = listening_.release();
  if (!is_listening(fd.get())) static_cast<void>(fd.release());  // the number is the program's now
}

void Acceptor::on_listening(std::uint32_t events) {
  if ((events & (Reactor::kClosed | Reactor::kBlind)) != 0) {
    error_ = EBADF;
    return;
  }
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    try {
      if (!accept_one()) return;
    } catch (const std::bad_alloc&) {  // it comes again
      return on_lack(ENOMEM);
    }
  }
}

bool Acceptor::accept_one() {
  // The system takes a descriptor before it looks whether anybody waits: it might be the last one, which a rank of this
  // process needs just then.
  pollfd waiting{listening_.get(), POLLIN, 0};
  if (::poll(&waiting, 1, 0) != 1) return false;
  UniqueFd fd(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd) {
    admit(std::move(fd));
    lacks_since_.reset();
    lack_ = 0;
    return true;
  }
  const int error = errno;
  if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) on_lack(error);
  return error == EINTR || error == ECONNABORTED;
}

/// Strangers may be what fills the process: makes room. Without any, waits a moment instead of spinning.
void Acceptor::on_lack(int error) {
  const auto now = Reactor::Clock::now();
  if (!lacks_since_) lacks_since_ = now;
  if (now - *lacks_since_ >= kLackPatience) {
    lack_ = error;
    lack_found_ = now;
  }
  const auto silent = oldest_silent();
  if (silent == pending_.end() || now < silent->deadline - kHandshakeLimit + kSilencePatience) return pause();
  drop(silent);
}

void Acceptor::pause() {
  reactor_.run_after(kPauseOfAccepting, [self = shared_from_this()] {
    if (self->listening_) self->reactor_.modify(self->token_, self->listening_.get(), EPOLLIN);
  });
  reactor_.modify(token_, listening_.get(), 0);
}

void Acceptor::admit(UniqueFd fd) {
  if (pending_.size() >= kMostPending) drop_one();
  Pending& added = pending_.emplace_back();
  added.fd = GuardedFd(std::move(fd));
  added.deadline = Reactor::Clock::now() + kHandshakeLimit;
  const auto position = std::prev(pending_.end());
  try {
    added.token = reactor_.add(added.fd.get(), EPOLLIN,
                               [self = shared_from_this(), position](std::uint32_t) { self->on_pending(position); });
  } catch (const std::exception&) {  // it comes again
    pending_.erase(position);
    throw;
  }
  if (!sweeping_) sweep_later();
}

void Acceptor::sweep_later() {
  reactor_.run_after(kSweepInterval, [self = shared_from_this()] { self->sweep(); });
  sweeping_ = true;
}

// The oldest that has not named a key, since a member of a communicator does that at once.
Acceptor::PendingPosition Acceptor::oldest_silent() {
  return std::find_if(pending_.begin(), pending_.end(),
                      [](const Pending& pending) { return pending.stage == Stage::kHello; });
}

void Acceptor::drop_one() {
  const auto silent = oldest_silent();
  drop(silent == pending_.end() ? pending_.begin() : silent);
}

void Acceptor::drop(PendingPosition position) {
  reactor_.remove(position->token, position->fd.get());
  pending_.erase(position);
}

void Acceptor::sweep() {
  const auto now = Reactor::Clock::now();
  while (!pending_.empty() && pending_.front().deadline <= now) drop(pending_.begin());
  sweeping_ = false;
  if (!pending_.empty()) sweep_later();
}

void Acceptor::on_pending(PendingPosition position) {
  Pending& pending = *position;
  while (true) {
    const std::size_t wanted = pending.stage == Stage::kHello ? sizeof(HelloBytes) : sizeof(ProofBytes);
    const auto got =
        ::recv(pending.fd.get(), pending.buffer.data() + pending.filled, wanted - pending.filled, kNeverWait);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return drop(position);
    pending.filled += static_cast<std::size_t>(got);
    if (pending.filled < wanted) continue;
    const bool proven = pending.stage == Stage::kProof;
    if (!advance(pending)) return drop(position);
    if (!proven) continue;
    reactor_.remove(pending.token, pending.fd.get());
    const auto service = pending.service;
    UniqueFd fd = pending.fd.release();
    pending_.erase(position);
    return service->accepted(std::move(fd));
  }
}

bool Acceptor::advance(Pending& pending) {
  pending.filled = 0;
  if (pending.stage == Stage::kHello) return on_hello(pending);
  ProofBytes proof;
  std::copy_n(pending.buffer.begin(), proof.size(), proof.begin());
  return pending.handshake.verify(proof);
}

bool Acceptor::on_hello(Pending& pending) {
  const auto id = pending.handshake.hello(pending.buffer);
  if (!id) return false;
  pending.service = services_.find(*id);
  if (!pending.service) return false;
  const AnswerBytes answer = pending.handshake.answer(pending.service->key);
  // A new connection's buffer has room for these few bytes; one that has not is not worth waiting for.
  const auto sent = ::send(pending.fd.get(), answer.data(), answer.size(), kNeverWait);
  if (sent != static_cast<ssize_t>(answer.size())) return false;
  pending.stage = Stage::kProof;
  return true;
}

}  // namespace nitinol
