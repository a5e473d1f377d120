// The root's state machine.
#include "bootstrap/root.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/error.h"
#include "bootstrap/long_wait.h"

namespace nitinol {
namespace {

constexpr int kMostNamed = 16;
constexpr std::chrono::milliseconds kAfterlife{60'000};
constexpr std::chrono::milliseconds kConnectingGrace{5'000};

void cancel(std::optional<Reactor::Timer>& timer) {
  if (timer) Network::instance().reactor().cancel(*timer);
  timer.reset();
}

}  // namespace

Secret root_key(const Secret& secret) { return derive_secret(secret, "root"); }

bool has_root(const Secret& secret) { return Network::instance().services().find(key_id(root_key(secret))) != nullptr; }

SocketAddress start_root(const Secret& secret, const SocketAddress& address, RootArguments arguments) {
  if (has_root(secret)) return address;
  Network& network = Network::instance();
  auto listener = network.listen(address);
  const SocketAddress bound = listener->address();
  auto root = std::make_shared<Root>(std::move(listener), std::move(arguments));
  auto service =
      network.services().add({root_key(secret), [root](UniqueFd fd) { root->accepted(std::move(fd)); }, root});
  if (service) network.reactor().post([root, service] { root->attach(service); });
  return bound;
}

void report_lack_to_own_root(const Secret& secret) {
  Network& network = Network::instance();
  const auto service = network.services().find(key_id(root_key(secret)));
  if (!service) return;
  if (auto root = service->served.lock()) network.reactor().ask_to_leave(std::move(root));
}

Root::Root(std::shared_ptr<Listener> listener, RootArguments arguments)
    : listener_(std::move(listener)),
      life_(arguments.life),
      warn_after_(arguments.warn_after),
      patience_with_cause_(arguments.patience_with_cause),
      names_(std::move(arguments.names)) {
  const PeerIdentity self = this_process();
  const std::string name = names_.empty()
                               ? formatted("the root of the unique id (host {}, pid {})", self.host, self.pid)
                               : formatted("{}, where the ranks meet,", names_.front());
  lack_ = {-1, ncclSystemError, formatted("{} failed: out of memory: {}", name, std::strerror(ENOMEM))};
  word_of_lack_ =
      std::make_shared<const std::vector<std::byte>>(encode_frame(control_frame(FrameType::kError, encode(lack_))));
}

void Root::attach(std::shared_ptr<void> service) {
  service_ = std::move(service);
  if (state_ != State::kFinished || timer_) return;
  // It has ended before it had that, which would keep it for ever.
  if (failure_ && !leaves_nothing()) {
    start_timer(kAfterlife);
  } else {
    finish();
  }
}

void Root::accepted(UniqueFd fd) {
  attempt([&] { let_in(std::move(fd)); });
  if (fd) static_cast<void>(::send(fd.get(), word_of_lack_->data(), word_of_lack_->size(), kNeverWait));
}

/// No rank is to wait for one that could not be served.
template <typename Step>
void Root::attempt(const Step& step) {
  try {
    step();
  } catch (const std::bad_alloc&) {
    fail_without_memory();
  }
}

/// A rank of this process does not come, and could not connect to say so; see on_absent().
void Root::leave() {
  const bool is_for_later = life_ == RootLife::kReusable && state_ != State::kGathering;
  if (!is_for_later) fail_without_memory();
}

void Root::let_in(UniqueFd&& fd) {
  tune_tcp(fd.get());
  auto visitor = std::make_shared<Visitor>();
  // Made before it is served: one that is not among the visitors would wait for ever.
  std::list<VisitorPointer> newcomer{visitor};
  const std::weak_ptr<Root> weak = weak_from_this();
  const std::weak_ptr<Visitor> weak_visitor = visitor;
  Connection::Events events;
  events.on_frame = [weak, weak_visitor](const Frame& frame) {
    const auto root = weak.lock();
    const auto from = weak_visitor.lock();
    if (root && from) root->attempt([&] { root->on_frame(from, frame); });
  };
  events.on_closed = [weak, weak_visitor](const Ending& ending) {
    const auto root = weak.lock();
    const auto from = weak_visitor.lock();
    if (root && from) root->attempt([&] { root->on_closed(from, ending); });
  };
  visitor->connection = Connection::start(std::move(fd), Network::instance().reactor(), std::move(events));
  visitor->connection->keep_last_word(word_of_lack_);
  visitors_.splice(visitors_.end(), newcomer);
  // One that was still proving itself when all was over: nobody keeps this root, and nobody else would answer.
  if (state_ == State::kFinished && leaves_nothing()) dismiss_visitors();
}

void Root::on_frame(const VisitorPointer& visitor, const Frame& frame) {
  if (frame.type == FrameType::kRegister && !visitor->registration && !visitor->looks_up) {
    on_register(visitor, frame);
  } else if (frame.type == FrameType::kLookup && !visitor->registration && !visitor->looks_up) {
    on_lookup(visitor, frame);
  } else if (frame.type == FrameType::kDone && visitor->registration && !visitor->done) {
    visitor->done = true;
    --not_done_;
    check_finished();
  } else if (frame.type == FrameType::kError && visitor->registration && state_ != State::kFinished) {
    if (const auto failure = decode_failure(frame.payload)) on_given_up(*visitor, *failure);
  } else if (frame.type == FrameType::kError && !visitor->looks_up) {
    // From a rank of another id, which knows that the ranks contradict each other, or that a root is gone.
    turn_away(visitor);
    const auto failure = decode_failure(frame.payload);
    if (failure && state_ != State::kFinished) fail_all(*failure);
  } else if (frame.type == FrameType::kCompare && !visitor->registration && !visitor->looks_up) {
    on_compare(visitor, frame);
  } else if (frame.type == FrameType::kAbsent && !visitor->registration && !visitor->looks_up) {
    on_absent(visitor, frame);
  } else {
    turn_away(visitor);
  }
}

// A rank's word about itself is the cause for all. Of another rank it may have seen no more than the end, and that rank
// may have ended because of a third: what it says itself, or its own lost connection, is on the way.
void Root::on_given_up(const Visitor& visitor, const Failure& failure) {
  if (failure.rank == visitor.registration->rank) return fail_all(failure);
  if (std::exchange(has_hearsay_, true)) return;
  Network::instance().reactor().run_after(patience_with_cause_, [weak = weak_from_this(), failure] {
    const auto root = weak.lock();
    if (root && root->state_ != State::kFinished) root->attempt([&] { root->fail_all(failure); });
  });
}

// One that was given another number of ids may be one of this block itself, which all others wait for.
void Root::on_lookup(const VisitorPointer& visitor, const Frame& frame) {
  const auto registration = decode_registration(frame.payload);
  if (!registration) return turn_away(visitor);
  if (failure_) return send_error(visitor, *failure_);
  if (state_ == State::kFinished) return turn_away(visitor);
  visitor->looks_up = registration;
  if (const auto problem = contradiction_of_lookups()) return fail_all(*problem);
  serve_lookups();
  check_finished();
}

void Root::on_register(const VisitorPointer& visitor, const Frame& frame) {
  const auto registration = decode_registration(frame.payload);
  if (!registration) return turn_away(visitor);
  if (failure_) return send_error(visitor, *failure_);
  if (state_ != State::kGathering) {
    if (life_ == RootLife::kReusable) {
      // The next communicator of this address: to come again when this one is through.
      visitor->connection->send(control_frame(FrameType::kGoodbye, {}));
      return turn_away(visitor);
    }
    if (state_ == State::kConnecting && !has_same_ids(*registration)) {  // the others wait for it at another root
      visitor->registration = registration;
      return fail_all(*objection(*registration));
    }
    const std::string sentence = formatted(
        "{} came to a unique id that has served its communicator already: make a new id with "
        "ncclGetUniqueId for each communicator, and start each rank once",
        describe_rank(registration->rank, registration->identity));
    return send_error(visitor, {registration->rank, ncclInvalidUsage, sentence});
  }
  const bool is_first = !first_;
  if (is_first) on_first_registration(*registration);
  heed_time_of(*registration);
  auto problem = objection(*registration);
  if (!problem && is_first) problem = contradiction_of_lookups();
  if (problem) {
    visitor->registration = registration;  // it is to hear of it as well
    return fail_all(*problem);
  }
  visitor->registration = registration;
  members_[registration->rank] = visitor;
  ++not_done_;
  serve_lookups();
  const int block = first_->index;
  if (static_cast<int>(members_.size()) == shape_->block_end(block) - shape_->block_begin(block)) reply_to_all();
}

// A rank that is connecting has been here; so at an address one that is absent then is of the next communicator.
void Root::on_absent(const VisitorPointer& visitor, const Frame& frame) {
  const auto failure = decode_failure(frame.payload);
  const bool is_for_later = life_ == RootLife::kReusable && state_ != State::kGathering;
  if (is_for_later) visitor->connection->send(control_frame(FrameType::kGoodbye, {}));
  turn_away(visitor);
  if (failure && !is_for_later && state_ != State::kFinished) fail_all(*failure);
}

void Root::on_compare(const VisitorPointer& visitor, const Frame& frame) {
  const auto registration = decode_registration(frame.payload);
  if (registration && failure_) return send_error(visitor, *failure_);
  if (!registration || !first_ || state_ == State::kFinished || has_same_ids(*registration)) return turn_away(visitor);
  const Failure failure = *contradiction(*registration);
  send_error(visitor, failure);
  fail_all(failure);
}

void Root::on_first_registration(const Registration& registration) {
  first_ = registration;
  shape_.emplace(registration.nranks, registration.ids);
  start_warning_timer();
}

/// Once all have come or one has failed nobody is to be told of those who are late.
void Root::enter(State next) noexcept {
  state_ = next;
  cancel(warning_timer_);
}

/// All wait for as long as the one whose time is over first.
void Root::heed_time_of(const Registration& registration) {
  const std::chrono::milliseconds time(registration.timeout_ms);
  const auto end = std::chrono::steady_clock::now() + time;
  if (gathers_until_ && end >= *gathers_until_) return;
  gathers_until_ = end;
  time_to_gather_ = time;
  start_timer(time);
}

void Root::start_timer(std::chrono::milliseconds delay) {
  cancel(timer_);
  timer_ = Network::instance().reactor().run_after(delay, [weak = weak_from_this()] {
    if (const auto root = weak.lock()) root->attempt([&] { root->on_timeout(); });
  });
}

void Root::start_warning_timer() {
  if (warn_after_.count() == 0) return;
  warning_timer_ = Network::instance().reactor().run_after(warn_after_, [weak = weak_from_this()] {
    if (const auto root = weak.lock()) root->tell_who_is_late();
  });
}

bool Root::has_same_ids(const Registration& registration) const {
  return registration.ids == first_->ids && registration.index == first_->index && registration.list == first_->list;
}

std::optional<Failure> Root::contradiction_of_lookups() const {
  for (const auto& visitor : visitors_) {
    if (!first_ || !visitor->looks_up) continue;
    if (auto problem = contradiction(*visitor->looks_up)) return problem;
  }
  return std::nullopt;
}

std::optional<Failure> Root::contradiction(const Registration& registration) const {
  const auto who = [](const Registration& of) { return describe_rank(of.rank, of.identity); };
  const Registration& first = *first_;
  if (registration.nranks != first.nranks) {
    return Failure{
        registration.rank, ncclInvalidUsage,
        formatted("{} gives {} as the number of ranks, {} gives {}: all ranks of a communicator must pass the same",
                  who(first), first.nranks, who(registration), registration.nranks)};
  }
  if (!has_same_ids(registration)) {
    return Failure{
        registration.rank, ncclInvalidUsage,
        formatted("{} and {} do not pass the same list of unique ids ({} of {}, {} of {}): all ranks must "
                  "pass the same ones in the same order",
                  who(first), who(registration), first.index, first.ids, registration.index, registration.ids)};
  }
  return std::nullopt;
}

std::optional<Failure> Root::objection(const Registration& registration) const {
  if (auto problem = contradiction(registration)) return problem;
  const Registration& first = *first_;
  if (registration.rank < shape_->block_begin(first.index) || registration.rank >= shape_->block_end(first.index)) {
    return Failure{registration.rank, ncclInvalidArgument,
                   formatted("{} is outside the ranks {} to {} of this unique id",
                             describe_rank(registration.rank, registration.identity), shape_->block_begin(first.index),
                             shape_->block_end(first.index) - 1)};
  }
  const auto known = members_.find(registration.rank);
  if (known != members_.end()) {
    const PeerIdentity& other = known->second->registration->identity;
    return Failure{
        registration.rank, ncclInvalidUsage,
        formatted(
            "rank {} was started twice: in host {}, pid {} and in host {}, pid {}; each rank needs its own number{}",
            registration.rank, other.host, other.pid, registration.identity.host, registration.identity.pid,
            life_ == RootLife::kReusable ? ", and communicators that meet by NCCL_COMM_ID are made one after the other"
                                         : "")};
  }
  return std::nullopt;
}

void Root::reply_to_all() {
  enter(State::kConnecting);
  // Other blocks' ranks may come later than these, and their roots are to say so first.
  start_timer(time_to_gather_ + kConnectingGrace);
  const int begin = shape_->block_begin(first_->index);
  for (const auto& [rank, visitor] : members_) {
    ParentReply reply;
    if (rank != begin) {
      const Registration& parent = *members_.at(shape_->parent(rank))->registration;
      reply = {parent.rank, parent.listener, parent.contact, parent.identity};
    }
    visitor->connection->send(control_frame(FrameType::kParent, encode(reply)));
  }
}

void Root::serve_lookups() {
  if (!shape_) return;
  const auto leader = members_.find(shape_->block_begin(first_->index));
  if (leader == members_.end()) return;
  const Registration& registration = *leader->second->registration;
  const ParentReply reply{registration.rank, registration.listener, registration.contact, registration.identity};
  for (const auto& visitor : visitors_) {
    if (!visitor->looks_up || visitor->done) continue;
    visitor->done = true;
    ++lookups_served_;
    visitor->connection->send(control_frame(FrameType::kParent, encode(reply)));
  }
}

void Root::check_finished() {
  if (state_ == State::kConnecting && not_done_ == 0 && lookups_served_ >= shape_->child_blocks(first_->index))
    finish();
}

bool Root::leaves_nothing() const {
  if (life_ == RootLife::kRepeatable) return failure_.has_value();
  return life_ == RootLife::kReusable;
}

void Root::finish() {
  enter(State::kFinished);
  cancel(timer_);
  dismiss_visitors();
  listener_.reset();
  if (leaves_nothing()) {
    service_.reset();
  } else {
    Network::instance().bury(std::move(service_));
  }
}

// Those who have not said yet what they want may still do so, and get the answer that fits.
void Root::dismiss_visitors() {
  members_.clear();
  for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
    const bool silent = !(*visitor)->registration && !(*visitor)->looks_up;
    if (silent && !leaves_nothing()) {
      ++visitor;
      continue;
    }
    if (silent) {
      (*visitor)->connection->send(failure_ ? control_frame(FrameType::kError, encode(*failure_))
                                            : control_frame(FrameType::kGoodbye, {}));
    }
    (*visitor)->connection->close_after_flush();
    visitor = visitors_.erase(visitor);
  }
}

void Root::fail_all(const Failure& failure) {
  failure_ = failure;
  for (const auto& visitor : visitors_) {
    if (visitor->done || (!visitor->registration && !visitor->looks_up)) continue;
    visitor->connection->send(control_frame(FrameType::kError, encode(failure)));
  }
  if (leaves_nothing()) return finish();
  // Ranks that are still to come hear the same; the socket stays open for them until the id's time is over.
  enter(State::kFinished);
  dismiss_visitors();
  if (!timer_) start_timer(kAfterlife);
}

/// Whom the word does not reach sees at least that the root has gone. Those who come later hear the same.
void Root::fail_without_memory() noexcept {
  if (state_ != State::kFinished && !failure_) failure_ = std::move(lack_);
  enter(State::kFinished);
  members_.clear();
  for (const auto& visitor : visitors_) {
    if (!visitor->done) static_cast<void>(visitor->connection->send_at_once(*word_of_lack_));
    visitor->connection->close_after_flush();
  }
  visitors_.clear();
  if (leaves_nothing()) return finish();
  if (timer_ || !service_) return;
  try {
    start_timer(kAfterlife);
  } catch (const std::exception&) {  // then it stays as long as its process
  }
}

void Root::send_error(const VisitorPointer& visitor, const Failure& failure) {
  visitor->connection->send(control_frame(FrameType::kError, encode(failure)));
  turn_away(visitor);
}

void Root::turn_away(const VisitorPointer& visitor) {
  visitor->connection->close_after_flush();
  visitors_.remove(visitor);
}

void Root::on_closed(const VisitorPointer& visitor, const Ending& ending) {
  visitors_.remove(visitor);
  if (state_ == State::kFinished || visitor->done) return;
  if (ending.lacks_memory) return fail_without_memory();  // as the visitor has been told
  if (!visitor->registration) return;
  const Registration& registration = *visitor->registration;
  const std::string rank = describe_rank(registration.rank, registration.identity);
  const PeerIdentity self = this_process();
  fail_all(ending.closed_here
               ? Failure{-1, ncclSystemError,
                         formatted("the root of the unique id (host {}, pid {}) closed its connection to {}{}",
                                   self.host, self.pid, rank, ending.reason)}
               : Failure{registration.rank, ncclRemoteError,
                         formatted("{} went away while the communicator was being created{}", rank, ending.reason)});
}

std::string Root::missing_ranks() const {
  std::string list;
  int missing = 0;
  const int block = first_->index;
  for (int rank = shape_->block_begin(block); rank < shape_->block_end(block); ++rank) {
    const auto member = members_.find(rank);
    // While ranks connect, the missing ones are those that have not got all their neighbours.
    if (member != members_.end() && (state_ == State::kGathering || member->second->done)) continue;
    if (++missing > kMostNamed) continue;
    const auto place = static_cast<std::size_t>(rank);
    list += (list.empty() ? "" : ", ") + (place < names_.size() ? names_[place] : std::to_string(rank));
    if (member != members_.end() && is_stopped(member->second->registration->identity)) list += " (stopped)";
  }
  if (missing > kMostNamed) list += formatted(" and {} more", missing - kMostNamed);
  if (!names_.empty()) return list;
  return formatted("{} {}", missing == 1 ? "rank" : "ranks", list);
}

void Root::on_timeout() {
  timer_.reset();
  if (state_ == State::kFinished) return finish();
  if (state_ == State::kConnecting && not_done_ == 0) return finish();  // other blocks are late: their roots say so
  fail_all({-1, ncclRemoteError, formatted("{} (NITINOL_INIT_TIMEOUT sets the time)", absence(time_to_gather_))});
}

std::string Root::absence(std::chrono::milliseconds within) const {
  const char* what = state_ == State::kGathering ? "did not arrive" : "did not reach their neighbours";
  const char* advice = names_.empty() ? "check that all ranks were started with this unique id, several of one thread "
                                        "in a group (ncclGroupStart), and see their logs"
                                      : "check that all ranks make the same call";
  return formatted("{} (of {}) {} within {}: {}", missing_ranks(), first_->nranks, what, seconds_text(within), advice);
}

void Root::tell_who_is_late() const {
  tell_of_wait(
      [&] { return formatted("still waiting (NITINOL_INIT_TIMEOUT ends such waits): {}", absence(warn_after_)); });
}

}  // namespace nitinol
