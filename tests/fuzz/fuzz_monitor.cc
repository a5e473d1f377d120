// Conversations of health monitoring: what clients say to the port where they ask, in pieces; and what another process
// of a communicator answers to whoever gathers a job's reports, all the way to the text that people read.
// LIBRARIES: nitinol_ras nitinol_bootstrap nitinol_model nitinol_base
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/host.h"
#include "base/unique_fd.h"
#include "bootstrap/address.h"
#include "bootstrap/handshake.h"
#include "bootstrap/loopback_testing.h"
#include "bootstrap/reactor.h"
#include "bootstrap/wire.h"
#include "diagnostics/ras/clients.h"
#include "diagnostics/ras/gather.h"
#include "diagnostics/ras/registry.h"
#include "diagnostics/ras/render.h"
#include "frames.h"
#include "hearing.h"
#include "model/peer.h"

namespace {

using namespace nitinol;
using namespace nitinol::fuzz;

/// Listens at a port of the loopback interface.
struct Listener {
  UniqueFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  SocketAddress address = bind_to_loopback(fd.get());

  Listener() {
    if (::listen(fd.get(), 8) != 0) std::abort();
  }
};

void hear_out(int fd) {
  char buffer[4096];
  do {
    if (!wait_for(fd, kPatience)) std::abort();
  } while (::recv(fd, buffer, sizeof(buffer), 0) > 0);
}

class OneRank : public ras::Subject {
 public:
  ras::RankReport health() const override {
    ras::RankReport report;
    report.state = "ready";
    return report;
  }
  bool has_failed() const override { return false; }
  std::string dump(bool) const override { return "{}"; }
};

/// This process has rank 0 of a communicator of two; rank 1 listens where the fuzz target does.
class Job {
 public:
  explicit Job(const SocketAddress& other) {
    Peer peers[2];
    for (int rank = 0; rank < 2; ++rank) {
      peers[rank].rank = rank;
      peers[rank].process = kProcess + static_cast<std::uint64_t>(rank);
      peers[rank].pid = getpid();
      peers[rank].host = host_identity();
      ByteWriter writer;
      other.encode(writer);
      const auto bytes = writer.take();
      std::memcpy(peers[rank].meeting_point.data(), bytes.data(),
                  std::min(bytes.size(), peers[rank].meeting_point.size()));
    }
    ras::Newcomer newcomer;
    newcomer.id = key_id(secret_);
    newcomer.secret = secret_;
    newcomer.peers = peers;
    registry_.enter(newcomer, subject_);
  }
  ~Job() { registry_.leave(key_id(secret_), 0); }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const ras::Registry& registry() const { return registry_; }
  Secret key() const { return ras::ras_key(secret_); }

  static constexpr std::uint64_t kProcess = 0x4242;

 private:
  Secret secret_ = random_secret();
  OneRank subject_;
  ras::Registry registry_;
};

Reactor& reactor() {
  static Reactor* const the_one = [] {
    auto* const made = new Reactor;
    made->start();
    return made;
  }();
  return *the_one;
}

void on_reactor(const std::function<void()>& function) {
  std::promise<void> done;
  reactor().post([&] {
    function();
    done.set_value();
  });
  done.get_future().wait();
}

/// Rank 1's process: proves itself to whoever connects and answers with the bytes.
void answer(int listener, const Secret& key, const Bytes& bytes, const std::atomic<bool>& over) {
  while (!over) {
    if (!wait_for(listener, 2)) continue;
    const UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    HelloBytes hello{};
    ProofBytes proof{};
    ServerHandshake handshake;
    if (!fd || !hear(fd.get(), hello) || !handshake.hello(hello)) continue;
    const AnswerBytes mine = handshake.answer(key);
    say(fd.get(), std::as_bytes(std::span(mine)));
    if (!hear(fd.get(), proof) || !handshake.verify(proof)) continue;
    say(fd.get(), bytes);
    ::shutdown(fd.get(), SHUT_WR);
    hear_out(fd.get());
  }
}

/// The input as one answer that is well formed as a frame, or as frames of any kind.
void fuzz_answer(std::span<const std::byte> input, bool as_tell) {
  const Listener listener;
  const Job job(listener.address);
  Bytes bytes = frames_of(input);
  if (as_tell) {
    Frame frame;
    frame.type = FrameType::kTell;
    frame.payload.assign(input.begin(), input.end());
    bytes = encode_frame(frame);
  }
  std::atomic<bool> over{false};
  std::thread other([&] { answer(listener.fd.get(), job.key(), bytes, over); });
  std::promise<ras::Job> found;
  auto future = found.get_future();
  std::shared_ptr<ras::Gather> gather;
  on_reactor([&] {
    ras::Question question;
    question.dumps = input.size() % 2 == 0;
    question.patience = std::chrono::milliseconds(50);
    gather = ras::Gather::start(reactor(), job.registry(), question,
                                [&](ras::Job result) { found.set_value(std::move(result)); });
  });
  if (future.wait_for(std::chrono::milliseconds(kPatience)) != std::future_status::ready) std::abort();
  const ras::Job result = future.get();
  on_reactor([&] { gather.reset(); });
  over = true;
  other.join();
  static_cast<void>(ras::render_text(result, true));
  static_cast<void>(ras::render_json(result));
}

/// One client, whose words come in two pieces.
void fuzz_client(std::span<const std::byte> input, std::size_t first) {
  static const SocketAddress address = [] {
    static Listener* const place = new Listener;  // holds the port; nobody accepts there
    SocketAddress nobody = place->address;
    nobody.port = 1;
    static Job* const job = new Job(nobody);
    static auto* const clients = new ras::Clients(reactor(), 1, [](const ras::Question& question, auto done) {
      return ras::Gather::start(reactor(), job->registry(), question, std::move(done));
    });
    const SocketAddress at = place->address;
    place->fd.reset();
    std::string trouble;
    on_reactor([&] {
      if (!clients->listen({at}, trouble)) std::abort();
    });
    return at;
  }();
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage storage;
  const socklen_t length = address.to_sockaddr(storage);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0) {
    if (errno == EADDRNOTAVAIL) return;  // the ports of all earlier clients are still reserved
    std::abort();
  }
  first = std::min(first, input.size());
  say(fd.get(), input.first(first));
  on_reactor([] {});
  say(fd.get(), input.subspan(first));
  ::shutdown(fd.get(), SHUT_WR);
  hear_out(fd.get());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 || size > 8192) return 0;
  const auto input = std::as_bytes(std::span(data, size)).subspan(2);
  switch (data[0] % 3) {
    case 0: fuzz_client(input, data[1]); break;
    case 1: fuzz_answer(input, true); break;
    case 2: fuzz_answer(input, false); break;
  }
  return 0;
}
