// Ranks as processes. The test program starts itself again for each of them, so that no process is forked off with
// threads.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <span>

#include "bootstrap/closed_descriptors_testing.h"
#include "bootstrap/fd_exchange.h"
#include "bootstrap/network.h"
#include "bootstrap/testing.h"

namespace nitinol {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::quick_options;
using testing::run_threads;

constexpr const char* kTask = "NITINOL_BOOTSTRAP_TEST";  // "rank nranks id" for a process that is started as a rank

std::string hex(const ncclUniqueId& id) {
  std::string text;
  for (const char c : id.internal) text += formatted("{:02x}", static_cast<unsigned char>(c));
  return text;
}

ncclUniqueId from_hex(const std::string& text) {
  ncclUniqueId id{};
  for (std::size_t i = 0; i < sizeof(id.internal); ++i) {
    id.internal[i] = static_cast<char>(std::strtol(text.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  return id;
}

/// A process that runs one test of this program. Killed with its owner.
class Child {
 public:
  Child(const std::string& test, const std::string& task) {
    std::vector<std::string> texts;
    for (char** entry = environ; *entry != nullptr; ++entry) texts.emplace_back(*entry);
    texts.push_back(std::string(kTask) + "=" + task);
    std::vector<char*> environment;
    for (auto& text : texts) environment.push_back(text.data());
    environment.push_back(nullptr);
    std::string program = "/proc/self/exe";
    std::string filter = "--gtest_filter=" + test;
    std::array<char*, 3> arguments = {program.data(), filter.data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    std::array<int, 2> pipe{};
    EXPECT_EQ(pipe2(pipe.data(), O_CLOEXEC), 0);
    const UniqueFd read_end(pipe[0]);
    lifeline_ = UniqueFd(pipe[1]);
    posix_spawn_file_actions_adddup2(&actions, read_end.get(), STDIN_FILENO);
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), environment.data()), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void signal(int number) const { kill(pid_, number); }
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_ = 0;
  UniqueFd lifeline_;  // the process's standard input ends with its owner
};

struct Task {
  int rank = 0;
  int nranks = 0;
  UniqueId id;
};

std::optional<Task> task_of_this_process() {
  const char* text = std::getenv(kTask);
  if (text == nullptr) return std::nullopt;
  int rank = 0;
  int nranks = 0;
  char id[300] = "";
  if (std::sscanf(text, "%d %d %299s", &rank, &nranks, id) != 3) return std::nullopt;
  return Task{rank, nranks, parse_unique_id(from_hex(id))};
}

std::string task_text(int rank, int nranks, const UniqueId& id) {
  return formatted("{} {} {}", rank, nranks, hex(serialise(id)));
}

TEST(Processes, JoinAndExchange) {
  const auto options = quick_options();
  const auto body = [&](const UniqueId& id, int rank) {
    auto mine = Bootstrap::join({{id}, rank, 6, options, nullptr});
    EXPECT_EQ(mine->all_gather_value(rank * 10)[5], 50);
    mine->barrier();
    mine->shutdown();
  };
  if (const auto task = task_of_this_process()) return body(task->id, task->rank);
  const UniqueId id = make_unique_id(options);
  std::vector<std::unique_ptr<Child>> children;
  for (int rank = 1; rank < 6; ++rank) {
    children.push_back(std::make_unique<Child>("Processes.JoinAndExchange", task_text(rank, 6, id)));
  }
  body(id, 0);
  for (auto& child : children) EXPECT_EQ(child->wait(), 0);
}

TEST(Processes, AKilledRankIsNamedOnAllOthers) {
  const auto options = quick_options();
  const auto survive = [&](Bootstrap& mine) {
    std::promise<Failure> told;
    mine.watch([&](const Failure& failure) { told.set_value(failure); });
    const Failure failure = told.get_future().get();
    EXPECT_EQ(failure.rank, 3);
    EXPECT_THAT(failure.sentence, AllOf(HasSubstr("rank 3 (host "), HasSubstr("exited or closed its connection")));
    mine.watch(nullptr);
  };
  if (const auto task = task_of_this_process()) {
    try {
      auto mine = Bootstrap::join({{task->id}, task->rank, task->nranks, options, nullptr});
      survive(*mine);
    } catch (const Error& error) {
      // Rank 0 is through a little earlier, and kills.
      EXPECT_THAT(error.what(), HasSubstr("rank 3 (host "));
    }
    return;
  }
  const UniqueId id = make_unique_id(options);
  std::vector<std::unique_ptr<Child>> children;
  for (int rank = 1; rank < 7; ++rank) {
    children.push_back(std::make_unique<Child>("Processes.AKilledRankIsNamedOnAllOthers", task_text(rank, 7, id)));
  }
  auto mine = Bootstrap::join({{id}, 0, 7, options, nullptr});
  children[2]->signal(SIGKILL);
  survive(*mine);
  for (std::size_t i = 0; i < children.size(); ++i) {
    if (i == 2) continue;
    EXPECT_EQ(children[i]->wait(), 0);
  }
}

/// Rank 2 of 3 ends by `end`: what the others take it for, of which they are told later.
void expect_the_end(const char* test, void (*end)(int), Parting parting, const char* words) {
  BootstrapOptions options = quick_options();
  options.grace_of_gone = std::chrono::hours(1);
  if (const auto task = task_of_this_process()) {
    auto mine = Bootstrap::join({{task->id}, task->rank, task->nranks, options, nullptr});
    mine->barrier();
    end(0);
  }
  const UniqueId id = make_unique_id(options);
  Child child(test, task_text(2, 3, id));
  std::array<std::unique_ptr<Bootstrap>, 2> others;
  std::atomic<int> told{0};
  run_threads(2, [&](int rank) {
    auto& mine = others[static_cast<std::size_t>(rank)];
    mine = Bootstrap::join({{id}, rank, 3, options, nullptr});
    mine->watch([&](const Failure&) { ++told; });
    mine->barrier();
    EXPECT_THAT(error_of([&] { mine->barrier(); }).what(), AllOf(HasSubstr("rank 2 (host "), HasSubstr(words)));
    EXPECT_EQ(mine->failure()->parting, parting);
  });
  EXPECT_EQ(child.wait(), 0);
  for (const auto& mine : others) mine->watch(nullptr);
  EXPECT_EQ(told, 0);
}

TEST(Processes, ARankWhoseProcessExitsHasDeparted) {
  expect_the_end("Processes.ARankWhoseProcessExitsHasDeparted", exit, Parting::kDeparted,
                 "exited without ncclCommDestroy or ncclCommAbort");
}

TEST(Processes, ARankWhoseProcessEndsAtOnceIsLost) {
  expect_the_end("Processes.ARankWhoseProcessEndsAtOnceIsLost", _exit, Parting::kLost,
                 "exited or closed its connection");
}

#ifndef __SANITIZE_THREAD__  // which does not let the child of a process with threads start one
TEST(Processes, ADeadRankIsMissedThoughItsForkedChildLives) {
  const auto options = quick_options();
  if (const auto task = task_of_this_process()) {
    auto mine = Bootstrap::join({{task->id}, task->rank, task->nranks, options, nullptr});
    if (fork() == 0) {
      // Lives on without using anything, until the test is over.
      char byte = 0;
      while (::read(STDIN_FILENO, &byte, 1) > 0) {
      }
      _exit(0);
    }
    mine->barrier();
    raise(SIGKILL);
  }
  const UniqueId id = make_unique_id(options);
  Child child("Processes.ADeadRankIsMissedThoughItsForkedChildLives", task_text(1, 2, id));
  auto mine = Bootstrap::join({{id}, 0, 2, options, nullptr});
  std::promise<Failure> told;
  mine->watch([&](const Failure& failure) { told.set_value(failure); });
  EXPECT_EQ(error_of([&] {
              mine->barrier();
              mine->barrier();
            }).code(),
            ncclRemoteError);
  EXPECT_EQ(told.get_future().get().rank, 1);
}

/// Until it goes, the network thread does nothing: a process forked off while a thread has the locks of a sanitizer's
/// heap never gets memory.
class QuietNetwork {
 public:
  QuietNetwork() {
    const auto asleep = std::make_shared<std::promise<void>>();
    Network::instance().reactor().post([asleep, wake = wake_.get_future().share()] {
      asleep->set_value();
      wake.wait();
    });
    asleep->get_future().wait();
  }
  ~QuietNetwork() { wake_.set_value(); }
  QuietNetwork(const QuietNetwork&) = delete;
  QuietNetwork& operator=(const QuietNetwork&) = delete;

 private:
  std::promise<void> wake_;
};

TEST(Processes, AForkedChildHasANetworkOfItsOwn) {
  const auto options = quick_options();
  const UniqueId id = make_unique_id(options);  // starts the network thread of this process
  auto quiet = std::make_unique<QuietNetwork>();
  const pid_t pid = fork();
  if (pid == 0) {
    const Error error = error_of([&] {
      auto mine = Bootstrap::join({{id}, 1, 2, options, nullptr});
      mine->barrier();
      mine->shutdown();
    });
    _exit(error.code() == ncclSuccess ? 0 : 1);
  }
  quiet.reset();
  auto mine = Bootstrap::join({{id}, 0, 2, options, nullptr});
  mine->barrier();
  mine->shutdown();
  int status = -1;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
}
#endif

/// Closes those of the kind that have come with a communicator; that fails, and there are no others.
void expect_to_be_told_of_closed(const std::string& kind) {
  const auto before = testing::open_descriptors();
  const auto all = testing::join_all(2);
  std::promise<Failure> told;
  all[0]->watch([&](const Failure& failure) { told.set_value(failure); });
  EXPECT_GT(testing::close_new_descriptors(before, kind), 0);
  // Both ranks live here: one may see the end of the other's connection first.
  EXPECT_THAT(told.get_future().get().sentence, AnyOf(HasSubstr("a descriptor was closed behind the library's back"),
                                                      HasSubstr("exited or closed its connection")));
  Error error(ncclSuccess, "");
  while (error.code() == ncclSuccess) error = error_of([] { make_unique_id(quick_options()); });
  EXPECT_THAT(error.what(), HasSubstr("the program has closed descriptors of the library"));
}

TEST(Processes, AreToldWhatTheyHaveClosed) {
  for (const int kind : {0, 1, 2}) {
    if (const auto task = task_of_this_process()) {
      constexpr std::array<const char*, 3> kKinds = {"anon_inode:[eventpoll]", "anon_inode:[timerfd]", "socket:"};
      return expect_to_be_told_of_closed(kKinds[static_cast<std::size_t>(task->rank)]);
    }
    Child child("Processes.AreToldWhatTheyHaveClosed", task_text(kind, 3, make_unique_id(quick_options())));
    EXPECT_EQ(child.wait(), 0);
  }
}

TEST(Processes, ARankKilledWhileItJoinsIsNamed) {
  const auto options = quick_options();
  if (const auto task = task_of_this_process()) {
    Bootstrap::join({{task->id}, task->rank, task->nranks, options, nullptr});
    return;
  }
  const UniqueId id = make_unique_id(options);
  Child child("Processes.ARankKilledWhileItJoinsIsNamed", task_text(1, 3, id));
  // Killed some time after its start: before or after it came to the root, and another copy of it comes then.
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    child.signal(SIGKILL);
  });
  BootstrapOptions impatient = options;
  impatient.init_timeout = std::chrono::milliseconds(5000);
  const Error error = error_of([&] { Bootstrap::join({{id}, 0, 3, impatient, nullptr}); });
  killer.join();
  EXPECT_EQ(error.code(), ncclRemoteError);
  EXPECT_THAT(error.what(), AnyOf(HasSubstr("rank 1 (host "), HasSubstr("ranks 1, 2 (of 3) did not arrive")));
}

TEST(Processes, GiveDescriptorsToEachOther) {
  const auto options = quick_options();
  struct Contact {
    FdServerName server;
    FdKey key;
  };
  const auto body = [&](const UniqueId& id, int rank) {
    auto mine = Bootstrap::join({{id}, rank, 3, options, nullptr});
    FdExchange exchange(mine->secret());
    const FdKey key = FdKey::random();
    UniqueFd memory(memfd_create("nitinol-test", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(memory.get(), 1000 + rank), 0);
    exchange.publish(key, std::move(memory), static_cast<std::uint64_t>(rank));
    const auto contacts = mine->all_gather_value(Contact{exchange.server_name(), key});
    for (int peer = 0; peer < 3; ++peer) {
      const Contact& contact = contacts[static_cast<std::size_t>(peer)];
      const SharedFd got =
          exchange.fetch(contact.server, contact.key, std::chrono::steady_clock::now() + std::chrono::seconds(30));
      EXPECT_EQ(::lseek(got.fd.get(), 0, SEEK_END), 1000 + peer);
      EXPECT_EQ(got.metadata, static_cast<std::uint64_t>(peer));
    }
    mine->barrier();
    mine->shutdown();
  };
  if (const auto task = task_of_this_process()) return body(task->id, task->rank);
  const UniqueId id = make_unique_id(options);
  Child first("Processes.GiveDescriptorsToEachOther", task_text(1, 3, id));
  Child second("Processes.GiveDescriptorsToEachOther", task_text(2, 3, id));
  body(id, 0);
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
}

TEST(Processes, ExitWithoutLeavingIsNoCrash) {
  if (const auto task = task_of_this_process()) {
    static Bootstrap* forgotten = nullptr;  // still there when the process exits
    forgotten = Bootstrap::join({{task->id}, task->rank, task->nranks, quick_options(), nullptr}).release();
    forgotten->watch([](const Failure&) {});
    forgotten->barrier();
    return;
  }
  const UniqueId id = make_unique_id(quick_options());
  Child first("Processes.ExitWithoutLeavingIsNoCrash", task_text(0, 2, id));
  Child second("Processes.ExitWithoutLeavingIsNoCrash", task_text(1, 2, id));
  const int a = first.wait();
  const int b = second.wait();
  // The one that exits first may be missed by the other in its last barrier; neither may die of a signal.
  EXPECT_TRUE(WIFEXITED(a)) << a;
  EXPECT_TRUE(WIFEXITED(b)) << b;
}

}  // namespace
}  // namespace nitinol
