// Joining: from the unique ids to a tree in which every rank has its neighbours.
#include "bootstrap/join.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "bootstrap/absence.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/connect.h"
#include "bootstrap/exchange.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/other_roots.h"
#include "bootstrap/root.h"
#include "bootstrap/root_link.h"
#include "bootstrap/tree.h"

namespace nitinol {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// The root's sentence is better than ours: it gets this much longer.
constexpr auto kRootsGrace = 3s;
constexpr auto kSmallDelay = 1s;
// What the root answers when a rank gives up takes a round trip, and the root's patience with hearsay.
constexpr auto kWordPatience = 1s;
constexpr auto kLastWordPatience = 500ms;  // an abort waits for it

/// One rank's way through the rendezvous.
class Joiner {
 public:
  /// Where a rank fails before it has started, nobody knows of it.
  explicit Joiner(const JoinArguments& arguments);
  void start();
  std::shared_ptr<Tree> run();

 private:
  void host_root();
  void stagger();
  std::unique_ptr<RootLink> reach_root(int block);
  std::unique_ptr<RootLink> try_root(int block, Deadline deadline, const Interrupt& interrupt,
                                     bool* refused = nullptr) const;
  std::chrono::milliseconds time_for_others() const;
  std::chrono::milliseconds time_to_warn_of(int block) const;
  Registration registration(int block) const;
  ParentReply register_here();
  ParentReply look_up_parent();
  std::vector<int> awaited_leaders() const;
  void connect_tree(const ParentReply& parent);
  void check_word_of_root() const;
  Failure give_up(const Error& error);
  Error give_up_because(const std::exception& thrown);
  void give_up_without_memory(const std::exception& lack) noexcept;
  bool tell_own_root(const Failure& failure) const;
  bool is_aborted() const { return arguments_.abort_flag != nullptr && arguments_.abort_flag->load(); }
  void tell_roots(const Failure& failure, bool own_root_knows) const;
  const UniqueId& id_of(int block) const { return ids_[static_cast<std::size_t>(block)]; }
  SocketAddress address_of_root(const UniqueId& id) const;

  JoinArguments arguments_;
  std::vector<UniqueId> ids_;
  TreeShape shape_;
  int block_;
  bool leader_;
  Deadline deadline_;
  Interrupt interrupt_;
  OtherRoots others_;
  Interrupt among_others_;  // the same, where the wait may be in vain because of what other roots know
  std::shared_ptr<Tree> tree_;
  std::unique_ptr<RootLink> root_;
  bool has_parent_ = false;
  bool misses_root_ = false;  // this rank gives up because a root is gone
};

std::vector<UniqueId> usable_ids(const JoinArguments& arguments) {
  if (arguments.nranks < 1 || arguments.rank < 0 || arguments.rank >= arguments.nranks) {
    fail(ncclInvalidArgument, "rank {} of {}: ranks are numbered from 0 to the number of ranks - 1", arguments.rank,
         arguments.nranks);
  }
  if (arguments.ids.empty() || arguments.ids.size() > static_cast<std::size_t>(arguments.nranks)) {
    fail(ncclInvalidArgument, "{} unique ids for {} ranks: there must be at least one, and at most one for each rank",
         arguments.ids.size(), arguments.nranks);
  }
  std::vector<UniqueId> ids = arguments.ids;
  // All ids from one NCCL_COMM_ID are the same.
  if (ids.front().from_address) ids.resize(1);
  return ids;
}

Joiner::Joiner(const JoinArguments& arguments)
    : arguments_(arguments),
      ids_(usable_ids(arguments)),
      shape_(arguments.nranks, static_cast<int>(ids_.size())),
      block_(shape_.block_of(arguments.rank)),
      leader_(shape_.block_begin(block_) == arguments.rank),
      deadline_(Clock::now() + arguments.options.init_timeout + kRootsGrace),
      others_({.ids = ids_,
               .shape = shape_,
               .rank = arguments.rank,
               .reach = [this](int block, Deadline deadline, const Interrupt& interrupt,
                               bool* refused) { return try_root(block, deadline, interrupt, refused); },
               .registration = [this](int block) { return registration(block); },
               .awaited = [this] { return awaited_leaders(); }}) {
  interrupt_ = [this] {
    if (tree_) tree_->check();
    if (tree_) tree_->check_listener();
    if (root_) root_->check();
    if (arguments_.interrupt) arguments_.interrupt();
  };
  among_others_ = [this] {
    interrupt_();
    others_.ask_now_and_then(interrupt_);
  };
}

/// What says where a link-local address is means something on one host only: ids do not hold it, but each process has
/// it in its own NCCL_COMM_ID.
SocketAddress Joiner::address_of_root(const UniqueId& id) const {
  SocketAddress address = id.root;
  if (!address.is_link_local()) return address;
  const BootstrapOptions& options = arguments_.options;
  const auto where = options.comm_id ? split_host_and_port(*options.comm_id) : std::nullopt;
  if (id.from_address && where) address.scope = resolve(*where, options.family).scope;
  if (address.scope == 0) address.scope = tree_->listener_address().scope;
  return address;
}

void Joiner::host_root() {
  const UniqueId& id = id_of(block_);
  if (!id.from_address || !leader_) return;
  start_root(id.secret, address_of_root(id),
             {.life = RootLife::kReusable,
              .patience_with_cause = arguments_.options.patience_with_cause,
              .warn_after = arguments_.options.warn_after});
}

// Many ranks at once would overrun the root's host: each waits for its turn.
void Joiner::stagger() {
  const BootstrapOptions& options = arguments_.options;
  if (shape_.block_end(block_) - shape_.block_begin(block_) <= options.stagger_threshold || options.stagger_rate < 1)
    return;
  const int place = arguments_.rank - shape_.block_begin(block_);
  sleep_interruptibly(std::chrono::milliseconds(std::int64_t{1000} * place / options.stagger_rate), deadline_,
                      interrupt_);
}

std::unique_ptr<RootLink> Joiner::reach_root(int block) {
  const UniqueId& id = id_of(block);
  const SocketAddress address = address_of_root(id);
  const std::string& given = arguments_.root_name;
  const std::string name =
      given.empty() ? name_of_root(id, shape_, block) : formatted("{} at {}", given, address.to_string());
  const auto fate = [id] { return fate_of_maker(id); };
  ConnectArguments connecting{
      .to = address,
      .key = root_key(id.secret),
      .peer = given.empty() ? formatted("the root of the unique id (rank {} connects)", arguments_.rank) : given,
      .options = arguments_.options,
      .deadline = deadline_,
      .interrupt = interrupt_,
      .fate = fate,
      .unserved = given.empty() ? "" : "it has not made this call, or has given up",
      .patience_with_refusals = patience_with_root(is_near(id)),
  };
  if (id.maker != 0) connecting.in_vain = [&name] { fail_for_lost_root(name); };
  return std::make_unique<RootLink>(connect_to_peer(connecting), name, fate);
}

// Once, and null if it cannot be reached; throws what `interrupt` throws.
std::unique_ptr<RootLink> Joiner::try_root(int block, Deadline deadline, const Interrupt& interrupt,
                                           bool* refused) const {
  const UniqueId& id = id_of(block);
  const SocketAddress address = address_of_root(id);
  UniqueFd fd = try_to_connect(address, root_key(id.secret), deadline, interrupt, refused);
  if (!fd) return nullptr;
  return std::make_unique<RootLink>(std::move(fd), "another root");
}

// What is left of this rank's time where it took a while to reach the root: who is missing is to be said before it
// loses patience with the root.
std::chrono::milliseconds Joiner::time_for_others() const {
  const auto whole = arguments_.options.init_timeout;
  const auto left = deadline_ - kRootsGrace - Clock::now();
  if (whole - left < kSmallDelay) return whole;
  return std::max<std::chrono::milliseconds>(std::chrono::floor<std::chrono::seconds>(left), kSmallDelay);
}

// A root of this process tells in the same log for whom it waits.
std::chrono::milliseconds Joiner::time_to_warn_of(int block) const {
  return has_root(id_of(block).secret) ? 0ms : arguments_.options.warn_after;
}

Registration Joiner::registration(int block) const {
  Registration registration;
  registration.rank = arguments_.rank;
  registration.nranks = arguments_.nranks;
  registration.ids = static_cast<int>(ids_.size());
  registration.index = block;
  registration.timeout_ms = time_for_others().count();
  registration.listener = tree_->listener_address();
  registration.contact = tree_->contact();
  registration.list = name_of_list(ids_);
  registration.identity = this_process();
  return registration;
}

ParentReply Joiner::register_here() {
  while (true) {
    root_ = reach_root(block_);
    root_->send(FrameType::kRegister, encode(registration(block_)));
    const auto parent = root_->wait_for_parent(deadline_, among_others_, time_to_warn_of(block_));
    if (parent) {
      has_parent_ = true;
      return *parent;
    }
    root_.reset();
    sleep_interruptibly(std::max<std::chrono::milliseconds>(arguments_.options.retry_sleep, 1ms), deadline_,
                        interrupt_);
  }
}

ParentReply Joiner::look_up_parent() {
  const int block = shape_.parent_block(block_);
  const auto link = reach_root(block);
  link->send(FrameType::kLookup, encode(registration(block)));
  const auto parent = link->wait_for_parent(deadline_, among_others_, time_to_warn_of(block));
  if (!parent || parent->rank < 0) fail(ncclSystemError, "the root of another unique id does not know its first rank");
  return *parent;
}

// The first ranks of other blocks that are to connect to this one, and have not.
std::vector<int> Joiner::awaited_leaders() const {
  std::vector<int> awaited = shape_.children(arguments_.rank);
  std::erase_if(awaited,
                [this](int child) { return shape_.block_of(child) == block_ || tree_->is_connected_to(child); });
  return awaited;
}

void Joiner::connect_tree(const ParentReply& parent) {
  if (parent.rank != shape_.parent(arguments_.rank)) {
    fail(ncclSystemError, "the root of the unique id gives rank {} the parent {}, which is wrong", arguments_.rank,
         parent.rank);
  }
  if (parent.rank >= 0) tree_->connect_parent(parent, deadline_, among_others_);
  tree_->wait_for_children(deadline_, among_others_);
}

// Now that all neighbours are connected the root itself may go: only what it has to say counts.
void Joiner::check_word_of_root() const {
  const auto failure = root_->wait_for_failure(Clock::now());
  if (failure) throw Error(failure->result, failure->sentence);
}

// Says why to whoever may be waiting for this rank. Returns the first cause: a rank that has just come may know no more
// than that its neighbour is gone, which went because of somebody else; the root knows of whom.
Failure Joiner::give_up(const Error& error) {
  Failure failure = tree_->failure().value_or(Failure{arguments_.rank, error.code(), error.what()});
  bool own_root_knows = false;
  if (root_) {
    root_->send(FrameType::kError, encode(failure));
    std::optional<Failure> word;
    if (has_parent_ || !is_aborted()) word = root_->wait_for_failure(Clock::now() + kWordPatience);
    own_root_knows = word || !root_->is_closed();
    if (word) failure = std::move(*word);
  }
  root_.reset();
  if (failure.result == ncclInvalidUsage) {
    tell_roots(failure, own_root_knows);
  } else {
    // What is known elsewhere has come from somebody who has told it.
    const bool is_news = misses_root_ && failure.sentence == error.what();
    if (!own_root_knows) own_root_knows = tell_own_root(failure);
    if ((is_news || !own_root_knows) && !is_aborted()) tell_roots(failure, true);
  }
  const bool have_been_told = misses_root_ && own_root_knows;
  if (leader_ && block_ > 0 && !have_been_told && !tree_->is_connected_to(shape_.parent(arguments_.rank))) {
    // The other blocks know nothing of this one's trouble yet.
    deadline_ = Clock::now() + kRootsGrace;
    try {
      tree_->connect_parent(look_up_parent(), deadline_, {});
    } catch (const Error&) {
      // Then they hear of it when their time is over.
    }
  }
  tree_->report(failure);
  return failure;
}

// What this rank's system refuses is told to the others with its name. Returns what it is here: that, or an earlier
// cause.
Error Joiner::give_up_because(const std::exception& thrown) {
  Error here = as_error(thrown);
  misses_root_ = dynamic_cast<const RootGone*>(&thrown) != nullptr;
  const bool is_own = here.code() == ncclSystemError || here.code() == ncclInternalError;
  if (!is_own) {
    const Failure first = give_up(here);
    return {first.result, first.sentence};
  }
  const Error told(ncclRemoteError,
                   formatted("{} failed: {}", describe_rank(arguments_.rank, this_process()), here.what()));
  const Failure first = give_up(told);
  if (first.sentence == told.what()) return here;
  return {first.result, first.sentence};
}

// What the others have heard of it before is the cause for them.
void Joiner::give_up_without_memory(const std::exception& lack) noexcept {
  report_absence(ids_, arguments_.rank, lack);
  tree_->report_lack_of_memory();
}

// A rank that gives up before it has registered, as one that is aborted at once: nobody else knows of it.
bool Joiner::tell_own_root(const Failure& failure) const {
  try {
    const auto link = try_root(block_, Clock::now() + kLastWordPatience, {});
    if (!link) return false;
    link->send(FrameType::kRegister, encode(registration(block_)));  // else it would be no word of this communicator's
    link->send(FrameType::kError, encode(failure));
    return true;
  } catch (const std::exception&) {
    return false;  // then they hear of it when their time is over
  }
}

// Ranks that contradict each other may have come to different roots, which do not know each other; and ranks of a root
// that is gone have no other way to those of other roots.
void Joiner::tell_roots(const Failure& failure, bool own_root_knows) const {
  const Deadline deadline = Clock::now() + kWordPatience;
  for (int block = 0; block < static_cast<int>(ids_.size()); ++block) {
    if (block == block_ && own_root_knows) continue;
    const auto link = try_root(block, deadline, {});
    if (link) link->send(FrameType::kError, encode(failure));
  }
}

void Joiner::start() {
  TreeArguments tree_arguments;
  tree_arguments.rank = arguments_.rank;
  tree_arguments.shape = shape_;
  tree_arguments.secret = derive_secret(ids_.front().secret, "ranks");
  tree_arguments.options = arguments_.options;
  tree_arguments.abort_flag = arguments_.abort_flag;
  tree_ = Tree::start(tree_arguments);
}

std::shared_ptr<Tree> Joiner::run() {
  try {
    host_root();
    stagger();
    ParentReply parent = register_here();
    if (leader_ && block_ > 0) parent = look_up_parent();
    connect_tree(parent);
    const Interrupt heed_root = [this] { check_word_of_root(); };
    others_.expect_ends();
    enter_together(*tree_, [&] {
      heed_root();
      others_.ask_now_and_then(heed_root);
    });
    root_->send(FrameType::kDone);
    root_.reset();
  } catch (const std::exception& thrown) {
    std::optional<Error> error;
    try {
      error = give_up_because(thrown);
    } catch (const std::exception& lack) {
      give_up_without_memory(lack);
      throw;
    }
    throw *error;
  }
  return tree_;
}

}  // namespace

std::shared_ptr<Tree> join_tree(const JoinArguments& arguments) {
  std::optional<Joiner> joiner;
  try {
    joiner.emplace(arguments);
    joiner->start();
  } catch (const std::exception& thrown) {
    report_absence(arguments.ids, arguments.rank, thrown);
    throw;
  }
  return joiner->run();
}

}  // namespace nitinol
