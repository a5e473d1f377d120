// What the root takes for the first cause when ranks give up, or contradict each other, while a communicator is being
// created.
#include "bootstrap/root.h"

#include <gmock/gmock.h>
#include <sys/socket.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log_testing.h"
#include "bootstrap/connect.h"
#include "bootstrap/root_link.h"
#include "bootstrap/testing.h"
#include "failing_allocation.h"

namespace nitinol {
namespace {

using ::testing::HasSubstr;
using testing::quick_options;

/// A rank as the root sees it: registers, gives up when the test says so, and keeps what the root says is wrong.
class Member {
 public:
  Member(const UniqueId& id, int rank, int nranks, int ids = 1, int index = 0) : heard_(std::make_shared<Heard>()) {
    const BootstrapOptions options = quick_options();
    const Deadline deadline = std::chrono::steady_clock::now() + options.init_timeout;
    UniqueFd fd = connect_to_peer({id.root, root_key(id.secret), "the root", options, deadline, {}});
    Connection::Events events;
    events.on_frame = [heard = heard_](const Frame& frame) { heard->take(frame); };
    events.on_closed = [heard = heard_](const Ending&) { heard->note_end(); };
    connection_ = Connection::start(std::move(fd), Network::instance().reactor(), std::move(events));
    Registration registration;
    registration.rank = rank;
    registration.nranks = nranks;
    registration.ids = ids;
    registration.index = index;
    registration.timeout_ms = options.init_timeout.count();
    registration.listener = id.root;
    registration.identity = this_process();
    connection_->send(control_frame(FrameType::kRegister, encode(registration)));
  }
  ~Member() { leave(); }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  void wait_for_parent() {
    std::unique_lock lock(heard_->mutex);
    heard_->changed.wait(lock, [this] { return heard_->parent; });
  }
  void give_up(const Failure& failure) { connection_->send(control_frame(FrameType::kError, encode(failure))); }
  void end() { connection_->send(control_frame(FrameType::kDone, {})); }
  void leave() { connection_->close_after_flush(); }
  Failure failure() {
    std::unique_lock lock(heard_->mutex);
    heard_->changed.wait(lock, [this] { return heard_->failure.has_value(); });
    return *heard_->failure;
  }
  /// Whether it hears of a failure, or at least that the root has gone, before long.
  bool is_told() {
    std::unique_lock lock(heard_->mutex);
    return heard_->changed.wait_for(lock, std::chrono::seconds(5),
                                    [this] { return heard_->failure.has_value() || heard_->ended; });
  }

 private:
  struct Heard {
    std::mutex mutex;
    std::condition_variable changed;
    bool parent = false;
    std::optional<Failure> failure;
    bool ended = false;

    void note_end() {
      const std::lock_guard lock(mutex);
      ended = true;
      changed.notify_all();
    }
    void take(const Frame& frame) {
      const std::lock_guard lock(mutex);
      if (frame.type == FrameType::kParent) parent = true;
      if (frame.type == FrameType::kError) failure = decode_failure(frame.payload);
      changed.notify_all();
    }
  };
  std::shared_ptr<Heard> heard_;
  std::shared_ptr<Connection> connection_;
};

class RootHearsOf : public ::testing::Test {
 protected:
  explicit RootHearsOf(const BootstrapOptions& options = quick_options()) : id_(make_unique_id(options)) {
    for (Member* member : {&first_, &second_, &third_}) member->wait_for_parent();
  }
  const UniqueId id_;
  Member first_{id_, 0, 3};
  Member second_{id_, 1, 3};
  Member third_{id_, 2, 3};
};

TEST_F(RootHearsOf, ARanksOwnFailureWhichIsTheCauseForAll) {
  second_.give_up({1, ncclSystemError, "rank 1 has no memory"});
  for (Member* member : {&first_, &second_, &third_}) {
    EXPECT_EQ(member->failure().rank, 1);
    EXPECT_EQ(member->failure().result, ncclSystemError);
    EXPECT_EQ(member->failure().sentence, "rank 1 has no memory");
  }
}

BootstrapOptions patient_with_causes() {
  BootstrapOptions options = quick_options();
  options.patience_with_cause = std::chrono::seconds(60);
  return options;
}

class PatientRootHearsOf : public RootHearsOf {
 protected:
  PatientRootHearsOf() : RootHearsOf(patient_with_causes()) {}
};

TEST_F(PatientRootHearsOf, AnEndOnlyAndWaitsForItsCause) {
  second_.give_up({0, ncclRemoteError, "rank 0 closed its connection"});
  third_.leave();
  for (Member* member : {&first_, &second_}) {
    EXPECT_EQ(member->failure().rank, 2);
    EXPECT_NE(member->failure().sentence.find("rank 2"), std::string::npos) << member->failure().sentence;
  }
}

TEST_F(RootHearsOf, AnEndOnlyAndBelievesItWhenNothingElseComes) {
  second_.give_up({0, ncclRemoteError, "rank 0 closed its connection"});
  EXPECT_EQ(first_.failure().sentence, "rank 0 closed its connection");
  EXPECT_EQ(third_.failure().rank, 0);
}

TEST(Root, LeavesNobodyWaitingIfItHasNoMemoryToTellOfALostRank) {
  bool failed = true;
  for (int nth = 0; failed; ++nth) {
    const UniqueId id = make_unique_id(quick_options());
    Member first(id, 0, 3);
    Member second(id, 1, 3);
    Member third(id, 2, 3);
    for (Member* member : {&first, &second, &third}) member->wait_for_parent();
    const testing::FailingAllocation failing(nth, testing::FailsIn::kEveryThread);
    third.leave();
    for (Member* member : {&first, &second}) EXPECT_TRUE(member->is_told()) << nth;
    failed = failing.has_failed();
  }
}

TEST(Root, TellsAllOfARankWithAnotherListOfIdsThoughItsOwnRanksAreThere) {
  const UniqueId id = make_unique_id(quick_options());
  Member first(id, 0, 4, 2, 0);
  Member second(id, 1, 4, 2, 0);
  first.wait_for_parent();  // and the other id's ranks are awaited
  Member late(id, 3, 4, 2, 1);
  for (Member* member : {&first, &second, &late}) {
    const Failure failure = member->failure();
    EXPECT_EQ(failure.rank, 3);
    EXPECT_EQ(failure.result, ncclInvalidUsage);
    EXPECT_NE(failure.sentence.find("do not pass the same list of unique ids (0 of 2, 1 of 2)"), std::string::npos)
        << failure.sentence;
  }
}

TEST(Root, TellsOnceWhoHasNotComeAndWaitsOn) {
  const LogInFile warnings("WARN");
  BootstrapOptions options = quick_options();
  options.warn_after = std::chrono::milliseconds(20);
  const UniqueId id = make_unique_id(options);
  Member first(id, 1, 3);
  while (warnings.text().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  Member second(id, 0, 3);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // in which it could be told again
  Member third(id, 2, 3);
  for (Member* member : {&first, &second, &third}) member->wait_for_parent();
  const std::string log = warnings.text();
  EXPECT_THAT(log, HasSubstr(" NCCL WARN still waiting (NITINOL_INIT_TIMEOUT ends such waits): ranks 0, 2 (of 3) did "
                             "not arrive within 20 ms: check that all ranks were started with this unique id"));
  EXPECT_EQ(log.find("still waiting"), log.rfind("still waiting"));
}

SocketAddress any_port() {
  SocketAddress any;
  any.family = AF_INET;
  any.host = {127, 0, 0, 1};
  return any;
}

TEST(Root, ThatEndsBeforeItHasItsServiceIsNotFoundAnyMore) {
  UniqueId id;
  id.secret = random_secret();
  Network& network = Network::instance();
  auto listener = network.listen(any_port());
  id.root = listener->address();
  auto root = std::make_shared<Root>(std::move(listener), RootArguments{.life = RootLife::kRepeatable});
  auto service = network.services().add({root_key(id.secret), [root](UniqueFd fd) { root->accepted(std::move(fd)); }});
  {
    Member only(id, 0, 2);
    only.give_up({0, ncclSystemError, "rank 0 has no memory"});
    EXPECT_EQ(only.failure().sentence, "rank 0 has no memory");
  }
  network.reactor().post([root = std::move(root), service = std::move(service)] { root->attach(service); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (has_root(id.secret) && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_FALSE(has_root(id.secret));
}

/// A root that has served its only rank, though somebody has still found it: who comes then is let in by `accept`.
class RootThatHasEnded : public ::testing::Test {
 protected:
  RootThatHasEnded() {
    UniqueId id;
    id.secret = random_secret();
    id.root = start_root(id.secret, any_port(), {.life = RootLife::kReusable});
    service_ = Network::instance().services().find(key_id(root_key(id.secret)));
    Member only(id, 0, 1);
    only.wait_for_parent();
    only.end();
    while (has_root(id.secret)) std::this_thread::yield();
  }
  /// On the network thread, which has the last hold of the service.
  void accept(UniqueFd fd) {
    auto shared = std::make_shared<UniqueFd>(std::move(fd));
    Network::instance().reactor().post(
        [service = std::move(service_), shared] { service->accepted(std::move(*shared)); });
  }

 private:
  std::shared_ptr<const Service> service_;
};

TEST_F(RootThatHasEnded, TellsOneWhoWasOnTheWayToComeAgain) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  RootLink link{UniqueFd(ends[0]), "the root"};
  accept(UniqueFd(ends[1]));
  Registration registration;
  registration.nranks = 2;
  link.send(FrameType::kRegister, encode(registration));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  EXPECT_FALSE(link.wait_for_parent(deadline, [] {}).has_value());
}

}  // namespace
}  // namespace nitinol
