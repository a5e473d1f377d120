// The rendezvous point of a unique id: collects the ranks of its block, then tells each one where its tree parent
// listens. It stays in touch with every rank until that rank knows that all are in, so that a rank that dies, a
// rank that never comes, duplicates and contradictions become one sentence on all ranks.
#pragma once

#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/address.h"
#include "bootstrap/connection.h"
#include "bootstrap/messages.h"
#include "bootstrap/network.h"
#include "bootstrap/options.h"
#include "bootstrap/secret.h"
#include "bootstrap/tree_shape.h"

namespace nitinol {

enum class RootLife {
  kOneCommunicator,  // afterwards it answers that the id was used
  kReusable,         // the id comes from an address and may serve again: afterwards the root is gone
  kRepeatable,       // as kOneCommunicator, but if it failed the ranks may come again
};

struct RootArguments {
  RootLife life = RootLife::kOneCommunicator;
  std::chrono::milliseconds patience_with_cause = BootstrapOptions().patience_with_cause;
  std::chrono::milliseconds warn_after{0};  // the log tells which ranks have not come; 0: never
  std::vector<std::string> names{};         // what sentences call the ranks; none: their numbers
};

/// Starts a root that listens at `address` (port 0: any port) in this process; returns where. Does nothing but that if
/// there is a root for this secret in this process already.
SocketAddress start_root(const Secret& secret, const SocketAddress& address, RootArguments arguments);

/// Is there a root for this secret in this process?
bool has_root(const Secret& secret);

/// Has the root for this secret, if it is in this process, tell all ranks that there is no memory. Takes none.
void report_lack_to_own_root(const Secret& secret);

/// The key that ranks prove to the root.
Secret root_key(const Secret& secret);

/// Lives on the network thread.
class Root : public Reactor::Leaver, public std::enable_shared_from_this<Root> {
 public:
  Root(std::shared_ptr<Listener> listener, RootArguments arguments);
  /// Takes the handle that keeps this root in the table of services.
  void attach(std::shared_ptr<void> service);
  void accepted(UniqueFd fd);

 private:
  enum class State { kGathering, kConnecting, kFinished };
  struct Visitor {
    std::shared_ptr<Connection> connection;
    std::optional<Registration> registration;
    std::optional<Registration> looks_up;  // of another block: what it says of itself
    bool done = false;
  };
  using VisitorPointer = std::shared_ptr<Visitor>;

  void leave() override;
  void let_in(UniqueFd&& fd);
  void on_frame(const VisitorPointer& visitor, const Frame& frame);
  void on_closed(const VisitorPointer& visitor, const Ending& ending);
  void on_given_up(const Visitor& visitor, const Failure& failure);
  void on_lookup(const VisitorPointer& visitor, const Frame& frame);
  void on_register(const VisitorPointer& visitor, const Frame& frame);
  void on_absent(const VisitorPointer& visitor, const Frame& frame);
  void on_compare(const VisitorPointer& visitor, const Frame& frame);
  void on_first_registration(const Registration& registration);
  void heed_time_of(const Registration& registration);
  std::optional<Failure> contradiction_of_lookups() const;
  /// As the first rank that came.
  bool has_same_ids(const Registration& registration) const;
  /// To one who does not say what all must say alike.
  std::optional<Failure> contradiction(const Registration& registration) const;
  /// To one who wants to be in this block.
  std::optional<Failure> objection(const Registration& registration) const;
  /// Whether nothing is to be said to those who come now that all is over.
  bool leaves_nothing() const;
  void reply_to_all();
  void serve_lookups();
  void check_finished();
  void finish();
  void dismiss_visitors();
  void fail_all(const Failure& failure);
  void fail_without_memory() noexcept;
  template <typename Step>
  void attempt(const Step& step);
  void send_error(const VisitorPointer& visitor, const Failure& failure);
  void turn_away(const VisitorPointer& visitor);
  void enter(State next) noexcept;
  void start_timer(std::chrono::milliseconds delay);
  void on_timeout();
  void start_warning_timer();
  void tell_who_is_late() const;
  std::string absence(std::chrono::milliseconds within) const;
  std::string missing_ranks() const;

  std::shared_ptr<Listener> listener_;
  RootLife life_;
  std::chrono::milliseconds warn_after_;
  std::chrono::milliseconds patience_with_cause_;
  std::vector<std::string> names_;
  std::shared_ptr<void> service_;
  State state_ = State::kGathering;
  std::optional<Failure> failure_;
  Failure lack_;              // of memory: what is said then is made before
  SharedBytes word_of_lack_;  // the same, a frame
  bool has_hearsay_ = false;
  std::optional<Registration> first_;  // what all others must agree with
  std::chrono::milliseconds time_to_gather_{};
  std::optional<std::chrono::steady_clock::time_point> gathers_until_;
  std::optional<TreeShape> shape_;
  std::map<int, VisitorPointer> members_;
  std::list<VisitorPointer> visitors_;  // all with an open connection
  int lookups_served_ = 0;
  int not_done_ = 0;
  std::optional<Reactor::Timer> timer_;
  std::optional<Reactor::Timer> warning_timer_;
};

}  // namespace nitinol
