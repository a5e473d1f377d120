#include "diagnostics/ras/clients.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "bootstrap/loopback_testing.h"
#include "bootstrap/testing.h"

namespace nitinol::ras {
namespace {

using ::testing::HasSubstr;

SocketAddress address_of(const char* text) {
  const auto where = split_host_and_port(text);
  return resolve(*where, AF_UNSPEC);
}

TEST(RasClients, AreOfThisHostOrNot) {
  EXPECT_TRUE(is_of_this_host(address_of("127.0.0.1:1")));
  EXPECT_TRUE(is_of_this_host(address_of("127.1.2.3:1")));
  EXPECT_TRUE(is_of_this_host(address_of("[::1]:1")));
  EXPECT_TRUE(is_of_this_host(address_of("[::ffff:127.0.0.1]:1"))) << "as a socket for both families sees it";
  EXPECT_FALSE(is_of_this_host(address_of("[::ffff:192.0.2.1]:1")));
  EXPECT_FALSE(is_of_this_host(address_of("192.0.2.1:1")));
  EXPECT_FALSE(is_of_this_host(address_of("[2001:db8::1]:1")));
}

/// A port of the loopback interface that nobody else gets: bound, but not listened at.
struct Port {
  const UniqueFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const SocketAddress address = bind_to_loopback(fd.get());
};

void say(const UniqueFd& client, const std::string& text) {
  EXPECT_EQ(::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

/// How long processes may take to answer a client that says this.
std::chrono::milliseconds patience_after(const std::string& said, int timeout_factor) {
  const Port port;
  Reactor reactor;
  std::chrono::milliseconds patience{0};
  Clients clients(reactor, timeout_factor, [&](const Question& question, const Gather::Done&) {
    patience = question.patience;
    reactor.stop();
    return std::shared_ptr<Gather>();
  });
  std::string trouble;
  EXPECT_TRUE(clients.listen({port.address}, trouble)) << trouble;
  const UniqueFd client = connect_to(port.address);
  say(client, said);
  reactor.run();
  return patience;
}

TEST(RasClients, HaveTheirPatienceMultipliedUnlessTheyGiveIt) {
  using std::chrono::seconds;
  EXPECT_EQ(patience_after("STATUS\n", 1), seconds(5));
  EXPECT_EQ(patience_after("STATUS\n", 3), seconds(15));
  EXPECT_EQ(patience_after("TIMEOUT 0\nSTATUS\n", 3), seconds(180));
  EXPECT_EQ(patience_after("TIMEOUT 7\nSTATUS\n", 3), seconds(7));
  EXPECT_EQ(patience_after("TIMEOUT 100\nSTATUS\n", 1), seconds(60));
  EXPECT_EQ(patience_after("TIMEOUT 100\nSTATUS\n", 3), seconds(100));
}

std::string heard_until(const UniqueFd& client, const std::string& end) {
  std::string text;
  while (!text.ends_with(end)) {
    pollfd entry{client.get(), POLLIN, 0};
    char byte = 0;
    if (::poll(&entry, 1, 20'000) != 1 || ::recv(client.get(), &byte, 1, 0) != 1) break;
    text += byte;
  }
  return text;
}

/// Clients in this process, whose questions the test answers.
class Crowd {
 public:
  Crowd() {
    std::string trouble;
    EXPECT_TRUE(clients_.listen({port_.address}, trouble)) << trouble;
    thread_ = std::thread([this] { reactor_.run(); });
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;
  ~Crowd() {
    reactor_.stop();
    thread_.join();
  }

  /// Once the question has come.
  UniqueFd ask(const std::string& question) {
    UniqueFd client = connect_to(port_.address);
    say(client, question + "CLIENT PROTOCOL 2\nSTATUS\n");
    EXPECT_THAT(heard_until(client, "PROTOCOL 2\n"), HasSubstr("PROTOCOL 2\n"));
    return client;
  }
  /// Answers what has been passed on until now, and says how many questions that were.
  std::size_t answer() {
    std::promise<std::size_t> answered;
    reactor_.post([&] {
      const auto questions = std::exchange(questions_, {});
      for (const auto& done : questions) done(Job());
      answered.set_value(questions.size());
    });
    return answered.get_future().get();
  }

 private:
  const Port port_;
  Reactor reactor_;
  std::vector<Gather::Done> questions_;
  Clients clients_{reactor_, 1, [this](const Question&, Gather::Done done) {
                     questions_.push_back(std::move(done));
                     return std::shared_ptr<Gather>();
                   }};
  std::thread thread_;
};

void expect_answers(const std::vector<UniqueFd>& clients) {
  for (const UniqueFd& client : clients) EXPECT_THAT(heard_until(client, "s\n"), HasSubstr("0 processes answered"));
}

TEST(RasClients, DoNotWaitForOthersThatAskTheSame) {
  Crowd crowd;
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(crowd.ask(""));
  EXPECT_EQ(crowd.answer(), 4U);
  expect_answers(clients);
}

TEST(RasClients, AskTogetherOnceOthersHaveTheirAnswers) {
  Crowd crowd;
  std::vector<UniqueFd> first;
  std::vector<UniqueFd> second;
  for (int i = 0; i < 4; ++i) first.push_back(crowd.ask("TIMEOUT 9\n"));
  for (int i = 0; i < 9; ++i) second.push_back(crowd.ask("TIMEOUT 1\n"));
  EXPECT_EQ(crowd.answer(), 4U);
  expect_answers(first);
  EXPECT_EQ(crowd.answer(), 1U);
  expect_answers(second);
}

TEST(RasClients, AreLetGoIfThereWasNoMemoryToAskForThem) {
  const Port port;
  Reactor reactor;
  Clients clients(reactor, 1,
                  [](const Question&, const Gather::Done&) -> std::shared_ptr<Gather> { throw std::bad_alloc(); });
  std::string trouble;
  ASSERT_TRUE(clients.listen({port.address}, trouble)) << trouble;
  const UniqueFd client = connect_to(port.address);
  say(client, "STATUS\n");
  std::thread waiting([&] {
    EXPECT_TRUE(nitinol::testing::ends(client.get()));
    reactor.stop();
  });
  reactor.run();
  waiting.join();
}

/// A process that gives no answer.
Job silent_job() {
  Job job;
  job.processes[1].trouble = "no answer";
  return job;
}

TEST(RasSilences, EndInDeathOnceTheyAreTooLong) {
  Job job = silent_job();
  job.processes[2].report.emplace();
  Silences patient(std::chrono::hours(1));
  patient.note(job);
  EXPECT_EQ(job.processes[1].state, ProcessState::kUnknown);
  Silences impatient(std::chrono::milliseconds(0));
  impatient.note(job);
  EXPECT_EQ(job.processes[2].state, ProcessState::kUnknown);
  EXPECT_EQ(job.processes[1].state, ProcessState::kDead);
  EXPECT_NE(job.processes[1].trouble.find("declared dead"), std::string::npos);
}

TEST(RasSilences, OfProcessesThatSomebodySeesMeanNothing) {
  for (const ProcessState state : {ProcessState::kRunning, ProcessState::kStopped, ProcessState::kDead}) {
    Job job = silent_job();
    job.processes[1].state = state;
    Silences impatient(std::chrono::milliseconds(0));
    impatient.note(job);
    EXPECT_EQ(job.processes[1].state, state);
    EXPECT_EQ(job.processes[1].trouble, "no answer");
  }
}

TEST(RasSilences, OfWhoeverHangsUpAreNone) {
  Job job = silent_job();
  job.processes[1].hung_up = true;
  Silences impatient(std::chrono::milliseconds(0));
  impatient.note(job);
  EXPECT_EQ(job.processes[1].state, ProcessState::kUnknown);
}

/// What becomes of a process that did not answer questions which were given up at these times, a second after each was
/// put.
ProcessState after_questions_until(const std::vector<int>& times) {
  Silences silences(std::chrono::seconds(60));
  ProcessState state = ProcessState::kUnknown;
  for (const int seconds : times) {
    Job job = silent_job();
    job.seconds = 1;
    silences.note(job, Silences::Clock::time_point(std::chrono::seconds(seconds)));
    state = job.processes[1].state;
  }
  return state;
}

TEST(RasSilences, LastWhileQuestionsFollowEachOther) {
  EXPECT_EQ(after_questions_until({1000, 1011, 1022, 1033, 1044, 1055}), ProcessState::kUnknown);
  EXPECT_EQ(after_questions_until({1000, 1011, 1022, 1033, 1044, 1055, 1060}), ProcessState::kDead);
  EXPECT_EQ(after_questions_until({1000, 1064}), ProcessState::kUnknown) << "it may have answered others meanwhile";
  EXPECT_EQ(after_questions_until({1000, 1011, 1022, 1034, 1045, 1056, 1067}), ProcessState::kUnknown);
}

}  // namespace
}  // namespace nitinol::ras
