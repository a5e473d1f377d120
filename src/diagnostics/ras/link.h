// One question to another process: connects, proves the communicator's secret, asks, and hears the answer, without ever
// waiting. On the thread of its reactor only.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/connection.h"
#include "bootstrap/handshake.h"
#include "bootstrap/reactor.h"
#include "diagnostics/ras/own_socket.h"
#include "diagnostics/ras/registry.h"

namespace nitinol::ras {

class Link : public std::enable_shared_from_this<Link> {
 public:
  /// The payload of the answering frame, or why there is none. Called once, never from within start().
  using Outcome = std::function<void(std::optional<std::vector<std::byte>> answer, const std::string& trouble)>;

  /// Tries the contacts one after the other. Whoever holds the link gives up by letting it go.
  static std::shared_ptr<Link> start(Reactor& reactor, std::vector<Contact> contacts, std::vector<std::byte> question,
                                     Outcome outcome);

  /// Whether somebody was there who did not answer.
  bool has_hung_up() const { return hung_up_; }

  Link(Reactor& reactor, std::vector<Contact> contacts, std::vector<std::byte> question, Outcome outcome);
  ~Link();

 private:
  enum class Stage { kConnecting, kProving };

  void try_next();
  bool connect_to(const Contact& contact);
  void on_events(std::uint32_t events);
  void on_connected();
  void on_proof();
  void on_hung_up(std::string trouble);
  void ask();
  void give_up_contact(std::string trouble);
  void close();
  void finish(std::optional<std::vector<std::byte>> answer);

  Reactor& reactor_;
  std::deque<Contact> contacts_;  ///< the first one is being tried
  std::vector<std::byte> question_;
  Outcome outcome_;
  std::string trouble_ = "no way to reach it is known";
  bool hung_up_ = false;
  Stage stage_ = Stage::kConnecting;
  OwnSocket fd_;
  Reactor::Token token_ = 0;
  std::optional<ClientHandshake> handshake_;
  AnswerBytes answer_{};
  std::size_t filled_ = 0;
  std::shared_ptr<Connection> connection_;
};

}  // namespace nitinol::ras
