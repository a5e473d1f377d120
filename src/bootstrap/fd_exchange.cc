// Publishing descriptors on the process's Unix listener, and fetching them from other processes'.
#include "bootstrap/fd_exchange.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/thread_name.h"
#include "bootstrap/connection.h"
#include "bootstrap/fd_wire.h"
#include "bootstrap/network.h"
#include "bootstrap/wire.h"

namespace nitinol {
namespace {

constexpr int kMostWaiting = 4096;

FdServerName random_name() {
  std::array<std::uint8_t, 16> bytes{};
  fill_random(bytes);
  std::string text = "nitinol-";
  for (const std::uint8_t byte : bytes) text += formatted("{:02x}", byte);
  FdServerName name;
  std::copy(text.begin(), text.end(), name.text.begin());
  return name;
}

UniqueFd listen_at(const FdServerName& name) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail_errno(errno, "creating the Unix socket that hands out descriptors");
  sockaddr_un address;
  const socklen_t length = abstract_address(name, address);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(fd.get(), kMostWaiting) != 0) {
    fail_errno(errno, formatted("listening at the abstract Unix socket '{}'", name.text.data()));
  }
  return fd;
}

}  // namespace

/// What a peer that asks is given; or why there is nothing.
struct Given {
  SharedFd shared;
  std::string reason{};
};

/// What one communicator has published in this process. Shared by its ranks here.
class FdStore : public std::enable_shared_from_this<FdStore> {
 public:
  struct Maker {
    std::function<SharedFd()> make;
    bool on_demand = false;  ///< not on the network thread, since it may take long
  };

  void put(const FdKey& key, Maker maker) {
    const std::lock_guard lock(mutex_);
    makers_[key] = std::make_shared<const Maker>(std::move(maker));
  }
  void erase(const FdKey& key) {
    std::shared_ptr<const Maker> last;  // destroyed without the lock
    const std::lock_guard lock(mutex_);
    const auto found = makers_.find(key);
    if (found == makers_.end()) return;
    last = std::move(found->second);
    makers_.erase(found);
  }

  /// On the network thread.
  void accepted(UniqueFd fd) {
    const auto client = std::make_shared<Client>();
    Connection::Events events;
    events.on_frame = [weak = weak_from_this(), client](const Frame& frame) {
      const auto store = weak.lock();
      const auto connection = client->connection.lock();
      if (!connection) return;
      // The communicator has gone: the peer must not wait for an answer. Nor is there more than one for a connection.
      if (!store || std::exchange(client->has_asked, true)) return connection->close_now();
      store->serve(connection, frame);
    };
    client->connection = Connection::start(std::move(fd), Network::instance().reactor(), std::move(events));
  }

 private:
  struct Client {
    std::weak_ptr<Connection> connection;
    bool has_asked = false;
  };
  /// Somebody who waits for what takes long.
  struct Errand {
    std::shared_ptr<const Maker> maker;
    std::weak_ptr<Connection> client;
  };

  void serve(const std::shared_ptr<Connection>& connection, const Frame& frame) {
    FdKey key;
    ByteReader reader(frame.payload);
    reader.block(key.bytes.data(), key.bytes.size());
    if (frame.type != FrameType::kFetch || !reader.complete()) return connection->close_now();
    const auto maker = find(key);
    if (!maker) return give(*connection, {});
    if (!maker->on_demand) return give(*connection, made_by(*maker));
    try {
      send_for({maker, connection});
    } catch (const std::exception& thrown) {  // a system without memory for a thread says that it is busy
      give(*connection, {{}, formatted("out of memory or of threads: {}", as_error(thrown).what())});
    }
  }

  void send_for(Errand errand) {
    const std::lock_guard lock(mutex_);
    errands_.push_back(std::move(errand));
    if (runs_errands_) return;
    try {
      std::thread([self = shared_from_this(), reactor = &Network::instance().reactor()] {
        set_thread_name("NitinolOffers");
        self->run_errands(*reactor);
      }).detach();  // it ends by itself
    } catch (const std::exception&) {
      errands_.pop_back();
      throw;
    }
    runs_errands_ = true;
  }

  void run_errands(Reactor& reactor) {
    while (const auto errand = next_errand()) {
      if (errand->client.expired()) continue;  // has given up
      try {
        const auto given = std::make_shared<Given>(made_by(*errand->maker));
        reactor.post([client = errand->client, given] {
          if (const auto connection = client.lock()) give_or_close(*connection, *given);
        });
      } catch (const std::exception&) {  // no memory even to say why
        if (const auto connection = errand->client.lock()) connection->close_now();
      }
    }
  }

  std::optional<Errand> next_errand() {
    const std::lock_guard lock(mutex_);
    runs_errands_ = !errands_.empty();
    if (errands_.empty()) return std::nullopt;
    Errand next = std::move(errands_.front());
    errands_.pop_front();
    return next;
  }

  static Given made_by(const Maker& maker) {
    try {
      return {maker.make()};
    } catch (const std::exception& thrown) {
      const Error error = as_error(thrown);
      log_info(Subsystem::kInit, "nothing to share for a peer that asks: {}", error.what());
      return {{}, error.what()};
    }
  }

  static void give(Connection& connection, const Given& given) {
    ByteWriter writer;
    writer.integer(static_cast<std::uint8_t>(given.shared.fd ? 1 : 0));
    writer.integer(given.shared.metadata);
    writer.text(given.reason, kLongestFdReason);
    Frame answer = control_frame(FrameType::kDescriptor, writer.take());
    answer.payload.resize(kFdAnswerPayload);
    if (!given.shared.fd) {
      connection.send(answer);
    } else if (!connection.send_descriptor(answer, given.shared.fd.get())) {
      return connection.close_now();
    }
    connection.close_after_flush();
  }

  /// Outside the connection's own callbacks, where lack of memory would leave the peer waiting.
  static void give_or_close(Connection& connection, const Given& given) {
    try {
      give(connection, given);
    } catch (const std::exception&) {
      connection.close_now();
    }
  }

  std::shared_ptr<const Maker> find(const FdKey& key) {
    const std::lock_guard lock(mutex_);
    const auto found = makers_.find(key);
    return found == makers_.end() ? nullptr : found->second;
  }

  std::mutex mutex_;  // guards what follows
  std::map<FdKey, std::shared_ptr<const Maker>> makers_;
  std::deque<Errand> errands_;
  bool runs_errands_ = false;  ///< on a thread, while there are any
};

namespace {

/// The Unix listener of the process and the stores of its communicators.
class FdServer {
 public:
  static FdServer& instance() {
    // Per network, since a forked child has a new one and needs its own listener, too.
    static std::mutex mutex;
    static std::map<Network*, FdServer*>& servers = *new std::map<Network*, FdServer*>();
    const std::lock_guard lock(mutex);
    auto& server = servers[&Network::instance()];
    if (server == nullptr) server = new FdServer();
    return *server;
  }

  const FdServerName& name() const { return name_; }

  struct Entry {
    std::shared_ptr<FdStore> store;
    std::shared_ptr<void> service;
  };

  Entry join(const Secret& secret) {
    const Secret key = fd_key(secret);
    const KeyId id = key_id(key);
    const std::lock_guard lock(mutex_);
    auto& known = stores_[id];
    auto store = known.store.lock();
    auto service = known.service.lock();
    if (!store || !service) {
      store = std::make_shared<FdStore>();
      // The last rank to leave may just be taking the old service out of the table.
      do {
        service = Network::instance().services().add({key, [store](UniqueFd fd) { store->accepted(std::move(fd)); }});
      } while (!service);
      known = {store, service};
    }
    std::erase_if(stores_, [&](const auto& entry) { return entry.first != id && entry.second.store.expired(); });
    return {store, service};
  }

 private:
  struct Known {
    std::weak_ptr<FdStore> store;
    std::weak_ptr<void> service;
  };

  FdServer() : name_(random_name()) {
    Network& network = Network::instance();
    acceptor_ = Acceptor::start(listen_at(name_), network.reactor(), network.services());
  }

  FdServerName name_;
  std::shared_ptr<Acceptor> acceptor_;
  std::mutex mutex_;
  std::map<KeyId, Known> stores_;
};

}  // namespace

FdKey FdKey::random() {
  FdKey key;
  fill_random(key.bytes);
  return key;
}

/// Keys that one FdExchange has published, withdrawn together; and its share in the service.
struct PublishedKeys {
  std::shared_ptr<FdStore> store;
  std::shared_ptr<void> service;
  std::mutex mutex;
  std::set<FdKey> keys;

  ~PublishedKeys() {
    for (const FdKey& key : keys) store->erase(key);
  }
  void put(const FdKey& key, FdStore::Maker maker) {
    store->put(key, std::move(maker));
    const std::lock_guard lock(mutex);
    keys.insert(key);
  }
};

FdExchange::FdExchange(const Secret& secret) : secret_(fd_key(secret)), published_(std::make_shared<PublishedKeys>()) {
  const auto entry = FdServer::instance().join(secret);
  published_->store = entry.store;
  published_->service = entry.service;
}

FdExchange::~FdExchange() = default;

FdServerName FdExchange::server_name() const { return FdServer::instance().name(); }

void FdExchange::publish(const FdKey& key, UniqueFd fd, std::uint64_t metadata) {
  const auto owned = std::make_shared<UniqueFd>(std::move(fd));
  publish(key, [owned, metadata] { return SharedFd{UniqueFd(::fcntl(owned->get(), F_DUPFD_CLOEXEC, 0)), metadata}; });
}

void FdExchange::publish(const FdKey& key, std::function<SharedFd()> make) {
  published_->put(key, {std::move(make), false});
}

void FdExchange::publish_on_demand(const FdKey& key, std::function<SharedFd()> make) {
  published_->put(key, {std::move(make), true});
}

void FdExchange::withdraw(const FdKey& key) {
  published_->store->erase(key);
  const std::lock_guard lock(published_->mutex);
  published_->keys.erase(key);
}

}  // namespace nitinol
