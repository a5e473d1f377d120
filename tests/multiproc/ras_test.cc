// Health monitoring: whoever asks any process of a job hears of all of them.
#include <dirent.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "base/temporary_folder_testing.h"
#include "nccl.h"
#include "nitinol.h"
#include "observe.h"
#include "other_program.h"
#include "ras_testing.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

std::pair<int, std::string> run_tool(const std::string& arguments) {
  return run_command("NCCL_RAS_ADDR= " NITINOL_RAS_TOOL " " + arguments + " 2>&1");
}

bool has_ras_thread() {
  bool found = false;
  DIR* const directory = opendir("/proc/self/task");
  while (const dirent* entry = readdir(directory)) {
    std::ifstream file(std::string("/proc/self/task/") + entry->d_name + "/comm");
    std::string name;
    std::getline(file, name);
    found = found || name == "nitinol-ras";
  }
  closedir(directory);
  return found;
}

/// A thread names itself soon after it has begun, and is seen a moment after it has ended.
void await_ras_thread(bool wanted) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (has_ras_thread() != wanted) {
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error(wanted ? "no thread" : "a thread is left");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Runs `body` in processes of one rank each; nobody goes before process 0 is through.
void run_job(int processes, const std::function<void(RasRank&, const std::vector<Port>&)>& body) {
  std::vector<Port> ports(static_cast<size_t>(processes));
  const Gate gate;
  EXPECT_EQ("", run_processes(processes, [&](int process, const ncclUniqueId& id) {
              RasRank self(process, processes, id, ports[static_cast<size_t>(process)].address());
              body(self, ports);
              if (process == 0) gate.open(processes);
              gate.pass();
              self.reduce(1);  // all are through
              self.wait();
              self.end();
            }));
}

TEST(Ras, AnyProcessAnswersForAll) {
  run_job(3, [](RasRank& self, const std::vector<Port>& ports) {
    self.reduce(7);
    self.wait();
    const auto job = ask_until(ports[static_cast<size_t>(self.process)].number(), [](const nlohmann::json& told) {
      const auto& ranks = told["communicators"][0]["ranks"];
      return ranks[0].value("ended", 0) > 0 && ranks[1].value("ended", 0) > 0 && ranks[2].value("ended", 0) > 0;
    });
    must_equal(job["healthy"], true, "healthy");
    must_equal(job["asked"]["pid"], getpid(), "the pid that was asked");
    must_equal(job["processes"].size(), 3, "the number of processes");
    must_equal(job["communicators"].size(), 1, "the number of communicators");
    const auto& communicator = job["communicators"][0];
    must_equal(communicator["missing"].size(), 0, "the number of missing ranks");
    for (size_t rank = 0; rank < 3; ++rank) {
      must_equal(communicator["ranks"][rank]["rank"], rank, "the rank");
      must_equal(communicator["ranks"][rank]["state"], "ready", "the state");
      must_equal(communicator["ranks"][rank]["error"], "", "the error");
    }
    must_equal(communicator["ranks"][static_cast<size_t>(self.process)]["pid"], getpid(), "my pid");
  });
}

TEST(Ras, SeveralRanksAndCommunicatorsOfAProcessAreToldApart) {
  const Port port;
  setenv("NCCL_RAS_ADDR", port.address().c_str(), 1);
  EXPECT_EQ("", run_ranks({2, 1}, [&](Rank& self) {
              ncclComm_t pair = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, self.rank / 2, 0, &pair, nullptr));  // {0, 1} and {2}
              int* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 64));
              EXPECT_CALL(ncclAllReduce(data, data, 1, ncclInt, ncclSum, self.comm, self.stream));  // all have split
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              if (self.rank == 2) {
                const auto job = ask_json(port.number());
                must_equal(job["communicators"].size(), 2, "the number of communicators of several ranks");
                size_t ranks = 0;
                for (const auto& communicator : job["communicators"]) {
                  ranks += communicator["ranks"].size();
                  must_equal(communicator["missing"].size(), 0, "the number of missing ranks");
                }
                must_equal(ranks, 5, "the number of ranks");
              }
              EXPECT_CALL(ncclAllReduce(data, data, 1, ncclInt, ncclSum, self.comm, self.stream));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              EXPECT_CALL(cudaFree(data));
              EXPECT_CALL(ncclCommDestroy(pair));
            }));
  unsetenv("NCCL_RAS_ADDR");
}

/// Processes 0 and 1 have one communicator, 1 and 2 another, and so on.
TEST(Ras, ReachesProcessesThatShareNoCommunicatorThroughOthers) {
  constexpr int kProcesses = 4;
  std::vector<Port> ports(kProcesses);
  std::vector<Gate> ids(kProcesses);
  const Gate ready;
  const Gate done;
  EXPECT_EQ("", run_processes(kProcesses, [&](int process, const ncclUniqueId&) {
              setenv("NCCL_RAS_ADDR", ports[static_cast<size_t>(process)].address().c_str(), 1);
              std::vector<ncclComm_t> comms;
              if (process > 0) {
                ncclUniqueId id;
                ids[static_cast<size_t>(process)].get(id);
                EXPECT_CALL(ncclCommInitRank(&comms.emplace_back(), 2, id, 1));
              }
              if (process + 1 < kProcesses) {
                ncclUniqueId id;
                EXPECT_CALL(ncclGetUniqueId(&id));
                ids[static_cast<size_t>(process) + 1].put(id);
                EXPECT_CALL(ncclCommInitRank(&comms.emplace_back(), 2, id, 0));
              }
              ready.open();
              if (process == 0) {
                for (int i = 0; i < kProcesses; ++i) ready.pass();
                for (const Port& port : ports) {
                  const auto job = ask_json(port.number());
                  must_equal(job["processes"].size(), 4, "the number of processes");
                  must_equal(job["communicators"].size(), 3, "the number of communicators");
                  must_equal(job["healthy"], true, "healthy");
                }
                done.open(kProcesses);
              }
              done.pass();
              for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(Ras, SaysWhichRanksLagBehindInACollective) {
  run_job(3, [](RasRank& self, const std::vector<Port>& ports) {
    self.reduce(5);
    self.wait();
    if (self.process != 1) self.reduce(6);
    if (self.process == 1) {
      const auto job = ask_until(ports[0].number(), [](const nlohmann::json& told) {
        const auto& now = told["communicators"][0];
        return now["furthest"] == 2 && now["inside"] == nlohmann::json::array({0, 2});
      });
      const auto& communicator = job["communicators"][0];
      must_equal(communicator["behind"], nlohmann::json::array({1}), "who is behind");
      must_equal(communicator["furthest"], 2, "the furthest");
      must_equal(communicator["ranks"][1]["begun"], 1, "what rank 1 has begun");
      must_equal(communicator["ranks"][0]["ended"], 1, "what rank 0 has ended");
      const std::string text = ask(ports[2].number(), "verbose status\n");
      must_contain(text, {"3 of 3 processes answered", "In AllReduce number 2 (count 6, type float32, op sum) for ",
                          ": ranks 0, 2.", "Not there yet:", "rank 1: idle after AllReduce number 1 (count 5, ",
                          " (issued 1, begun 1, ended 1)\n", "rank 2 (host ",
                          "ready; issued 2, begun 2, ended 1; in AllReduce number 2"});
      self.reduce(6);
    }
    self.wait();
  });
}

/// Neither is in a stream.
TEST(Ras, SaysWhoWaitsOnTheHost) {
  setenv("NITINOL_CHECK", "strict", 1);
  run_job(3, [](RasRank& self, const std::vector<Port>& ports) {
    ncclComm_t child = nullptr;
    const auto split = [&] { EXPECT_CALL(ncclCommSplit(self.comm, 0, self.process, &child, nullptr)); };
    const auto await = [&](const std::string& state) {
      ask_until(ports[0].number(), [&](const nlohmann::json& told) {
        const auto& ranks = told["communicators"][0]["ranks"];
        return ranks[0]["state"] == state && ranks[1]["state"] == "ready" && ranks[2]["state"] == state;
      });
    };
    if (self.process != 1) split();
    if (self.process == 1) {
      await("waiting in ncclCommSplit");
      must_contain(ask(ports[2].number(), "status\n"), {"State: rank 1 ready; ranks 0, 2 waiting in ncclCommSplit."});
      split();
    }
    EXPECT_CALL(ncclCommDestroy(child));
    if (self.process == 1) await("waiting to call AllReduce");
    self.reduce(5);
    self.wait();
  });
  unsetenv("NITINOL_CHECK");
}

TEST(Ras, ProtocolOfLines) {
  run_job(2, [](RasRank& self, const std::vector<Port>& ports) {
    if (self.process != 0) return;
    const int port = ports[1].number();
    const std::string text = ask(port, "Client Protocol 2\r\n\n  timeout 3.5 \nSTATUS\n");
    must_contain(text, {"SERVER PROTOCOL 2\nOK\nNitinol ", "2 of 2 processes answered", "2 ranks, 2 processes"});
    must_contain(
        ask(port, "TIMEOUT -1\nSET FORMAT xml\nSTATUS please\nstatus\n"),
        {"ERROR: TIMEOUT takes", "ERROR: SET FORMAT takes text or json", "ERROR: unknown command", "Nitinol "});
    Socket half = connect_to(port);  // says all it has to say, as `echo status | nc` does
    say(half, "status");
    ::shutdown(half.get(), SHUT_WR);
    must_contain(hear(half), {"2 of 2 processes answered"});
  });
}

TEST(Ras, TellsTheStatesOfCommunicatorsAndDumpsThem) {
  const Port port;
  const Meeting meeting(2);
  EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) {
              RasRank self(process, 2, id, port.address());
              ncclComm_t other = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, process, &other, nullptr));
              if (process == 1) EXPECT_CALL(ncclCommRevoke(other, NCCL_REVOKE_DEFAULT));
              meeting.meet(process, {0, 1});
              const auto job = ask_until(port.number(), [](const nlohmann::json& told) {
                int revoked = 0;
                int ready = 0;
                for (const auto& communicator : told["communicators"]) {
                  revoked += communicator["ranks"][1].value("state", "") == "revoked" ? 1 : 0;
                  for (const auto& rank : communicator["ranks"]) ready += rank.value("state", "") == "ready" ? 1 : 0;
                }
                return revoked == 1 && ready == 3;
              });
              must_equal(job["communicators"].size(), 2, "the number of communicators");
              must_contain(ask(port.number(), "dump\n"), {"Rank 0 of 2 of communicator", "Rank 1 of 2", "No failure"});
              meeting.meet(process, {0, 1});
              EXPECT_CALL(ncclCommDestroy(other));
              self.end();
            }));
}

TEST(Ras, StrangersDoNoHarm) {
  run_job(2, [](RasRank& self, const std::vector<Port>& ports) {
    if (self.process != 0) return;
    const int port = ports[1].number();
    must_contain(ask(port, std::string(100'000, 'x')), {"ERROR: a line of more than 256 characters"});
    std::string commands;
    for (int i = 0; i < 1000; ++i) commands += "nonsense\n";
    must_contain(ask(port, commands), {"ERROR: unknown command"});
    static_cast<void>(ask(port, std::string("\0\xff\n\x80STATUS\n", 11) + "status\n"));
    std::vector<Socket> crowd;  // silent ones, ones that never read what they ask for, and ones that hang up
    for (int i = 0; i < 300; ++i) {
      crowd.push_back(connect_to(port));
      if (i % 3 == 0) say(crowd.back(), "verbose status\n");
      if (i % 3 == 1) say(crowd.back(), "verbose status\nverb");
      if (i % 5 == 0) crowd.back() = Socket();
    }
    for (int i = 0; i < 5; ++i) must_equal(ask_json(port)["healthy"], true, "healthy");
    crowd.clear();
    must_equal(ask_json(port)["processes"].size(), 2, "the number of processes");
  });
}

TEST(Ras, NothingIsLeftAfterTheLastCommunicator) {
  std::vector<Port> ports(2);
  EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) {
              {
                RasRank first(process, 2, id, ports[static_cast<size_t>(process)].address());
                await_ras_thread(true);
                ncclComm_t pair = nullptr;
                EXPECT_CALL(ncclCommSplit(first.comm, 0, process, &pair, nullptr));
                static_cast<void>(ask_json(ports[static_cast<size_t>(process)].number()));
                first.reduce(1);
                first.wait();
                EXPECT_CALL(ncclCommDestroy(pair));
                await_ras_thread(true);
                first.end();
              }
              await_ras_thread(false);
              const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
              const sockaddr_in address = loopback(ports[static_cast<size_t>(process)].number());
              if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
                throw std::runtime_error("somebody still listens");
              }
            }));
}

TEST(Ras, ManyRoundsHoldNoMoreDescriptorsThanOne) {
  const Port port;
  setenv("NCCL_RAS_ADDR", port.address().c_str(), 1);
  const SharedCount asked;
  EXPECT_EQ("", run_ranks({1, 1}, [&](Rank& self) {
              auto round = [&, rounds = 0]() mutable {
                ncclComm_t comm = nullptr;
                EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
                must_equal(ask_json(port.number())["healthy"], true, "healthy");
                asked.add();
                asked.wait_for(2 * ++rounds);
                EXPECT_CALL(ncclCommDestroy(comm));
              };
              // Connections linger until both sides have seen that the other closes.
              const auto settled = [](int enough) {
                const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
                int least = entries_of("/proc/self/fd");
                while (least > enough && std::chrono::steady_clock::now() < deadline) {
                  std::this_thread::sleep_for(std::chrono::milliseconds(5));
                  least = std::min(least, entries_of("/proc/self/fd"));
                }
                return least;
              };
              round();
              const int before = entries_of("/proc/self/fd");
              for (int i = 0; i < 10; ++i) round();
              if (settled(before) > before) throw std::runtime_error("descriptors are left");
            }));
  unsetenv("NCCL_RAS_ADDR");
}

TEST(Ras, AJobGoesOnWithoutAPortOrWithANonsensicalOne) {
  Socket taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(taken.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  ASSERT_EQ(getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string busy = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  for (const std::string& text : {busy, std::string("nonsense"), std::string("[::1:5"), std::string("192.0.2.1:99")}) {
    setenv("NCCL_RAS_ADDR", text.c_str(), 1);
    EXPECT_EQ("", run_ranks({1, 1},
                            [](Rank& self) {
                              int* data = nullptr;
                              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 64));
                              EXPECT_CALL(ncclAllReduce(data, data, 1, ncclInt, ncclSum, self.comm, self.stream));
                              EXPECT_CALL(cudaStreamSynchronize(self.stream));
                              EXPECT_CALL(cudaFree(data));
                            }))
        << text;
  }
  unsetenv("NCCL_RAS_ADDR");
}

TEST(Ras, SwitchedOffThereIsNoThread) {
  setenv("NCCL_RAS_ENABLE", "0", 1);
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank&) {
              if (has_ras_thread()) throw std::runtime_error("a thread");
            }));
  unsetenv("NCCL_RAS_ENABLE");
}

TEST(Ras, TheToolPrintsChecksAndCollectsDumps) {
  run_job(2, [](RasRank& self, const std::vector<Port>& ports) {
    self.reduce(3);
    self.wait();
    if (self.process != 0) return;
    ask_until(ports[1].number(), [](const nlohmann::json& told) {
      const auto& ranks = told["communicators"][0]["ranks"];
      return ranks[0]["ended"] == 1 && ranks[1]["ended"] == 1;
    });
    const std::string port = std::to_string(ports[1].number());
    const auto [status, text] = run_tool("-v --host localhost --port " + port);
    must_equal(status, 0, "the status");
    must_contain(text, {"2 of 2 processes answered", "All ranks have ended all 1 collectives.", "rank 1 (host "});
    const auto [json_status, json] = run_tool("--format json --timeout 7.5 --address 127.0.0.1:" + port);
    must_equal(json_status, 0, "the status");
    must_equal(nlohmann::json::parse(json)["processes"].size(), 2, "the number of processes");
    const auto [check_status, verdict] = run_tool("--check -a localhost:" + port);
    must_equal(verdict, "All is well.\n", "the verdict");
    must_equal(check_status, 0, "the status");
    const auto [unwritten_status, complaint] = run_command(NITINOL_RAS_TOOL " --check -p " + port + " 2>&1 >/dev/full");
    must_equal(unwritten_status, 1, "the status");
    must_contain(complaint, {"nitinol-ras: cannot write the answer: No space left on device"});
    char folder[] = "/tmp/nitinol-ras-XXXXXX";
    if (mkdtemp(folder) == nullptr) throw std::runtime_error("mkdtemp");
    const auto [dump_status, files] = run_tool("--dump " + std::string(folder) + " -p " + port);
    must_equal(dump_status, 0, "the status");
    // What is there of ranks that are silent now is of another day; other files are not the tool's.
    const std::string first = files.substr(0, files.find(".json"));
    const std::string earlier = first.substr(0, first.rfind('-')) + "-7.json";
    const std::string other = std::string(folder) + "/00000000-7.json";
    std::ofstream(earlier).put('x');
    std::ofstream(other).put('x');
    must_equal(
        run_tool("--dump " + std::string(folder) + " -p " + port).second,
        files + "nitinol-ras: " + earlier + " is of another time, and is renamed: .earlier is behind its name now\n",
        "what is told");
    if (access(earlier.c_str(), F_OK) == 0) throw std::runtime_error("a dump of another day is still there");
    if (access((earlier + ".earlier").c_str(), F_OK) != 0) throw std::runtime_error("it is gone");
    if (unlink(other.c_str()) != 0) throw std::runtime_error("a file of somebody else is gone");
    must_equal(run_command("python3 " NITINOL_TRACE_TOOL " " + std::string(folder) + "/*.json").second,
               "All ranks have finished what they issued (1 collective).\n", "what the dumps say");
    if (std::system(("rm -r " + std::string(folder)).c_str()) != 0) throw std::runtime_error("rm");
  });
}

/// What the tool answers while the program says something to everybody.
std::pair<int, std::string> run_tool_beside(const OtherProgram& other) {
  std::atomic<bool> over{false};
  std::thread speaking([&] { other.speak_until(over); });
  const auto told = run_tool("-p " + other.port());
  over = true;
  speaking.join();
  return told;
}

TEST(Ras, TheToolFindsAJobThatListensBesideAnotherProgram) {
  const OtherProgram other;
  if (!other.has_room()) GTEST_SKIP() << "there is no ::1";
  const Gate done;
  EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) {
              RasRank self(process, 2, id, "localhost:" + other.port());
              if (process == 0) {
                other.await_job();
                for (const auto& [status, text] : {run_tool("-p " + other.port()), run_tool_beside(other)}) {
                  must_equal(status, 0, "the status");
                  must_contain(text, {"2 of 2 processes answered"});
                }
                done.open();
              } else {
                done.pass();
              }
              self.end();
            }));
  const auto [status, text] = run_tool_beside(other);
  EXPECT_EQ(status, 1);
  for (const char* words :
       {"no job answers at localhost port", "127.0.0.1 says: HTTP/1.1 400", "::1: Connection ref"}) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  }
}

::testing::AssertionResult says(const std::string& text, const std::string& words) {
  if (text.find(words) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "lacking: '" << words << "' in '" << text << "'";
}

/// Where the tool looks, if it has such an environment: nobody is there.
std::string where_the_tool_looks(const std::string& environment, const std::string& arguments = "") {
  const std::string command = "env -u NCCL_RAS_ADDR " + environment + " " NITINOL_RAS_TOOL " " + arguments + " 2>&1";
  return run_command(command).second;
}

TEST(Ras, TheToolLooksWhereTheJobIsToldToListen) {
  const TemporaryFolder folder;
  const Port in_file;
  const Port elsewhere;
  const auto at = [](const Port& port) { return "nothing listens at localhost port " + std::to_string(port.number()); };
  const std::string text = "# NCCL_RAS_ADDR=a:1\n#\nNCCL_RAS_ADDRESS=b:2\nNCCL_RAS_ADDR=" + in_file.address() +
                           "\nNCCL_RAS_ADDR=c:3\nNCCL_DEBUG=WARN";
  const std::string file = "NCCL_CONF_FILE=" + folder.write("conf", text);
  EXPECT_TRUE(says(where_the_tool_looks(file), at(in_file)));
  EXPECT_TRUE(says(where_the_tool_looks(file + " NCCL_RAS_ADDR=" + elsewhere.address()), at(elsewhere)));
  EXPECT_TRUE(says(where_the_tool_looks(file, "-a " + elsewhere.address()), at(elsewhere)));
  EXPECT_TRUE(says(where_the_tool_looks(file, "-p " + std::to_string(elsewhere.number())), at(elsewhere)));
}

TEST(Ras, TheToolLooksAtTheSettingOnlyIfItIsNotToldOtherwise) {
  const Port nobody;
  const std::string port = "-p " + std::to_string(nobody.number());
  const std::string bad = "NCCL_RAS_ADDR=nonsense";
  const std::string objection = "the address in NCCL_RAS_ADDR, 'nonsense', is neither host:port nor";
  EXPECT_TRUE(says(where_the_tool_looks(bad), objection));
  EXPECT_TRUE(says(where_the_tool_looks(bad, port), objection)) << "at which host?";
  EXPECT_TRUE(says(where_the_tool_looks(bad, "--host localhost " + port), "nothing listens at localhost port"));
  EXPECT_TRUE(says(where_the_tool_looks(bad, "-a " + nobody.address()), "nothing listens at localhost port"));
}

TEST(Ras, TheToolSaysWhatIsWrong) {
  const Port nobody;
  const auto [status, text] = run_tool("-a " + nobody.address());
  EXPECT_EQ(status, 1);
  EXPECT_NE(text.find("nothing listens at localhost port"), std::string::npos) << text;
  for (const char* address : {"nonsense", "localhost:0", "localhost:65536", "localhost:+1", "[::1]:4294967297"}) {
    EXPECT_EQ(run_tool(std::string("-a ") + address).first, 2) << address;
  }
  EXPECT_EQ(run_tool("--format xml").first, 2);
  for (const char* both : {"--check --dump folder", "--check --format json", "--check -v", "--dump folder -v"}) {
    EXPECT_EQ(run_tool(both).first, 2) << both;
  }
  EXPECT_EQ(run_tool("--dump '' -a " + nobody.address()).first, 2);
  EXPECT_EQ(run_tool("--help").first, 0);
}

}  // namespace
}  // namespace nitinol::testing
