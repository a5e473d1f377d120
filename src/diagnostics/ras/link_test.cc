#include "diagnostics/ras/link.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "bootstrap/network.h"

namespace nitinol::ras {
namespace {

struct Outcome {
  std::optional<std::vector<std::byte>> answer;
  std::string trouble;
  bool hung_up = false;
};

SocketAddress any_port() {
  SocketAddress address;
  address.family = AF_INET;
  address.host = {127, 0, 0, 1};
  return address;
}

/// A reactor with a thread, and a process that answers each question with the question.
class LinkTest : public testing::Test {
 protected:
  LinkTest() : listener_(Network::instance().listen(any_port())), key_(random_secret()) {
    service_ = Network::instance().services().add({key_, [this](UniqueFd fd) { serve(std::move(fd)); }});
    thread_ = std::thread([this] { reactor_.run(); });
  }
  ~LinkTest() override {
    service_.reset();
    reactor_.stop();
    thread_.join();
  }

  void serve(UniqueFd fd) {
    const auto slot = std::make_shared<std::weak_ptr<Connection>>();
    Connection::Events events;
    events.on_frame = [this, slot](Frame frame) {
      const auto connection = slot->lock();
      if (!connection) return;
      if (hangs_up_) return connection->close_now();
      frame.type = FrameType::kTell;
      connection->send(frame);
      connection->close_after_flush();
    };
    *slot = Connection::start(std::move(fd), Network::instance().reactor(), std::move(events));
  }

  Contact contact() const { return {listener_->address(), key_}; }
  Contact dead_contact() const {
    Contact contact{any_port(), key_};
    contact.at.port = 1;
    return contact;
  }

  Outcome ask(std::vector<Contact> contacts) {
    std::promise<Outcome> promise;
    auto future = promise.get_future();
    std::shared_ptr<Link> link;
    reactor_.post([&] {
      link = Link::start(reactor_, std::move(contacts), {std::byte{42}},
                         [&](std::optional<std::vector<std::byte>> answer, const std::string& trouble) {
                           promise.set_value({std::move(answer), trouble, link->has_hung_up()});
                         });
    });
    Outcome outcome = future.get();
    std::promise<void> gone;
    reactor_.post([&] {
      link.reset();
      gone.set_value();
    });
    gone.get_future().wait();
    return outcome;
  }

  Reactor reactor_;
  std::shared_ptr<Listener> listener_;
  Secret key_;
  std::shared_ptr<void> service_;
  std::atomic<bool> hangs_up_{false};
  std::thread thread_;
};

TEST_F(LinkTest, BringsTheAnswer) { EXPECT_EQ(ask({contact()}).answer, std::vector<std::byte>{std::byte{42}}); }

TEST_F(LinkTest, TriesOneWayAfterTheOther) {
  EXPECT_EQ(ask({dead_contact(), {listener_->address(), random_secret()}, contact()}).answer,
            std::vector<std::byte>{std::byte{42}});
}

TEST_F(LinkTest, SaysWhyThereIsNoAnswer) {
  EXPECT_EQ(ask({}).trouble, "no way to reach it is known");
  EXPECT_EQ(ask({dead_contact()}).trouble, "Connection refused");
  EXPECT_FALSE(ask({dead_contact()}).hung_up);
  const Outcome refused = ask({{listener_->address(), random_secret()}});
  EXPECT_TRUE(refused.hung_up);
  EXPECT_EQ(refused.trouble,
            "it hung up: it holds the communicator no more or not yet, or its health monitoring is switched off "
            "(NCCL_RAS_ENABLE=0)");
  hangs_up_ = true;
  EXPECT_EQ(ask({contact()}).trouble, "it hung up without an answer");
  EXPECT_TRUE(ask({contact()}).hung_up);
}

}  // namespace
}  // namespace nitinol::ras
