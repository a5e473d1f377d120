// Health monitoring of jobs that are not well: dead, stopped and absent ranks, failures, and what is dumped then.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <fstream>
#include <functional>
#include <sstream>

#include "base/temporary_folder_testing.h"
#include "must_work.h"
#include "nccl.h"
#include "nitinol.h"
#include "ras_testing.h"

namespace nitinol::testing {
namespace {

constexpr int kProcesses = 3;
constexpr size_t kVictim = 1;

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The file once it is there and ends in a line's end.
std::string awaited_contents(const std::string& path) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < deadline) {
    std::string text = contents(path);
    if (!text.empty() && text.back() == '\n') return text;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  throw std::runtime_error("no " + path);
}

bool misses(const nlohmann::json& job, const std::vector<size_t>& ranks) {
  return !job["communicators"].empty() && job["communicators"][0]["missing"] == nlohmann::json(ranks);
}

/// The system closes a process's sockets before it says that the process is dead.
bool is_said_to_be_dead(const nlohmann::json& rank) {
  return rank["missing"].get<std::string>().find("its process is dead") != std::string::npos;
}

TEST(RasTrouble, AKilledRankIsReportedDead) {
  std::vector<Port> ports(kProcesses);
  const Meeting survivors(kProcesses);
  const std::string told = run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
    RasRank self(process, kProcesses, id, ports[static_cast<size_t>(process)].address());
    self.reduce(1);
    self.wait();
    if (process == static_cast<int>(kVictim)) raise(SIGKILL);
    if (wait_in_vain(self.comm) != ncclRemoteError) throw std::runtime_error("not a remote error");
    const auto job = ask_until(ports[static_cast<size_t>(process)].number(), [](const nlohmann::json& now) {
      const auto& communicator = now["communicators"][0];
      return misses(now, {kVictim}) && communicator["errors"].size() == 1 &&
             communicator["errors"][0]["ranks"] == nlohmann::json::array({0, 2}) &&
             is_said_to_be_dead(communicator["ranks"][kVictim]);
    });
    must_equal(job["healthy"], false, "healthy");
    const auto& communicator = job["communicators"][0];
    must_contain(communicator["errors"][0]["sentence"], {"rank 1 (host "});
    must_equal(communicator["ranks"][0]["state"], "failed", "the state of rank 0");
    const std::string text = ask(ports[static_cast<size_t>(process)].number(), "STATUS\n");
    must_contain(text, {"2 of 3 processes answered", "1 missing", "Error on ranks 0, 2: rank 1 (host ",
                        "Missing: rank 1 (host ", "its process is dead"});
    survivors.meet(process, {0, 2});
    self.abort();
  });
  EXPECT_EQ(told, "process 1 ended by signal 9\n");
}

double seconds_without_answer(const std::string& missing) {
  const std::string words = "no answer within ";
  const size_t found = missing.find(words);
  if (found == std::string::npos) throw std::runtime_error("not said how long it was waited for: " + missing);
  return std::stod(missing.substr(found + words.size()));
}

/// Runs a job whose victim is stopped (SIGSTOP) while process 0 calls `look`; `later` is called once it goes on.
std::string run_with_stopped_victim(const std::function<std::string(int process)>& address,
                                    const std::function<void()>& look, const std::function<void()>& later) {
  const Gate pids;
  const Gate done;
  return run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
    RasRank self(process, kProcesses, id, address(process));
    self.reduce(1);
    self.wait();
    if (process == static_cast<int>(kVictim)) pids.put(getpid());
    if (process == 0) {
      pid_t victim = 0;
      pids.get(victim);
      kill(victim, SIGSTOP);
      look();
      kill(victim, SIGCONT);
      later();
      done.open(kProcesses);
    }
    done.pass();
    self.end();
  });
}

TEST(RasTrouble, AStoppedRankDoesNotAnswerInTime) {
  std::vector<Port> ports(kProcesses);
  const auto look = [&] {
    const auto job = ask_until(ports[2].number(), [](const nlohmann::json& now) {
      return misses(now, {kVictim}) && now["processes"].dump().find("stopped") != std::string::npos;
    });
    const std::string missing = job["communicators"][0]["ranks"][kVictim]["missing"];
    must_contain(missing, {"its process is stopped (SIGSTOP"});
    const double patience = seconds_without_answer(missing);
    if (patience < 1 || patience >= 60) throw std::runtime_error("patience of another length: " + missing);
    must_equal(job["communicators"][0]["errors"].size(), 0, "the number of errors");
  };
  const auto later = [&] {
    must_equal(ask_until(ports[2].number(), [](const auto& now) { return misses(now, {}); })["healthy"], true,
               "healthy");
  };
  const auto address = [&](int process) { return ports[static_cast<size_t>(process)].address(); };
  EXPECT_EQ("", run_with_stopped_victim(address, look, later));
}

TEST(RasTrouble, ARankThatHasLeftIsNotTakenForDead) {
  std::vector<Port> ports(kProcesses);
  const Meeting splitters(kProcesses);
  const Gate gone;
  const Gate done;
  EXPECT_EQ("", run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
              RasRank self(process, kProcesses, id, ports[static_cast<size_t>(process)].address());
              ncclComm_t pair = nullptr;  // so that its process is still reached
              EXPECT_CALL(ncclCommSplit(self.comm, 0, 0, &pair, nullptr));
              splitters.meet(process, {0, 1, 2});
              if (process == static_cast<int>(kVictim)) {
                EXPECT_CALL(ncclCommAbort(pair));
                gone.open();
              }
              if (process == 0) {
                gone.pass();
                const auto job = ask_json(ports[0].number());
                bool found = false;
                for (const auto& communicator : job["communicators"]) {
                  if (communicator["missing"] != nlohmann::json::array({kVictim})) continue;
                  found = true;
                  must_contain(communicator["ranks"][kVictim]["missing"], {"alive but has left the communicator"});
                }
                if (!found) throw std::runtime_error("nobody is missing: " + job.dump(1));
                done.open(kProcesses);
              }
              done.pass();
              if (process != static_cast<int>(kVictim)) EXPECT_CALL(ncclCommAbort(pair));
              self.end();
            }));
}

TEST(RasTrouble, ARankWithoutHealthMonitoringMayBeJustThat) {
  std::vector<Port> ports(kProcesses);
  const Gate done;
  EXPECT_EQ("", run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
              if (process == static_cast<int>(kVictim)) setenv("NCCL_RAS_ENABLE", "0", 1);
              RasRank self(process, kProcesses, id, ports[static_cast<size_t>(process)].address());
              if (process == 0) {
                const auto job = ask_json(ports[0].number());
                if (!misses(job, {kVictim})) throw std::runtime_error("who is missing? " + job.dump(1));
                must_contain(job["communicators"][0]["ranks"][kVictim]["missing"],
                             {"its process is alive, but does not answer", "NCCL_RAS_ENABLE=0"});
                done.open(kProcesses);
              }
              done.pass();
              self.end();
            }));
}

TEST(RasTrouble, AnotherProcessAnswersAtTheSharedPortWhenOneDies) {
  const Port port;
  const Meeting survivors(kProcesses);
  const std::string told = run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
    RasRank self(process, kProcesses, id, port.address());
    self.reduce(1);
    self.wait();
    if (process == static_cast<int>(kVictim)) raise(SIGKILL);
    static_cast<void>(wait_in_vain(self.comm));
    for (int i = 0; i < 20; ++i) {
      must_equal(ask_until(port.number(), [](const auto& now) { return misses(now, {kVictim}); })["healthy"], false,
                 "healthy");
    }
    survivors.meet(process, {0, 2});
    self.abort();
  });
  EXPECT_EQ(told, "process 1 ended by signal 9\n");
}

TEST(RasTrouble, TheToolGetsAnAnswerThoughAProcessAtThePortIsStopped) {
  const Port port;
  const std::string tool = NITINOL_RAS_TOOL " --check --timeout 1 -a " + port.address() + " > /dev/null";
  const auto look = [&] {
    for (int i = 0; i < 5; ++i) must_equal(WEXITSTATUS(std::system(tool.c_str())), 3, "the status");
  };
  EXPECT_EQ("", run_with_stopped_victim([&](int) { return port.address(); }, look, [] {}));
}

TEST(RasTrouble, AFailureIsDumpedWhereTheSettingSays) {
  const TemporaryFolder folder;
  setenv("NITINOL_DUMP_FILE", folder.file("%r-%%.json").c_str(), 1);
  EXPECT_EQ("", run_ranks({1, 1}, [&](Rank& self) {
              ncclComm_t comm = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              int* data = nullptr;
              // Counts that do not match, and that no GPU takes for the same.
              const size_t count = self.rank == 0 ? 1 : 100000;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(int)));
              static_cast<void>(ncclAllReduce(data, data, count, ncclInt, ncclSum, comm, self.stream));
              if (wait_for_failure(comm) != ncclInvalidUsage) throw std::runtime_error("no mismatch");
              const auto dump =
                  nlohmann::json::parse(awaited_contents(folder.file(std::to_string(self.rank) + "-%.json")));
              must_equal(dump["rank"], self.rank, "the rank");
              must_contain(dump["failure"], {"do not match"});
              if (kVirtualGpus && dump["idle"] == true) {  // kernels of GPUs may have been told to end before
                throw std::runtime_error("what has failed is said to have ended");
              }
              must_contain(dump["traceEvents"][0]["name"], {"AllReduce number 1 (count "});
              if (kVirtualGpus) {  // GPUs have other plans, and do not keep time
                must_equal(dump["traceEvents"][0]["args"]["channels"], 1, "the channels");
                must_equal(dump["traceEvents"].back()["ph"], "B", "the kind of the last event");
              }
              EXPECT_CALL(ncclCommAbort(comm));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              EXPECT_CALL(cudaFree(data));
            }));
  unsetenv("NITINOL_DUMP_FILE");
}

/// Ranks whose calls do not match, and which do `then` as soon as they see it.
std::string fail_and(const TemporaryFolder& folder,
                     const std::function<void(RasRank&, const std::string& dump)>& then) {
  setenv("NITINOL_DUMP_FILE", folder.file("%r.json").c_str(), 1);
  const Port port;
  const std::string wrong = run_processes(2, [&](int process, const ncclUniqueId& id) {
    RasRank self(process, 2, id, port.address());
    const auto count = static_cast<size_t>(100 + process);
    static_cast<void>(ncclAllReduce(self.data, self.data, count, ncclFloat, ncclSum, self.comm, self.stream));
    if (wait_for_failure(self.comm) != ncclInvalidUsage) throw std::runtime_error("no mismatch");
    then(self, folder.file(std::to_string(process) + ".json"));
  });
  unsetenv("NITINOL_DUMP_FILE");
  return wrong;
}

TEST(RasTrouble, AFailureIsDumpedThoughTheProgramExitsAtOnce) {
  const TemporaryFolder folder;
  EXPECT_EQ("", fail_and(folder, [](RasRank&, const std::string&) { exit(0); }));
  for (int rank = 0; rank < 2; ++rank) {
    const auto dump = nlohmann::json::parse(folder.read(std::to_string(rank) + ".json"));
    EXPECT_EQ(dump["rank"], rank);
    EXPECT_NE(dump["failure"].dump().find("do not match"), std::string::npos) << dump["failure"];
  }
}

TEST(RasTrouble, AFailureIsDumpedBeforeAnAbortReturns) {
  const TemporaryFolder folder;
  EXPECT_EQ("", fail_and(folder, [](RasRank& self, const std::string& dump) {
              self.abort();
              must_contain(nlohmann::json::parse(contents(dump))["failure"], {"do not match"});
            }));
}

TEST(RasTrouble, ASignalDumpsAllRanksOfAProcess) {
  const TemporaryFolder folder;
  setenv("NITINOL_DUMP_FILE", folder.file("%r.txt").c_str(), 1);
  setenv("NITINOL_DUMP_SIGNAL", "SIGUSR2", 1);
  setenv("NCCL_RAS_ENABLE", "0", 1);  // dumps do not need it
  EXPECT_EQ("", run_ranks({2, 1}, [&](Rank& self) {
              int* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 64));
              EXPECT_CALL(ncclAllReduce(data, data, 5, ncclInt, ncclSum, self.comm, self.stream));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              if (self.rank != 1) kill(getpid(), SIGUSR2);
              must_contain(awaited_contents(folder.file(std::to_string(self.rank) + ".txt")),
                           {"Rank " + std::to_string(self.rank) + " of 3", "No failure", "issued 1, begun 1",
                            "AllReduce number 1 (count 5, type int32, op sum); ",
                            kVirtualGpus ? "OneShot Simple, 1 channels" : "finished is not known"});
              EXPECT_CALL(cudaFree(data));
            }));
  unsetenv("NCCL_RAS_ENABLE");
  unsetenv("NITINOL_DUMP_SIGNAL");
  unsetenv("NITINOL_DUMP_FILE");
}

TEST(RasTrouble, ASignalDoesNotEndWhoWaitsForTheOthersOfItsFirstCommunicator) {
  const TemporaryFolder folder;
  setenv("NITINOL_DUMP_FILE", folder.file("%r.txt").c_str(), 1);
  setenv("NITINOL_DUMP_SIGNAL", "SIGUSR2", 1);
  const Gate asked;
  const Gate seen[2];  // who is not there yet would hear of the other's abort
  EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) {
              if (process == 1) asked.pass();
              ncclComm_t comm = nullptr;
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.blocking = 0;
              const ncclResult_t begun = ncclCommInitRankConfig(&comm, 2, id, process, &config);
              raise(SIGUSR2);
              if (process == 0) asked.open();
              EXPECT_CALL(settled(begun, comm));
              raise(SIGUSR2);
              must_contain(awaited_contents(folder.file(std::to_string(process) + ".txt")), {"issued 0"});
              seen[process].open();
              seen[1 - process].pass();
              EXPECT_CALL(ncclCommAbort(comm));
            }));
  unsetenv("NITINOL_DUMP_SIGNAL");
  unsetenv("NITINOL_DUMP_FILE");
}

TEST(RasTrouble, AForkedChildDoesNotKeepThePort) {
  const Port port;
  const Gate done;
  EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) {
              setenv("NITINOL_DUMP_SIGNAL", "USR2", 1);
              RasRank self(process, 2, id, port.address());
              self.reduce(1);
              self.wait();
              const pid_t child = fork();
              if (child == 0) {
                raise(SIGUSR2);  // there is nobody to dump for, and nothing that could be harmed
                done.pass();
                _exit(0);
              }
              must_equal(ask_json(port.number())["processes"].size(), 2, "the number of processes");
              self.reduce(1);
              self.end();
              if (process == 0) {
                while (true) {  // until the other one has left, too
                  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
                  const sockaddr_in address = loopback(port.number());
                  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) break;
                  std::this_thread::sleep_for(std::chrono::milliseconds(5));
                }
                done.open(2);
              }
              int status = 0;
              waitpid(child, &status, 0);
              must_equal(status, 0, "the status of the child");
            }));
}

volatile sig_atomic_t handled = 0;

TEST(RasTrouble, ASignalThatTheProgramHandlesIsLeftToIt) {
  setenv("NITINOL_DUMP_SIGNAL", "usr2", 1);
  EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) {
              signal(SIGUSR2, [](int) { handled = 1; });
              const Port port;
              RasRank self(process, 2, id, port.address());
              raise(SIGUSR2);
              if (handled != 1) throw std::runtime_error("the handler is gone");
              self.end();
            }));
  unsetenv("NITINOL_DUMP_SIGNAL");
}

}  // namespace
}  // namespace nitinol::testing
