// Building the tree, and its connections.
#include "bootstrap/tree.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/error.h"
#include "bootstrap/interfaces.h"

namespace nitinol {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kFlushPatience = 1s;

/// The peer takes the end of the connection for a loss if there is no memory to say it.
void say_goodbye(Connection& connection) noexcept {
  try {
    connection.send(control_frame(FrameType::kGoodbye));
  } catch (const std::exception&) {
  }
}

}  // namespace

Secret rank_key(const Secret& secret, int rank, const Contact& contact) {
  std::array<std::uint8_t, 4 + sizeof(Contact)> bytes{};
  for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<std::uint8_t>(rank >> (8 * i));
  std::copy(contact.begin(), contact.end(), bytes.begin() + 4);
  return derive_secret(secret, "rank", bytes);
}

Tree::Tree(const TreeArguments& arguments)
    : rank_(arguments.rank),
      shape_(arguments.shape),
      secret_(arguments.secret),
      options_(arguments.options),
      abort_flag_(arguments.abort_flag),
      operation_timeout_(arguments.options.operation_timeout) {
  for (const int child : shape_.children(rank_)) neighbours_[child];
  if (shape_.parent(rank_) >= 0) neighbours_[shape_.parent(rank_)];
  prepare_last_words_locked();
}

std::shared_ptr<Tree> Tree::start(const TreeArguments& arguments) {
  auto tree = std::make_shared<Tree>(arguments);
  Network& network = Network::instance();
  tree->listener_ = network.listen(bootstrap_interface(arguments.options).address);
  fill_random(tree->contact_);
  tell_of_end_of_process(tree);
  const Secret key = rank_key(arguments.secret, arguments.rank, tree->contact_);
  tree->service_ = network.services().add({key, [weak = std::weak_ptr<Tree>(tree)](UniqueFd fd) {
                                             if (const auto self = weak.lock()) self->accept_child(std::move(fd));
                                           }});
  return tree;
}

Tree::~Tree() {
  for (auto& [rank, neighbour] : neighbours_) {
    if (neighbour.connection) neighbour.connection->close_after_flush();
  }
}

bool Tree::is_connected_to(int neighbour) const {
  const std::lock_guard lock(mutex_);
  const auto found = neighbours_.find(neighbour);
  return found != neighbours_.end() && found->second.connection;
}

std::shared_ptr<Connection> Tree::open(UniqueFd fd, const LinkPointer& link) {
  tune_tcp(fd.get());
  const std::weak_ptr<Tree> weak = weak_from_this();
  Connection::Events events;
  events.on_frame = [weak, link](Frame frame) {
    if (const auto tree = weak.lock()) return tree->on_frame(link, std::move(frame));
    // A child's that came while the tree went: nobody else closes it, and the child is to see that this rank has gone.
    if (const auto connection = link->connection.lock()) connection->close_now();
  };
  events.on_closed = [weak, link](const Ending& ending) {
    if (const auto tree = weak.lock()) tree->on_closed(link, ending);
  };
  return Connection::start(std::move(fd), Network::instance().reactor(), std::move(events));
}

void Tree::connect_parent(const ParentReply& parent, Deadline deadline, const Interrupt& interrupt) {
  const Interrupt any = [&] {
    check();
    if (interrupt) interrupt();
  };
  SocketAddress address = parent.listener;
  if (address.is_link_local()) address.scope = listener_->address().scope;
  const std::string name = name_of(parent.rank, parent.identity);
  const auto fate = [&parent] { return fate_of(parent.identity); };
  UniqueFd fd =
      connect_to_peer({address, rank_key(secret_, parent.rank, parent.contact), name, options_, deadline, any, fate});
  const auto link = std::make_shared<Link>();
  link->rank = parent.rank;
  const std::lock_guard lock(mutex_);
  Neighbour& neighbour = neighbours_.at(parent.rank);
  neighbour.identity = parent.identity;
  neighbour.connection = open(std::move(fd), link);
  neighbour.connection->send(control_frame(FrameType::kHello, encode(Hello{rank_, self_})));
  neighbour.connection->keep_last_word(word_of_lack_);  // the parent believes it of those alone that it knows
  if (failure_) neighbour.connection->send(control_frame(FrameType::kFail, encode(*failure_)));
}

void Tree::expect_child(int child, const PeerIdentity& identity) {
  const std::lock_guard lock(mutex_);
  const auto found = neighbours_.find(child);
  if (found != neighbours_.end() && !found->second.connection) found->second.identity = identity;
}

void Tree::accept_child(UniqueFd fd) {
  const auto link = std::make_shared<Link>();
  link->connection = open(std::move(fd), link);
  // Frames are read later, on this very thread; until the hello the connection keeps itself alive.
}

void Tree::on_hello(const LinkPointer& link, const Frame& frame) {
  const auto hello = decode_hello(frame.payload);
  const auto connection = link->connection.lock();
  if (!connection) return;
  const std::lock_guard lock(mutex_);
  const auto found = hello ? neighbours_.find(hello->rank) : neighbours_.end();
  // One that knows the secret and yet is no child of this rank: a copy of a rank, say. The real one is served.
  if (found == neighbours_.end() || found->second.connection || hello->rank == shape_.parent(rank_) || shut_down_) {
    return connection->close_now();
  }
  link->rank = hello->rank;
  found->second.identity = hello->identity;
  found->second.connection = connection;
  connection->keep_last_word(word_of_lack_);
  if (failure_) connection->send(control_frame(FrameType::kFail, encode(*failure_)));
  changed_.notify_all();
}

void Tree::on_frame(const LinkPointer& link, Frame frame) {
  if (link->rank < 0 || frame.type == FrameType::kHello) {
    const auto connection = link->connection.lock();
    if (link->rank < 0 && frame.type == FrameType::kHello) return on_hello(link, frame);
    if (connection) connection->close_now();
    return on_closed(link, {" (it said once more who it is)"});
  }
  if (frame.type == FrameType::kFail) {
    if (const auto failure = decode_failure(frame.payload)) spread(*failure, link->rank);
    return;
  }
  if (frame.type == FrameType::kRevoked) {
    if (const auto revoke = decode_failure(frame.payload)) on_revoked(*revoke, link->rank);
    return;
  }
  const std::lock_guard lock(mutex_);
  Neighbour& neighbour = neighbours_.at(link->rank);
  if (frame.type == FrameType::kGoodbye) neighbour.gone = true;
  if (frame.type == FrameType::kAwaits) {
    if (const auto word = decode_failure(frame.payload)) neighbour.awaited = word->sentence;
  }
  if (frame.type == FrameType::kData) neighbour.mailbox.push_back(std::move(frame));
  changed_.notify_all();
}

std::string Tree::name_locked(int rank) const {
  const auto found = neighbours_.find(rank);
  return describe_rank(rank, on_its_device(rank, found == neighbours_.end() ? PeerIdentity() : found->second.identity));
}

std::string Tree::name_of(int rank, const PeerIdentity& identity) const {
  const std::lock_guard lock(mutex_);
  return describe_rank(rank, on_its_device(rank, identity));
}

PeerIdentity Tree::on_its_device(int rank, PeerIdentity identity) const {
  if (!devices_.empty()) identity.device = devices_[static_cast<std::size_t>(rank)];
  return identity;
}

std::string Tree::own_name_locked() const { return describe_rank(rank_, on_its_device(rank_, self_)); }

void Tree::know_devices(std::span<const int> devices) {
  const std::lock_guard lock(mutex_);
  devices_.assign(devices.begin(), devices.end());
  if (!failure_) prepare_last_words_locked();
}

std::vector<int> Tree::devices() const {
  const std::lock_guard lock(mutex_);
  return devices_;
}

void Tree::check_locked() const {
  if (const auto& failure = failure_locked()) throw Error(failure->result, failure->sentence);
  if (shut_down_) fail(ncclInvalidUsage, "rank {} has left its communicator's out-of-band exchange already", rank_);
  if (abort_flag_ != nullptr && abort_flag_->load()) fail(ncclRemoteError, "rank {} aborts its communicator", rank_);
}

void Tree::send(int neighbour, const OperationStep& step, const SharedBytes& payload) {
  std::shared_ptr<Connection> connection;
  {
    const std::lock_guard lock(mutex_);
    const Neighbour& to = neighbours_.at(neighbour);
    if (!to.gone) connection = to.connection;
  }
  if (!connection) return;  // it has left; who waits for an answer learns it
  // A failed communicator still passes on what is there: an operation that all have reached may well succeed.
  Frame header;
  header.operation = step.operation;
  header.sequence = step.sequence;
  connection->send(header, payload);
}

void Tree::shutdown() {
  std::vector<std::shared_ptr<Connection>> connections;
  connections.reserve(neighbours_.size());
  {
    const std::lock_guard lock(mutex_);
    if (shut_down_) return;
    shut_down_ = true;
    for (auto& [rank, neighbour] : neighbours_) {
      if (!neighbour.connection) continue;
      if (!neighbour.gone) say_goodbye(*neighbour.connection);
      connections.push_back(std::move(neighbour.connection));
      neighbour.connection.reset();
    }
    changed_.notify_all();
  }
  service_.reset();
  const auto deadline = Clock::now() + kFlushPatience;
  for (const auto& connection : connections) {
    // Almost always the system has taken everything at once.
    while (!connection->flushed() && Clock::now() < deadline) std::this_thread::sleep_for(1ms);
    connection->close_after_flush();
  }
  const std::lock_guard lock(callback_mutex_);
  callback_ = nullptr;
  needs_others_ = nullptr;
}

}  // namespace nitinol
