#include "diagnostics/ras/link.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

namespace nitinol::ras {
namespace {

std::string error_text(int error) { return std::system_category().message(error); }

}  // namespace

Link::Link(Reactor& reactor, std::vector<Contact> contacts, std::vector<std::byte> question, Outcome outcome)
    : reactor_(reactor),
      contacts_(contacts.begin(), contacts.end()),
      question_(std::move(question)),
      outcome_(std::move(outcome)) {}

Link::~Link() {
  close();
  if (connection_) connection_->close_now();
}

std::shared_ptr<Link> Link::start(Reactor& reactor, std::vector<Contact> contacts, std::vector<std::byte> question,
                                  Outcome outcome) {
  auto link = std::make_shared<Link>(reactor, std::move(contacts), std::move(question), std::move(outcome));
  reactor.post([weak = std::weak_ptr(link)] {
    if (const auto self = weak.lock()) self->try_next();
  });
  return link;
}

void Link::try_next() {
  while (!contacts_.empty()) {
    if (connect_to(contacts_.front())) return;
    contacts_.pop_front();
  }
  finish(std::nullopt);
}

/// False: it will not work, trouble_ says why.
bool Link::connect_to(const Contact& contact) {
  stage_ = Stage::kConnecting;
  filled_ = 0;
  fd_ = OwnSocket(UniqueFd(::socket(contact.at.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!fd_) {
    trouble_ = "no socket to reach it: " + error_text(errno);
    return false;
  }
  sockaddr_storage storage;
  const socklen_t length = contact.at.to_sockaddr(storage);
  if (::connect(fd_.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 && errno != EINPROGRESS) {
    trouble_ = error_text(errno);
    fd_.reset();
    return false;
  }
  token_ = reactor_.add(fd_.get(), EPOLLOUT, [weak = weak_from_this()](std::uint32_t events) {
    if (const auto self = weak.lock()) self->on_events(events);
  });
  return true;
}

void Link::on_events(std::uint32_t events) {
  if ((events & (Reactor::kClosed | Reactor::kBlind)) != 0) {
    return give_up_contact("the process that was asked to find out has closed descriptors of the library");
  }
  switch (stage_) {
    case Stage::kConnecting: return on_connected();
    case Stage::kProving: return on_proof();
  }
}

void Link::on_connected() {
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return give_up_contact(error_text(error));
  tune_tcp(fd_.get());
  handshake_.emplace(contacts_.front().key);
  const HelloBytes& hello = handshake_->hello();
  // A fresh connection has room for these few bytes.
  if (::send(fd_.get(), hello.data(), hello.size(), kNeverWait) != static_cast<ssize_t>(hello.size())) {
    return give_up_contact(error_text(errno));
  }
  stage_ = Stage::kProving;
  reactor_.modify(token_, fd_.get(), EPOLLIN);
}

void Link::on_proof() {
  const auto got = ::recv(fd_.get(), answer_.data() + filled_, answer_.size() - filled_, kNeverWait);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got < 0) return give_up_contact(error_text(errno));
  if (got == 0) {  // whoever listens there does not know the key
    return on_hung_up(
        "it hung up: it holds the communicator no more or not yet, or its health monitoring is switched off "
        "(NCCL_RAS_ENABLE=0)");
  }
  filled_ += static_cast<std::size_t>(got);
  if (filled_ < answer_.size()) return;
  const auto proof = handshake_->answer(answer_);
  if (!proof) return give_up_contact("whoever listens there does not know the communicator's secret");
  if (::send(fd_.get(), proof->data(), proof->size(), kNeverWait) != static_cast<ssize_t>(proof->size())) {
    return give_up_contact(error_text(errno));
  }
  ask();
}

void Link::ask() {
  reactor_.remove(token_, fd_.get());
  Connection::Events events;
  events.on_frame = [weak = weak_from_this()](Frame frame) {
    const auto self = weak.lock();
    if (self && frame.type == FrameType::kTell) self->finish(std::move(frame.payload));
  };
  events.on_closed = [weak = weak_from_this()](const Ending& ending) {
    const auto self = weak.lock();
    if (self) self->on_hung_up("it hung up without an answer" + ending.reason);
  };
  connection_ = Connection::start(fd_.release(), reactor_, std::move(events));
  connection_->send(control_frame(FrameType::kAsk, question_));
}

void Link::on_hung_up(std::string trouble) {
  hung_up_ = true;
  give_up_contact(std::move(trouble));
}

void Link::give_up_contact(std::string trouble) {
  trouble_ = std::move(trouble);
  close();
  connection_.reset();
  if (!contacts_.empty()) contacts_.pop_front();
  try_next();
}

void Link::close() {
  if (!fd_) return;
  reactor_.remove(token_, fd_.get());
  fd_.reset();
}

void Link::finish(std::optional<std::vector<std::byte>> answer) {
  const auto self = shared_from_this();  // whoever holds it may let it go now
  const Outcome outcome = std::exchange(outcome_, nullptr);
  if (outcome) outcome(std::move(answer), trouble_);
}

}  // namespace nitinol::ras
