// The flight recorder: what ranks dump while one of them is missing, and what the merging tool says of it.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "cluster.h"
#include "dumps.h"
#include "must_work.h"
#include "nccl.h"
#include "nitinol.h"
#include "observe.h"
#include "pipe.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

bool has_messages_to_begin(const Dump& dump) {
  const auto& events = dump["traceEvents"];
  return std::any_of(events.begin(), events.end(), [](const Dump& event) {
    return event["args"].contains("direction") && event["args"]["state"] == "issued";
  });
}

/// Once it is known whether the device is through with everything; for virtual GPUs once it has begun so many
/// collectives, too, and the messages that it awaits are known.
void dump_once(ncclComm_t comm, bool idle, int begins, const std::string& path) {
  dump_until(comm, path, [&](const Dump& dump) {
    const bool begun = !dump["timesKnown"] || dump["begun"] == begins;
    return dump["idle"] == idle && begun &&
           (!dump["timesKnown"] || !dump["awaited"].empty() || !has_messages_to_begin(dump));
  });
}

void reduce(float* data, size_t count, ncclComm_t comm, cudaStream_t stream) {
  EXPECT_CALL(ncclAllReduce(data, data, count, ncclFloat, ncclSum, comm, stream));
}

/// What rank 1 leaves out, on `comm` and in `stream`. Returns how many collectives begin.
using Calls = std::function<int(int rank, float* data, ncclComm_t comm, cudaStream_t stream)>;

/// What the merging tool says of three ranks that have reduced 5 elements, and of which all but rank 1 have made
/// `calls` then.
std::string said_without_calls_of_rank_1(const Calls& calls) {
  char folder[] = "/tmp/nitinol-dump-XXXXXX";
  if (mkdtemp(folder) == nullptr) return "mkdtemp";
  const auto path = [&](int rank) { return std::string(folder) + "/" + std::to_string(rank) + ".json"; };
  const std::string wrong = run_ranks({1, 1, 1}, [&](Rank& self) {
    ncclComm_t comm = nullptr;
    EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
    float* data = nullptr;
    float* other = nullptr;  // the operation that waits may still read its buffer
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&other), 4096));
    reduce(data, 5, comm, self.stream);
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
    const bool late = self.rank == 1;
    const int more = late ? 0 : calls(self.rank, data, comm, self.stream);
    dump_once(comm, late, 1 + more, path(self.rank));
    reduce(other, 1, self.comm, nullptr);  // all have dumped
    EXPECT_CALL(cudaStreamSynchronize(nullptr));
    EXPECT_CALL(ncclCommAbort(comm));
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
    EXPECT_CALL(cudaFree(data));
    EXPECT_CALL(cudaFree(other));
  });
  const std::string said =
      run_command("python3 " NITINOL_TRACE_TOOL " " + path(0) + " " + path(1) + " " + path(2)).second;
  for (int rank = 0; rank < 3; ++rank) unlink(path(rank).c_str());
  rmdir(folder);
  return wrong + said;
}

constexpr const char* kFinished =
    "has finished what it issued, at last AllReduce number 1 (count 5, type float32, op sum)";

#if defined(NITINOL_VGPU)
constexpr const char* kIsIn = "is in";
#else
constexpr const char* kIsIn = "has not ended";  // it is not known whether that has begun
#endif

void must_say_that_a_collective_waits() {
  const Calls calls = [](int, float* data, ncclComm_t comm, cudaStream_t stream) {
    reduce(data, 6, comm, stream);
    return 1;
  };
  EXPECT_EQ(said_without_calls_of_rank_1(calls),
            std::string("Ranks 0, 2 wait in AllReduce number 2 (count 6, type float32, op sum) for rank 1, which ") +
                kFinished + ".\n");
}

TEST(Dump, MergedSaysWhoWaitsForWhom) { must_say_that_a_collective_waits(); }

TEST(Dump, MergedSaysSoThoughRanksDoNotCompareCalls) {
  setenv("NITINOL_CHECK", "off", 1);
  must_say_that_a_collective_waits();
  unsetenv("NITINOL_CHECK");
}

TEST(Dump, MergedSaysWhoWaitsForAMessage) {
  const Calls calls = [](int rank, float* data, ncclComm_t comm, cudaStream_t stream) {
    if (rank == 0) EXPECT_CALL(ncclRecv(data, 7, ncclFloat, 1, comm, stream));
    if (rank == 2) reduce(data, 6, comm, stream);
    return rank == 2 ? 1 : 0;
  };
  EXPECT_EQ(said_without_calls_of_rank_1(calls),
            std::string("Rank 2 waits in AllReduce number 2 (count 6, type float32, op sum) for rank 0, which ") +
                kIsIn + " Recv number 1 from rank 1 (count 7, type float32), and rank 1, which " + kFinished +
                "; rank 0 waits in Recv number 1 from rank 1 (count 7, type float32) for rank 1, which has not issued "
                "the other end: it " +
                kFinished + ".\n");
}

#if defined(NITINOL_VGPU)
TEST(Dump, MergedSaysForWhomARankWaitsThatHasIssuedMoreThanIsKept) {
  const Calls calls = [](int, float* data, ncclComm_t comm, cudaStream_t stream) {
    for (int i = 0; i < 300; ++i) EXPECT_CALL(ncclRecv(data, 7, ncclFloat, 1, comm, stream));
    return 0;
  };
  const std::string waits =
      " waits in Recv number 1 from rank 1 (count 7, type float32) for rank 1, which has not "
      "issued the other end: it ";
  EXPECT_EQ(said_without_calls_of_rank_1(calls), "Rank 0" + waits + kFinished + "; rank 2" + waits + kFinished + ".\n");
}

void wait_for_one(void* count) { static_cast<SharedCount*>(count)->wait_for(1); }

/// What is said of two ranks of which rank 1 makes its call behind a function of the host that does not end.
std::string said_while_rank_1_is_held_up(const std::function<void(int rank, float*, ncclComm_t, cudaStream_t)>& call) {
  char folder[] = "/tmp/nitinol-dump-XXXXXX";
  if (mkdtemp(folder) == nullptr) return "mkdtemp";
  const auto path = [&](int rank) { return std::string(folder) + "/" + std::to_string(rank) + ".json"; };
  const std::string wrong = run_ranks({1, 1}, [&](Rank& self) {
    const bool held = self.rank == 1;
    SharedCount dumped;
    float* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
    ncclComm_t comm = nullptr;
    EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
    if (held) EXPECT_CALL(cudaLaunchHostFunc(self.stream, wait_for_one, &dumped));
    call(self.rank, data, comm, self.stream);
    dump_until(comm, path(self.rank), [&](const Dump& dump) {
      return dump["traceEvents"][0]["args"]["state"] == (held ? "issued" : "begun");
    });
    reduce(data + 512, 1, self.comm, nullptr);  // all have dumped
    EXPECT_CALL(cudaStreamSynchronize(nullptr));
    dumped.add();
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
    EXPECT_CALL(ncclCommDestroy(comm));
    EXPECT_CALL(cudaFree(data));
  });
  const std::string said = run_command(std::string("python3 " NITINOL_TRACE_TOOL " ") + folder).second;
  for (int rank = 0; rank < 2; ++rank) unlink(path(rank).c_str());
  rmdir(folder);
  return wrong + said;
}

TEST(Dump, MergedSaysWhatHasNotBegun) {
  EXPECT_EQ(said_while_rank_1_is_held_up(
                [](int, float* data, ncclComm_t comm, cudaStream_t stream) { reduce(data, 5, comm, stream); }),
            "Rank 0 waits in AllReduce number 1 (count 5, type float32, op sum) for rank 1, which has issued AllReduce "
            "number 1 (count 5, type float32, op sum), but it has not begun.\n");
  EXPECT_EQ(said_while_rank_1_is_held_up([](int rank, float* data, ncclComm_t comm, cudaStream_t stream) {
              if (rank == 0) EXPECT_CALL(ncclRecv(data, 7, ncclFloat, 1, comm, stream));
              if (rank == 1) EXPECT_CALL(ncclSend(data, 7, ncclFloat, 0, comm, stream));
            }),
            "Rank 0 waits in Recv number 1 from rank 1 (count 7, type float32) for rank 1, which has issued the other "
            "end, but it has not begun.\n");
}
#endif

TEST(Dump, MergedSaysWhoWaitsForACallInAGraph) {
  const Calls calls = [](int, float* data, ncclComm_t comm, cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    EXPECT_CALL(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    reduce(data, 6, comm, stream);
    EXPECT_CALL(cudaStreamEndCapture(stream, &graph));
    EXPECT_CALL(cudaGraphInstantiate(&executable, graph, 0));
    EXPECT_CALL(cudaGraphLaunch(executable, stream));
    EXPECT_CALL(cudaGraphExecDestroy(executable));
    EXPECT_CALL(cudaGraphDestroy(graph));
    return 1;
  };
#if defined(NITINOL_VGPU)
  const std::string expected =
      std::string("Ranks 0, 2 wait in AllReduce number 2 (count 6, type float32, op sum) for rank 1, which ") +
      kFinished + ".\n";
#else
  const std::string expected =
      "How far ranks 0, 2 have come is not known, as launches of graphs are not counted (ranks 0, 2).\n";
#endif
  EXPECT_EQ(said_without_calls_of_rank_1(calls), expected);
}

/// Of a call that a failure has ended.
void must_not_have_ended(const Dump& dump, const std::string& name) {
  for (const auto& event : dump["traceEvents"]) {
    const std::string state = event["args"]["state"];
    if (event["name"].get<std::string>().rfind(name, 0) != 0) continue;
    if (state == "issued" || state == "unknown") return;
    throw std::runtime_error(std::string(name).append(": ").append(state));
  }
  throw std::runtime_error("no " + name);
}

TEST(Dump, WhatAFailureEndsIsNotSaidToHaveEnded) {
  const SharedCount issued;
  EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              EXPECT_CALL(ncclCommInitRank(&comm, 2, id, process));
              reduce(data, 5, comm, nullptr);
              EXPECT_CALL(cudaDeviceSynchronize());
              if (process == 0) {
                EXPECT_CALL(ncclRecv(data, 7, ncclFloat, 1, comm, nullptr));
                reduce(data, 6, comm, nullptr);
                issued.add();
                static_cast<void>(wait_for_failure(comm));
                EXPECT_CALL(cudaDeviceSynchronize());  // nothing runs any more
                const std::string path = "/tmp/dump-of-a-failure-" + std::to_string(getpid());
                EXPECT_CALL(nitinolCommDump(comm, path.c_str()));
                std::ifstream file(path);
                const auto dump = Dump::parse(file);
                unlink(path.c_str());
                if (dump["idle"] == true) throw std::runtime_error("idle");
                must_not_have_ended(dump, "Recv number 1");
                must_not_have_ended(dump, "AllReduce number 2");
              }
              issued.wait_for(1);
              EXPECT_CALL(ncclCommAbort(comm));
              EXPECT_CALL(cudaFree(data));
            }));
}

/// Rank 0 uses the communicator for the first time while rank 1's process is stopped.
TEST(Dump, MergedSaysWhatIsInSetup) {
  const TemporaryFolder folder;
  const Pipe victims;
  const auto path = [&](int rank) { return folder.file(std::to_string(rank) + ".json"); };
  EXPECT_EQ("", run_ranks({1, 1}, [&](Rank& self) {
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              EXPECT_CALL(nitinolCommDump(self.comm, path(self.rank).c_str()));
              if (self.rank == 1) {
                const pid_t mine = getpid();
                victims.put(&mine, sizeof(mine));
                raise(SIGSTOP);
                reduce(data, 5, self.comm, self.stream);
              } else {
                pid_t victim = 0;
                expect_that(victims.get(&victim, sizeof(victim)), "the victim is silent");
                while (!is_stopped(victim)) usleep(1000);
                std::thread caller([&] {
                  static_cast<void>(ncclAllReduce(data, data, 5, ncclFloat, ncclSum, self.comm, self.stream));
                });
                dump_until(self.comm, path(0), is_setting_up);
                kill(victim, SIGCONT);
                caller.join();
              }
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              EXPECT_CALL(cudaFree(data));
            }));
  EXPECT_EQ(run_command("python3 " NITINOL_TRACE_TOOL " " + path(0) + " " + path(1)).second,
            "Rank 0 is still setting up AllReduce number 1 (count 5, type float32, op sum).\n");
}

TEST(Dump, ArgumentsThatAreWrongAreRefused) {
  EXPECT_EQ("", run_ranks({1}, [](Rank& self) {
              if (nitinolCommDump(self.comm, nullptr) != ncclInvalidArgument) throw std::runtime_error("NULL");
              if (nitinolCommDump(self.comm, "/nowhere/at/all") != ncclSystemError) throw std::runtime_error("nowhere");
            }));
}

/// The events of one kind that a dump has of a collective.
std::vector<nlohmann::json> events_of(const nlohmann::json& dump, const std::string& kind, int number) {
  std::vector<nlohmann::json> found;
  for (const auto& event : dump["traceEvents"]) {
    if (event["ph"] == kind && event["args"]["number"] == number) found.push_back(event);
  }
  return found;
}

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

TEST(Dump, HasPlansAndTimes) {
#if !defined(NITINOL_VGPU)
  GTEST_SKIP() << "the executor for GPUs does not tell how far it has come";
#endif
  char folder[] = "/tmp/nitinol-dump-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  EXPECT_EQ("", run_ranks({1, 1}, [&](Rank& self) {
              const std::string path = std::string(folder) + "/" + std::to_string(self.rank) + ".json";
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              for (size_t count = 1; count <= 3; ++count) {
                EXPECT_CALL(ncclAllReduce(data, data, count, ncclFloat, ncclSum, self.comm, self.stream));
              }
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              EXPECT_CALL(nitinolCommDump(self.comm, path.c_str()));
              std::ifstream file(path);
              const auto dump = nlohmann::json::parse(file);
              double last = 0;
              for (int number = 1; number <= 3; ++number) {
                const auto issued = events_of(dump, "i", number);
                const auto ran = events_of(dump, "X", number);
                require(issued.size() == 1 && ran.size() == 1, "each is told once as issued and once as it ran");
                const auto& about = issued[0]["args"];
                require(about["algorithm"] == "OneShot" && about["protocol"] == "Simple" && about["channels"] == 1 &&
                            about["chunk"] > 0,
                        "the plan");
                require(about["state"] == "ended" && ran[0]["name"] == issued[0]["name"], "the name");
                require(about["started"] == ran[0]["ts"] && about["finished"] >= about["started"], "the times");
                require(ran[0]["ts"] >= last, "the order");
                last = ran[0]["ts"].get<double>() + ran[0]["dur"].get<double>() - 1;  // as they are rounded
              }
              const std::string text_path = path + ".txt";
              EXPECT_CALL(nitinolCommDump(self.comm, text_path.c_str()));
              std::ifstream lines(text_path);
              std::string first;
              std::getline(lines, first);
              require(first.rfind("Rank " + std::to_string(self.rank) + " of 2", 0) == 0, "the text");
              unlink(text_path.c_str());
              EXPECT_CALL(cudaFree(data));
            }));
  const std::string merged = std::string(folder) + "/merged";
  const std::string said = run_command("python3 " NITINOL_TRACE_TOOL " -o " + merged + " " + folder).second;
  EXPECT_EQ(said, "All ranks have finished what they issued (3 collectives).\n");
  std::ifstream file(merged);
  EXPECT_EQ(nlohmann::json::parse(file)["traceEvents"].size(), 12U);  // of two ranks: three issued, three that ran
  const std::string to_nobody =
      "{ ( sleep 0.2; python3 " NITINOL_TRACE_TOOL " " + std::string(folder) + " 2>&3 ) | :; } 3>&1";
  EXPECT_EQ(run_command(to_nobody).second, "") << "nobody reads what it says";
  for (const char* name : {"/0.json", "/1.json", "/merged"}) unlink((std::string(folder) + name).c_str());
  rmdir(folder);
}

}  // namespace
}  // namespace nitinol::testing
