// One rank's place in the tree of a communicator: its connections to parent and children, what has arrived on them, and
// the communicator's first failure. The network thread reads; operations wait for what it puts into the neighbours'
// mailboxes.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/attendance.h"
#include "bootstrap/connect.h"
#include "bootstrap/connection.h"
#include "bootstrap/end_of_process.h"
#include "bootstrap/liveness.h"
#include "bootstrap/messages.h"
#include "bootstrap/network.h"
#include "bootstrap/options.h"
#include "bootstrap/tree_shape.h"

namespace nitinol {

struct TreeArguments {
  int rank = 0;
  TreeShape shape{1, 1};
  Secret secret;  // what the ranks have in common before they meet
  BootstrapOptions options;
  const std::atomic<bool>* abort_flag = nullptr;
};

/// What a frame of an operation belongs to.
struct OperationStep {
  Operation operation = Operation::kNone;
  std::uint64_t sequence = 0;
  std::string detail{};  ///< what it is about, for people
  std::string text() const { return detail.empty() ? operation_text(operation, sequence) : detail; }
};

class Tree : public EndOfProcess, public std::enable_shared_from_this<Tree> {
 public:
  /// Starts to listen: children may connect from now on. Throws Error.
  static std::shared_ptr<Tree> start(const TreeArguments& arguments);
  explicit Tree(const TreeArguments& arguments);
  ~Tree() override;  // closes what is open, without a goodbye

  int rank() const { return rank_; }
  int nranks() const { return shape_.nranks(); }
  const TreeShape& shape() const { return shape_; }
  /// Known once all ranks have agreed on it: from the common secret and a number that rank 0 drew.
  const Secret& secret() const { return secret_; }
  void agree_on_secret(const Contact& number) { secret_ = derive_secret(secret_, "communicator", number); }
  const BootstrapOptions& options() const { return options_; }
  const std::atomic<bool>* abort_flag() const { return abort_flag_; }
  const SocketAddress& listener_address() const { return listener_->address(); }
  const Contact& contact() const { return contact_; }

  /// Connects to the parent; `interrupt` is asked as well as this communicator's failure and abort flag.
  void connect_parent(const ParentReply& parent, Deadline deadline, const Interrupt& interrupt);
  void wait_for_children(Deadline deadline, const Interrupt& interrupt);
  /// Who a child is, for those who know before it connects.
  void expect_child(int child, const PeerIdentity& identity);

  // Operations. One thread at a time holds the turn.
  std::unique_lock<std::mutex> take_turn() { return std::unique_lock(turn_); }
  OperationStep next_step(Operation operation, std::string detail = "") {
    return {operation, ++sequence_, std::move(detail)};
  }
  std::uint64_t next_child_number() { return ++children_made_; }
  void send(int neighbour, const OperationStep& step, const SharedBytes& payload);
  /// The neighbour's part of this step. Throws Error; whatever is wrong becomes the communicator's failure.
  /// `interrupt` is asked now and then.
  std::vector<std::byte> receive(int neighbour, const OperationStep& step, Deadline deadline,
                                 const Interrupt& interrupt = {});
  /// Makes it the communicator's failure, and throws it.
  [[noreturn]] void fail_operation(const Failure& failure);
  /// By rank, for sentences from now on.
  void know_devices(std::span<const int> devices);
  /// The same; empty if they are not known.
  std::vector<int> devices() const;
  /// "rank 3 (host h, pid 123, device 2)", of this rank.
  std::string name() const {
    const std::lock_guard lock(mutex_);
    return own_name_locked();
  }
  /// How long an operation may wait for the others; 0: as long as joining may take. Any thread.
  void set_operation_timeout(std::chrono::milliseconds timeout) { operation_timeout_ = timeout; }
  /// How long that is.
  std::chrono::milliseconds operation_timeout() const {
    const std::chrono::milliseconds timeout = operation_timeout_;
    return timeout.count() > 0 ? timeout : options_.init_timeout;
  }
  Deadline operation_deadline(Operation operation) const;
  /// Whether it has not waited for a neighbour that had left before all had come to leave.
  bool found_somebody_gone() const { return found_somebody_gone_; }
  /// By another rank, as far as is known.
  bool was_revoked() const {
    const std::lock_guard lock(mutex_);
    return revoke_.has_value();
  }
  /// Before operations that are to use it. It must not use this tree.
  void ask_for_doings(DoingsOf doings) { doings_ = std::move(doings); }
  /// The same.
  void ask_for_stopped(WhoIsStopped stopped) { who_is_stopped_ = std::move(stopped); }
  /// From now on operations do not wait for neighbours whose process is stopped: nobody needs them any more.
  void hurry() { in_a_hurry_ = true; }

  /// Throws if the communicator failed, was shut down, or is to be aborted.
  void check() const {
    const std::lock_guard lock(mutex_);
    check_locked();
  }
  /// Throws if nobody can connect to this rank.
  void check_listener() const { listener_->check(listens_since_); }
  void watch(FailureCallback callback, NeedsOthers needs_others = {});
  /// What ended the communicator; if nothing has, who was the first to be lost or to depart.
  std::optional<Failure> failure() const;
  bool has_gone_rank() const {
    const std::lock_guard lock(mutex_);
    return failure_ && !is_over_locked() && failure_->rank != rank_;
  }
  /// Those that were lost or have departed, in the order in which this rank heard of them.
  std::vector<Failure> gone() const;
  /// Whether words of the other rank come, as far as is known: they go by way of others, of which one may be gone.
  bool hears_of(int rank) const;
  void report(const Failure& failure) { spread(failure, -1); }
  /// Whether its failure may be no more than that a neighbour is lost, which may have told the cause elsewhere.
  bool has_lost_neighbour() const {
    const std::lock_guard lock(mutex_);
    return has_lost_neighbour_;
  }
  /// That this rank has no memory to say more. Takes none.
  void report_lack_of_memory() noexcept;
  /// That this rank has revoked the communicator: operations go on, but who has not revoked it waits in none that it
  /// shares with this rank's program for long.
  void report_revoke();
  /// This rank has come to leave, but waits for these others of its process ("": for none any more): who waits for it
  /// says so, and does not wait for it in anything else.
  void tell_of_awaited(const std::string& ranks);
  bool is_connected_to(int neighbour) const;
  void shutdown();
  /// Other processes hear that this rank has departed, unless they know of its end already.
  void on_end_of_process() noexcept override;

 private:
  struct Neighbour {
    PeerIdentity identity;
    std::shared_ptr<Connection> connection;  // null: not there yet
    std::deque<Frame> mailbox;
    bool gone = false;    // said goodbye, or is lost
    std::string awaited;  // for whom it waits itself before it leaves
  };
  /// What a connection knows about its other end; the network thread's.
  struct Link {
    int rank = -1;  // a child's, once it has said it
    std::weak_ptr<Connection> connection;
  };
  using LinkPointer = std::shared_ptr<Link>;

  std::shared_ptr<Connection> open(UniqueFd fd, const LinkPointer& link);
  void accept_child(UniqueFd fd);
  void on_frame(const LinkPointer& link, Frame frame);
  void on_hello(const LinkPointer& link, const Frame& frame);
  void on_revoked(const Failure& revoke, int from);
  void pass_on_locked(const Frame& frame, int except);
  void on_closed(const LinkPointer& link, const Ending& ending);
  Failure failure_of(const Link& link, const Ending& ending) const;
  void spread(const Failure& failure, int except);
  /// Whether it has failed: that others are gone is not enough.
  bool is_over_locked() const { return failure_ && (end_ || failure_->parting == Parting::kFailed); }
  const Failure* end() const;
  const std::optional<Failure>& failure_locked() const { return end_ ? end_ : failure_; }
  bool is_news_locked(int of_rank) const;
  void tell_locked(const Failure& failure, int except);
  void tell_lack_locked(int except) noexcept;
  void prepare_last_words_locked();
  void call_back(const Failure& failure);
  void look_for_need();
  void look_after(std::chrono::milliseconds delay);
  bool tell_who_needs();
  void check_locked() const;
  std::string name_locked(int rank) const;
  std::string own_name_locked() const;
  std::string name_of(int rank, const PeerIdentity& identity) const;
  PeerIdentity on_its_device(int rank, PeerIdentity identity) const;
  std::chrono::milliseconds grace_for(int neighbour) const;
  bool wait_slice(std::unique_lock<std::mutex>& lock, Deadline deadline);
  const char* name_of_timeout(Operation operation) const;
  Failure difference(int neighbour, const OperationStep& step, const std::string& theirs) const;
  void expect_step(const Frame& frame, int neighbour, const OperationStep& step);
  /// How long an operation waits for a neighbour.
  struct Wait {
    std::chrono::steady_clock::time_point begin;
    Deadline deadline;
    bool graced = false;  ///< the deadline is a later one than the operation's
    std::optional<std::chrono::steady_clock::time_point> stopped_since{};
    std::optional<std::chrono::steady_clock::time_point> revoked_since{};  ///< as far as this wait has seen
    std::optional<std::chrono::steady_clock::time_point> frozen_since{};   ///< the neighbour's process, the same
    bool warned = false;                                                   ///< the log tells of it
    Attendance attendance{};
    void leave_out(std::chrono::steady_clock::duration missed) {
      begin += missed;
      deadline += missed;
      if (revoked_since) *revoked_since += missed;
      if (frozen_since) *frozen_since += missed;
    }
    std::chrono::milliseconds so_far() const {
      return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
    }
  };
  template <typename Words>
  bool warn_if_long(std::unique_lock<std::mutex>& lock, Operation operation, Wait& wait, const Words& words) const;
  static bool is_about_to_leave(const Neighbour& neighbour, const OperationStep& step);
  bool has_left_locked(const Neighbour& neighbour, const OperationStep& step) const;
  bool is_over_locked(int neighbour, const OperationStep& step, Wait& wait) const;
  bool is_revoked_locked(const OperationStep& step, Wait& wait) const;
  bool given_up_locked(int neighbour, const OperationStep& step, Wait& wait) const;
  bool is_frozen_for_long_locked(int neighbour, const OperationStep& step, Wait& wait) const;
  bool may_tell_locked(int neighbour, Wait& wait) const;
  Failure blame_locked(int neighbour, const OperationStep& step, Wait& wait) const;
  std::string complaint_locked(int neighbour, const OperationStep& step, std::chrono::milliseconds waited) const;
  std::string absence_locked(int child, const std::string& within) const;
  std::string word_of_revoke_locked(int neighbour, const OperationStep& step) const;

  const int rank_;
  const PeerIdentity self_ = this_process();
  const TreeShape shape_;
  Secret secret_;
  Contact contact_{};
  const BootstrapOptions options_;
  const std::atomic<bool>* const abort_flag_;
  std::atomic<std::chrono::milliseconds> operation_timeout_;
  std::atomic<bool> in_a_hurry_{false};
  std::atomic<bool> found_somebody_gone_{false};
  DoingsOf doings_;
  WhoIsStopped who_is_stopped_;
  std::shared_ptr<Listener> listener_;
  /// What the process lacked before, for others, may be there again.
  const std::chrono::steady_clock::time_point listens_since_ = std::chrono::steady_clock::now();
  std::shared_ptr<void> service_;

  std::mutex turn_;
  std::uint64_t sequence_ = 0;  // of whose turn it is
  std::atomic<std::uint64_t> children_made_{0};

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<int, Neighbour> neighbours_;  // parent and children
  std::optional<Failure> failure_;       // the first: operations of this tree end with it
  std::optional<Failure> end_;           // what ended the communicator, where the first was no more than a parting
  std::vector<Failure> gone_;            // those that were lost or have departed
  Failure lack_;                         // of memory: what is said then is made before
  SharedBytes word_of_lack_;             // the same, a frame
  SharedBytes word_of_end_;              // of the process, a frame
  std::optional<Failure> revoke_;        // what the first other rank says that has revoked the communicator
  bool has_revoked_ = false;             // this rank
  bool told_of_awaited_ = false;
  bool has_lost_neighbour_ = false;  // before any failure
  bool shut_down_ = false;
  std::vector<int> devices_;  // by rank, once they have been told

  std::mutex callback_mutex_;  // held while the callback runs, which may report; taken before mutex_
  FailureCallback callback_;
  NeedsOthers needs_others_;
  bool looks_for_need_ = false;
  std::atomic<bool> told_{false};  // or just being told
};

/// The key that others prove when they connect to this rank.
Secret rank_key(const Secret& secret, int rank, const Contact& contact);

}  // namespace nitinol
