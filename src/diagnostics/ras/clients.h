// Whoever asks about the job in lines of text: listens, reads commands, writes answers. Strangers all of them: what
// they may fill is bounded, and who is silent, slow or senseless is dropped. On the thread of its reactor only.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/address.h"
#include "bootstrap/reactor.h"
#include "diagnostics/ras/command.h"
#include "diagnostics/ras/gather.h"
#include "diagnostics/ras/own_socket.h"

namespace nitinol::ras {

class Clients {
 public:
  /// Starts to find an answer; giving the result up ends the search.
  using Ask = std::function<std::shared_ptr<Gather>(const Question&, Gather::Done)>;

  Clients(Reactor& reactor, int timeout_factor, Ask ask);
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  /// Listens at the first of the addresses where that is possible, beside other processes of the same user: that one;
  /// or nothing, and what was wrong.
  std::optional<SocketAddress> listen(const std::vector<SocketAddress>& addresses, std::string& trouble);

 private:
  /// For one client, or for several that have put the same question.
  struct Search {
    Question question;
    std::shared_ptr<Gather> gather;
  };
  enum class Stage { kReading, kWaiting, kAsking, kSending, kLingering };
  struct Client {
    OwnSocket fd;
    Reactor::Token token = 0;
    Stage stage = Stage::kReading;
    Reactor::Clock::time_point deadline;
    std::string input;
    std::string output;
    std::size_t sent = 0;
    int mistakes = 0;
    std::chrono::milliseconds timeout{0};
    bool json = false;
    Command::Kind asked = Command::Kind::kNothing;
    std::shared_ptr<Search> search;
  };
  using Position = std::list<Client>::iterator;

  std::string listen_at(const SocketAddress& address);
  void on_listening(std::uint32_t events);
  void pause();
  void stop_listening();
  void admit(UniqueFd fd, bool local);
  void on_events(Position position, std::uint32_t events);
  bool read(Client& client);  // false: drop it
  void obey(Position position);
  void handle(Position position, std::string_view line);
  void ask_or_wait(Client& client);
  std::shared_ptr<Search> search_for(const Question& question);
  void on_job(const std::shared_ptr<Search>& search, const Job& job);
  void reply(Client& client, std::string_view text);
  bool send(Client& client);  // false: drop it
  void update(Position position);
  void enter(Client& client, Stage stage);
  void drop(Position position);
  void drop_one();
  void start_waiting();
  void sweep();
  void sweep_later();

  Reactor& reactor_;
  const int timeout_factor_;
  const Ask ask_;
  OwnSocket listening_;
  Reactor::Token listening_token_ = 0;
  std::list<Client> clients_;                    // oldest first
  std::vector<std::weak_ptr<Search>> searches_;  // the same
  bool sweeping_ = false;
};

/// Whether an address is one of this host's.
bool is_of_this_host(const SocketAddress& address);

}  // namespace nitinol::ras
