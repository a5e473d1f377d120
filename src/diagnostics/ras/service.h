// The health monitoring thread of a process: serves clients that ask about the job, and answers other processes.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "bootstrap/address.h"
#include "bootstrap/connection.h"
#include "bootstrap/reactor.h"
#include "diagnostics/ras/clients.h"
#include "diagnostics/ras/gather.h"
#include "diagnostics/ras/messages.h"
#include "diagnostics/ras/registry.h"

namespace nitinol::ras {

struct ServiceOptions {
  bool enabled = true;                ///< false: dumps only
  std::vector<SocketAddress> listen;  ///< the first that is possible
  int timeout_factor = 1;
  int dump_descriptor = -1;  ///< readable when everything is to be dumped; -1: none
};

/// Without a descriptor for dumps.
ServiceOptions options_from_settings();

class Service {
 public:
  /// Starts the thread. Throws Error.
  Service(ServiceOptions options, Registry& registry);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Ends the thread and waits for that, but not for ever: false if it is still somewhere, and this object has to stay.
  /// Once.
  [[nodiscard]] bool stop() noexcept;
  /// It stays as long as the process.
  static void leave_behind(std::shared_ptr<Service> service) noexcept;

  // From any thread:
  /// Another process of the job has connected and has proved it.
  void let_in(UniqueFd fd);
  void write_due_dumps();
  /// Those of failures, too; returns once it is done, or has taken too long.
  void finish_dumps();

 private:
  /// Another process that asks.
  struct Guest {
    std::shared_ptr<Connection> connection;
    Reactor::Timer timer;
    std::shared_ptr<Link> relay;  ///< to whom its question was passed on
  };
  using GuestName = std::uint64_t;

  void set_up();
  void on_dump_signal(std::uint32_t events);
  void admit(UniqueFd fd);
  void on_frame(GuestName name, const Frame& frame);
  void answer(GuestName name, const Ask& ask);
  void pass_on(GuestName name, Ask ask);
  void tell(GuestName name, std::vector<std::byte> payload);
  void tell_trouble(GuestName name, const std::string& trouble);
  void show_out(GuestName name);

  const ServiceOptions options_;
  Registry& registry_;
  Reactor reactor_;  // before whatever is registered with it
  Silences silences_;
  Reactor::Token dump_token_ = 0;
  Clients clients_;
  std::map<GuestName, Guest> guests_;
  GuestName next_guest_ = 1;
  std::mutex mutex_;  // guards ended_
  std::condition_variable ended_changed_;
  bool ended_ = false;
  std::thread thread_;
  std::shared_ptr<Service> self_;  ///< of one that is left behind
};

}  // namespace nitinol::ras
