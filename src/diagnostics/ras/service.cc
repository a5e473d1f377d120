#include "diagnostics/ras/service.h"

#include <pthread.h>
#include <sys/epoll.h>

#include <future>
#include <system_error>

#include "base/blocked_signals.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings.h"
#include "bootstrap/waker.h"
#include "diagnostics/ras/dump_signal.h"

namespace nitinol::ras {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostGuests = 512;
constexpr auto kGuestPatience = 30s;
constexpr auto kSilenceLimit = 60s;
constexpr auto kDumpPatience = 2s;  // while the process exits
constexpr auto kStopPatience = 5s;  // much more than the thread sleeps without being woken

/// Where to listen; nothing if the text is no address, which is noted in the log.
std::vector<SocketAddress> listen_addresses(const std::string& text) {
  const auto where = split_host_and_port(text);
  if (!where) {
    log_note("NCCL_RAS_ADDR={} is not of the form host:port or [ipv6]:port: RAS does not listen for clients", text);
    return {};
  }
  if (where->host != "localhost") {
    try {
      return {resolve(*where, AF_UNSPEC)};
    } catch (const Error& error) {
      log_note("NCCL_RAS_ADDR={}: {}; RAS does not listen for clients", text, error.what());
      return {};
    }
  }
  SocketAddress v4;
  v4.family = AF_INET;
  v4.host = {127, 0, 0, 1};
  v4.port = where->port;
  SocketAddress v6;
  v6.family = AF_INET6;
  v6.host[15] = 1;
  v6.port = where->port;
  return {v4, v6};
}

}  // namespace

ServiceOptions options_from_settings() {
  const Settings& s = settings();
  ServiceOptions options;
  options.enabled = s.flag(Setting::kRasEnable);
  if (options.enabled) options.listen = listen_addresses(s.text(Setting::kRasAddr));
  options.timeout_factor = static_cast<int>(s.integer(Setting::kRasTimeoutFactor));
  return options;
}

Service::Service(ServiceOptions options, Registry& registry)
    : options_(std::move(options)),
      registry_(registry),
      silences_(kSilenceLimit * options_.timeout_factor),
      clients_(reactor_, options_.timeout_factor, [this](const Question& question, Gather::Done done) {
        return Gather::start(reactor_, registry_, question, [this, done = std::move(done)](Job job) {
          silences_.note(job);
          done(std::move(job));
        });
      }) {
  reactor_.post([this] { set_up(); });
  const BlockedSignals blocked;
  try {
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "nitinol-ras");
      reactor_.run();
      const std::lock_guard lock(mutex_);
      ended_ = true;
      ended_changed_.notify_all();
    });
  } catch (const std::system_error& error) {
    fail(ncclSystemError, "cannot start the thread: {}", error.what());
  }
}

Service::~Service() = default;

bool Service::stop() noexcept {
  reactor_.stop();
  std::unique_lock lock(mutex_);
  const bool ended = ended_changed_.wait_for(lock, kStopPatience, [this] { return ended_; });
  lock.unlock();
  ended ? thread_.join() : thread_.detach();
  return ended;
}

void Service::leave_behind(std::shared_ptr<Service> service) noexcept {
  Service& left = *service;
  left.self_ = std::move(service);
}

void Service::set_up() {
  if (options_.dump_descriptor >= 0) {
    dump_token_ =
        reactor_.add(options_.dump_descriptor, EPOLLIN, [this](std::uint32_t events) { on_dump_signal(events); });
  }
  if (!options_.enabled || options_.listen.empty()) return;
  std::string trouble;
  if (const auto address = clients_.listen(options_.listen, trouble)) {
    log_info(Subsystem::kRas, "RAS listens at {}", address->to_string());
  } else {
    log_info(Subsystem::kRas,
             "RAS cannot listen for clients at {}: another program may use the port (NCCL_RAS_ADDR chooses another); "
             "everything else goes on",
             trouble);
  }
}

void Service::on_dump_signal(std::uint32_t events) {
  if ((events & (Reactor::kClosed | Reactor::kBlind)) != 0) {
    reactor_.remove(dump_token_, options_.dump_descriptor);
    forget_signal_descriptor();  // whoever watches next is not to get a number that is the program's now
    return log_note("no dumps on a signal any more: the program has closed descriptors of the library");
  }
  Waker::calm(options_.dump_descriptor);
  registry_.want_all_dumps();
  registry_.write_due_dumps();
}

void Service::write_due_dumps() {
  reactor_.post([this] { registry_.write_due_dumps(); });
}

void Service::finish_dumps() {
  const auto done = std::make_shared<std::promise<void>>();
  auto finished = done->get_future();
  reactor_.post([this, done] {
    registry_.want_dumps_of_failures();
    registry_.write_due_dumps();
    done->set_value();
  });
  finished.wait_for(kDumpPatience);
}

void Service::let_in(UniqueFd fd) {
  reactor_.post([this, shared = std::make_shared<UniqueFd>(std::move(fd))] { admit(std::move(*shared)); });
}

void Service::admit(UniqueFd fd) {
  if (guests_.size() >= kMostGuests) show_out(guests_.begin()->first);
  const GuestName name = next_guest_++;
  Guest guest;
  guest.timer = reactor_.run_after(kGuestPatience * options_.timeout_factor, [this, name] { show_out(name); });
  Connection::Events events;
  events.on_frame = [this, name](const Frame& frame) { on_frame(name, frame); };
  events.on_closed = [this, name](const Ending&) { show_out(name); };
  guest.connection = Connection::start(std::move(fd), reactor_, std::move(events));
  guests_.emplace(name, std::move(guest));
}

void Service::on_frame(GuestName name, const Frame& frame) {
  const auto ask = frame.type == FrameType::kAsk ? decode_ask(frame.payload) : std::nullopt;
  const auto guest = guests_.find(name);
  if (guest == guests_.end() || guest->second.relay) return;  // one question each
  if (!ask) return show_out(name);
  if (ask->hops.empty()) {
    answer(name, *ask);
  } else {
    pass_on(name, *ask);
  }
}

void Service::answer(GuestName name, const Ask& ask) {
  Tell message;
  message.report = registry_.report(ask.known);
  if (ask.what == Ask::What::kReportAndDumps) message.dumps = registry_.dumps(ask.dumps_as_text);
  tell(name, encode(message));
}

void Service::pass_on(GuestName name, Ask ask) {
  Guest& guest = guests_.at(name);
  const std::uint64_t next = ask.hops.front();
  ask.hops.erase(ask.hops.begin());
  reactor_.cancel(guest.timer);
  const auto patience = std::min(std::chrono::milliseconds(ask.patience_ms),
                                 std::chrono::milliseconds(kSilenceLimit * options_.timeout_factor));
  guest.timer = reactor_.run_after(patience, [this, name] { tell_trouble(name, "no answer in time"); });
  guest.relay = Link::start(reactor_, registry_.contacts(next), encode(ask),
                            [this, name](std::optional<std::vector<std::byte>> answer, const std::string& trouble) {
                              if (!answer) return tell_trouble(name, trouble);
                              tell(name, std::move(*answer));
                            });
}

void Service::tell_trouble(GuestName name, const std::string& trouble) {
  Tell message;
  message.trouble = trouble;
  const auto guest = guests_.find(name);
  message.hung_up = guest != guests_.end() && guest->second.relay && guest->second.relay->has_hung_up();
  tell(name, encode(message));
}

void Service::tell(GuestName name, std::vector<std::byte> payload) {
  const auto guest = guests_.find(name);
  if (guest == guests_.end()) return;
  if (payload.size() > largest_payload(FrameType::kTell)) return tell_trouble(name, "it has too much to tell");
  guest->second.connection->send(control_frame(FrameType::kTell, std::move(payload)));
  guest->second.connection->close_after_flush();
  reactor_.cancel(guest->second.timer);
  guests_.erase(guest);
}

void Service::show_out(GuestName name) {
  const auto guest = guests_.find(name);
  if (guest == guests_.end()) return;
  reactor_.cancel(guest->second.timer);
  guest->second.connection->close_now();
  guests_.erase(guest);
}

}  // namespace nitinol::ras
