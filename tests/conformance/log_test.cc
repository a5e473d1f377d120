// What the library writes about itself when NCCL_DEBUG asks for it, as scripts that read logs expect it.
#include <gtest/gtest.h>
#include <regex.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "cluster.h"
#include "nccl.h"

namespace nitinol::testing {
namespace {

/// What a process with so many ranks logs while they run `body`.
std::string log_during(const char* level, const char* subsystems, const std::function<std::string()>& run) {
  const int file = memfd_create("log", 0);
  const std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file);
  setenv("NCCL_DEBUG", level, 1);
  setenv("NCCL_DEBUG_SUBSYS", subsystems, 1);
  setenv("NCCL_DEBUG_FILE", path.c_str(), 1);
  EXPECT_EQ("", run());
  for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"}) unsetenv(name);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 0; (got = pread(file, buffer, sizeof(buffer), static_cast<off_t>(text.size()))) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  close(file);
  return text;
}

std::string log_of(int ranks, const char* level, const char* subsystems, const std::function<void(Rank&)>& body) {
  return log_during(level, subsystems, [&] { return run_ranks({ranks}, body); });
}

/// Dots match no line's end.
bool has(const std::string& log, const char* pattern) {
  regex_t expression;
  if (regcomp(&expression, pattern, REG_EXTENDED | REG_NEWLINE | REG_NOSUB) != 0) throw std::logic_error(pattern);
  const bool found = regexec(&expression, log.c_str(), 0, nullptr, 0) == 0;
  regfree(&expression);
  return found;
}

TEST(Log, LinesNameTheDeviceOfTheirThread) {
  const std::string log = log_of(3, "INFO", "INIT,COLL", [](Rank& self) {
    int* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 64));
    EXPECT_CALL(ncclAllReduce(data, data, 7, ncclInt, ncclMax, self.comm, self.stream));
    expect_that(ncclAllReduce(data, data, 7, ncclInt, ncclMax, nullptr, self.stream) == ncclInvalidArgument, "no comm");
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
  });
  for (const std::string device : {"0", "1", "2"}) {
    const std::string info = "\\[" + device + "\\] NCCL INFO ";
    std::string made = info;
    made.append(".*comm .* rank ")
        .append(device)
        .append(" nranks 3 cudaDev ")
        .append(device)
        .append(" .*Init COMPLETE");
    EXPECT_TRUE(has(log, made.c_str())) << log;
    EXPECT_TRUE(has(log, (info + "AllReduce: ").c_str())) << log;
    EXPECT_TRUE(has(log, ("\\[" + device + "\\] .* NCCL WARN ").c_str())) << log;
  }
}

/// Which of them count is to be known.
TEST(Log, TellsRanksWhoseSettingsAreNotThoseOfAll) {
  const std::string log = log_of(2, "WARN", "ALL", [](Rank& self) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.maxCTAs = 2 + self.rank;
    ncclComm_t child = nullptr;
    EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &child, &config));
    EXPECT_CALL(ncclCommDestroy(child));
  });
  EXPECT_TRUE(has(log, "NCCL WARN rank 1: not all ranks have the same settings, .*not as set: at most 2 CTAs$")) << log;
  EXPECT_FALSE(has(log, "rank 0: not all ranks")) << log;
}

/// A thread of the library's own sees it, for all ranks of a process.
TEST(Log, AFailureIsToldOnceWithTheDeviceOfItsRank) {
  const std::string log = log_of(3, "WARN", "ALL", [](Rank& self) {
    int* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 64));
    const size_t count = self.rank == 1 ? 8 : 7;
    static_cast<void>(ncclAllReduce(data, data, count, ncclInt, ncclMax, self.comm, self.stream));  // others fail first
    while (state_of(self.comm) == ncclSuccess) std::this_thread::yield();
  });
  for (const std::string rank : {"0", "1", "2"}) {
    std::string line = " \\[";
    line.append(rank).append("\\] [a-z_.]*:[0-9]+ NCCL WARN rank ").append(rank).append(": ");
    EXPECT_TRUE(has(log, line.c_str())) << log;
    line.append("rank ").append(rank).append(": ");
    EXPECT_FALSE(has(log, line.c_str())) << log;
  }
}

TEST(Log, FieldsOfAConfigurationThatDoNothingAreTold) {
  const std::string log = log_of(1, "INFO", "INIT", [](Rank& self) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.nvlsCTAs = 4;
    config.netName = "Socket";
    config.minCTAs = 2;
    ncclComm_t child = nullptr;
    EXPECT_CALL(ncclCommSplit(self.comm, 0, 0, &child, &config));
    EXPECT_CALL(ncclCommDestroy(child));
  });
  EXPECT_TRUE(has(log, "NCCL INFO ncclConfig_t: nvlsCTAs is set but has no effect")) << log;
  EXPECT_TRUE(has(log, "NCCL INFO ncclConfig_t: netName is set but has no effect")) << log;
  EXPECT_FALSE(has(log, "(minCTAs|trafficClass) is set but")) << log;
}

TEST(Log, RanksThatShareAGpuAreTold) {
  const auto nothing = [](Rank&) {};
  setenv("NITINOL_VGPUS", "2", 1);
  const std::string log = log_of(3, "INFO", "INIT", nothing);
  unsetenv("NITINOL_VGPUS");
  EXPECT_TRUE(has(log, "NCCL INFO ranks 0 and 2 use one GPU, device 0 of host .*, and share its speed")) << log;
  EXPECT_FALSE(has(log, "ranks 0 and 1 use one GPU")) << log;
}

TEST(Log, RanksThatShareAGpuThoughThereAreOthersAreAskedWhetherTheyMeanTo) {
  const auto share = [] {
    return run_processes(2, [](int process, const ncclUniqueId& id) {
      EXPECT_CALL(cudaSetDevice(1));  // of several
      ncclComm_t comm = nullptr;
      EXPECT_CALL(ncclCommInitRank(&comm, 2, id, process));
      EXPECT_CALL(ncclCommDestroy(comm));
    });
  };
  constexpr const char* kQuestion = "NCCL WARN ranks 0 and 1 use one GPU, device 1 of host .*does each rank call";
  EXPECT_TRUE(has(log_during("WARN", "INIT", share), kQuestion));
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  const std::string log = log_during("WARN", "INIT", share);
  unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  EXPECT_FALSE(has(log, "use one GPU")) << log;
}

TEST(Log, PathsAreToldToWhoAsksForThem) {
  constexpr const char* kPath = "Channel 00/0 : 0\\[0\\] -> 1\\[1\\] via P2P/direct pointer";
  for (const char* const subsystem : {"P2P", "INIT"}) {
    EXPECT_TRUE(has(log_of(2, "INFO", subsystem, [](Rank&) {}), kPath)) << subsystem;
  }
  EXPECT_FALSE(has(log_of(2, "INFO", "SHM,COLL", [](Rank&) {}), "Channel 00/0"));
}

TEST(Log, TracesCallsAtLevelTrace) {
  const std::string log = log_of(1, "TRACE", "CALL", [](Rank& self) {
    int* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 64));
    EXPECT_CALL(ncclGroupStart());
    EXPECT_CALL(ncclAllReduce(data, data, 7, ncclInt, ncclMax, self.comm, self.stream));
    EXPECT_CALL(ncclSend(data, 3, ncclInt8, 0, self.comm, self.stream));
    EXPECT_CALL(ncclRecv(data + 8, 3, ncclInt8, 0, self.comm, self.stream));
    EXPECT_CALL(ncclGroupEnd());
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
  });
  EXPECT_TRUE(has(log, " NCCL CALL ncclGroupStart\\(\\)\n")) << log;
  EXPECT_TRUE(has(log,
                  " NCCL CALL ncclAllReduce\\(sendbuff 0x[0-9a-f]+, recvbuff 0x[0-9a-f]+, count 7, datatype 2, "
                  "op 2, root 0, comm 0x[0-9a-f]+, stream 0x[0-9a-f]+\\)\n"))
      << log;
  EXPECT_TRUE(has(log, " NCCL CALL ncclSend\\(buffer 0x[0-9a-f]+, count 3, datatype 0, peer 0, ")) << log;
  EXPECT_TRUE(has(log, " NCCL CALL ncclRecv\\(")) << log;
  EXPECT_TRUE(has(log, " NCCL CALL ncclCommInitRank")) << log;
  EXPECT_TRUE(has(log, " NCCL CALL ncclCommDestroy\\(")) << log;
  EXPECT_FALSE(has(log, "NCCL INFO")) << log;
}

/// In the form of a collective's also those of messages. A communicator is the same in all lines.
TEST(Log, TellsOfEachOperation) {
  const std::string log = log_of(1, "INFO", "INIT,COLL", [](Rank& self) {
    int* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 64));
    EXPECT_CALL(ncclReduce(data, nullptr, 0, ncclInt, ncclMax, 0, self.comm, nullptr));
    EXPECT_CALL(ncclGroupStart());
    EXPECT_CALL(ncclSend(data, 3, ncclInt8, 0, self.comm, self.stream));
    EXPECT_CALL(ncclRecv(data + 8, 3, ncclInt8, 0, self.comm, self.stream));
    EXPECT_CALL(ncclGroupEnd());
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
  });
  const size_t at = log.find(" comm 0x");
  ASSERT_NE(at, std::string::npos) << log;
  const std::string comm = log.substr(at, log.find(' ', at + 8) - at);
  const std::string reduce =
      "NCCL INFO Reduce: opCount 0 sendbuff 0x[0-9a-f]+ recvbuff \\(nil\\) count 0 datatype 2 op 2 root 0" + comm +
      " \\[nranks=1\\] stream \\(nil\\)\n";
  EXPECT_TRUE(has(log, reduce.c_str())) << log;
  for (const std::string call : {"Send: opCount 1", "Recv: opCount 2"}) {
    std::string line = "NCCL INFO ";
    line.append(call).append(" sendbuff \\(nil\\) recvbuff 0x[0-9a-f]+ count 3 datatype 0 op 0 root 0").append(comm);
    line.append(" \\[nranks=1\\] stream 0x[0-9a-f]+\n");
    EXPECT_TRUE(has(log, line.c_str())) << log;
  }
}

TEST(Log, AWarningNamesThePlaceWhereTheErrorCameUp) {
  const std::string log = log_of(1, "WARN", "", [](Rank& self) {
    int number = 0;
    if (ncclBcast(&number, 1, ncclInt, 5, self.comm, self.stream) != ncclInvalidArgument) {
      throw std::runtime_error("took root 5");
    }
  });
  EXPECT_TRUE(has(log, "\n\n.* \\[[0-9]+\\] operations\\.cc:[0-9]+ NCCL WARN Broadcast : invalid root 5")) << log;
  EXPECT_TRUE(has(log, "NCCL version 2\\.28\\.9\\+cuda[0-9.]+ ")) << log;
}

TEST(Log, TellsAtInfoWhatIsReturnedForAnError) {
  const std::string log = log_of(1, "INFO", "COLL", [](Rank& self) {
    int number = 0;
    expect_that(ncclBcast(&number, 1, ncclInt, 5, self.comm, self.stream) == ncclInvalidArgument, "took root 5");
  });
  EXPECT_TRUE(has(log, " NCCL INFO operations\\.cc:[0-9]+ -> 4$")) << log;
}

TEST(Log, SaysWhenACommunicatorIsCompleteAndWhatItIsCalled) {
  const std::string log = log_of(1, "INFO", "INIT", [](Rank& self) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.commName = "experts";
    ncclComm_t named = nullptr;
    EXPECT_CALL(ncclCommSplit(self.comm, 0, 0, &named, &config));
    EXPECT_CALL(ncclCommDestroy(named));
  });
  for (const std::string step : {"START\n", "COMPLETE\n"}) {
    const std::string place =
        " comm 0x[0-9a-f]+ rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId [0-9a-f]+ commId 0x[0-9a-f]{16}";
    std::string first = "NCCL INFO ncclCommInitRank[A-Za-z]*";
    first.append(place).append(" - Init ").append(step);
    std::string named = "NCCL INFO ncclCommSplit";
    named.append(place).append(" commName experts - Init ").append(step);
    EXPECT_TRUE(has(log, first.c_str())) << log;
    EXPECT_TRUE(has(log, named.c_str())) << log;
  }
  EXPECT_TRUE(has(log, "\\[0\\] NCCL INFO NCCL version 2\\.28\\.9\\+cuda[0-9.]+ \\(Nitinol\\)\n")) << log;
}

TEST(Log, SaysWhetherACommunicatorWasDestroyedOrAborted) {
  const auto end_by = [](ncclResult_t (*end)(ncclComm_t), const char* subsystem) {
    return log_of(1, "INFO", subsystem, [end](Rank& self) {
      ncclComm_t child = nullptr;
      EXPECT_CALL(ncclCommSplit(self.comm, 0, 0, &child, nullptr));
      EXPECT_CALL(end(child));
    });
  };
  constexpr const char* kDestroyed =
      "NCCL INFO comm 0x[0-9a-f]+ rank 0 nranks 1 cudaDev 0 busId [0-9a-f]+ - Destroy COMPLETE\n";
  constexpr const char* kAborted =
      "NCCL INFO comm 0x[0-9a-f]+ rank 0 nranks 1 cudaDev 0 busId [0-9a-f]+ - Abort COMPLETE\n";
  for (const char* const subsystem : {"INIT", "DESTROY"}) {
    EXPECT_TRUE(has(end_by(&ncclCommAbort, subsystem), kAborted)) << subsystem;
    const std::string log = end_by(&ncclCommDestroy, subsystem);
    EXPECT_TRUE(has(log, kDestroyed)) << log;
    EXPECT_FALSE(has(log, kAborted)) << log;
  }
}

TEST(Log, TellsOfMemoryAndRegistrationsToWhoAsksForThem) {
  const auto body = [](Rank& self) {
    void* data = nullptr;
    void* handle = nullptr;
    EXPECT_CALL(ncclMemAlloc(&data, 4000));
    EXPECT_CALL(ncclCommRegister(self.comm, data, 4000, &handle));
    EXPECT_CALL(ncclCommDeregister(self.comm, handle));
    EXPECT_CALL(ncclMemFree(data));
  };
  EXPECT_TRUE(has(log_of(1, "INFO", "ALLOC", body), "NCCL INFO ncclMemAlloc: 4000 bytes at 0x[0-9a-f]+\n"));
  const std::string log = log_of(1, "INFO", "REG", body);
  EXPECT_TRUE(has(log, "NCCL INFO rank 0: buffer 0x[0-9a-f]+ of 4000 bytes is registered as 0x[0-9a-f]+\n")) << log;
  EXPECT_TRUE(has(log, "NCCL INFO rank 0: 0x[0-9a-f]+ is not registered any more\n")) << log;
  EXPECT_FALSE(has(log, "ncclMemAlloc")) << log;
}

TEST(Log, WarnsOfCallsThatAreDropped) {
  const std::string log = log_of(1, "WARN", "", [](Rank& self) {
    int* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 64));
    ncclComm_t child = nullptr;
    EXPECT_CALL(ncclCommSplit(self.comm, 0, 0, &child, nullptr));
    EXPECT_CALL(ncclGroupStart());
    EXPECT_CALL(ncclAllReduce(data, data, 7, ncclInt, ncclMax, child, self.stream));
    EXPECT_CALL(ncclCommDestroy(child));
    static_cast<void>(ncclGroupEnd());
    const auto comms = make_non_blocking(2);
    ncclComm_t alone = nullptr;
    const ncclResult_t called = ncclCommSplit(comms[0], 0, 0, &alone, nullptr);  // waits for rank 1
    expect_that(ncclAllReduce(data, data, 7, ncclInt, ncclMax, alone, self.stream) == ncclInProgress, "not ready");
    for (const ncclComm_t comm : {comms[0], alone, comms[1]}) EXPECT_CALL(ncclCommAbort(comm));
    static_cast<void>(called);
  });
  EXPECT_TRUE(has(log, "NCCL WARN ncclCommDestroy: what the open group has recorded .* is not carried out")) << log;
  EXPECT_TRUE(has(log, "NCCL WARN AllReduce: .* still being initialised: the call is not carried out")) << log;
}

TEST(Log, SaysWhoseNewCommunicatorHasFailedBeforeItHadARankInIt) {
  const std::string log = log_of(1, "WARN", "", [](Rank&) {
    const auto comms = make_non_blocking(2);
    ncclComm_t child = nullptr;
    const ncclResult_t called = ncclCommSplit(comms[1], 0, 0, &child, nullptr);
    expect_that(called == ncclInProgress, "the split waits for rank 0");
    EXPECT_CALL(ncclCommAbort(comms[0]));
    expect_that(settled(called, child) == ncclRemoteError, "a child of one rank that has gone");
    EXPECT_CALL(ncclCommAbort(child));
    EXPECT_CALL(ncclCommAbort(comms[1]));
  });
  EXPECT_TRUE(has(log, "NCCL WARN the new communicator of rank 1 of the old one: rank 0 ")) << log;
  EXPECT_FALSE(has(log, "rank -1")) << log;
}

TEST(Log, SaysOverWhichInterfaceAndWhichWayRanksMeet) {
  const std::string log = log_of(3, "INFO", "INIT,BOOTSTRAP", [](Rank&) {});
  EXPECT_TRUE(has(log, "NCCL INFO Bootstrap: Using [^ :]+:[^ ]+\n")) << log;
  EXPECT_TRUE(has(log, "NCCL INFO Channel 00/0 : 0\\[0\\] -> 1\\[[0-9]+\\] via P2P/direct pointer\n")) << log;
  EXPECT_TRUE(has(log, "NCCL INFO Channel 00/0 : 2\\[[0-9]+\\] -> 0\\[0\\] via P2P/direct pointer\n")) << log;
}

TEST(Log, SaysHowACollectiveIsCarriedOut) {
  setenv("NCCL_ALGO", "Ring", 1);
  const std::string log = log_of(2, "INFO", "TUNING", [](Rank& self) {
    int* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 64));
    EXPECT_CALL(ncclAllReduce(data, data, 7, ncclInt, ncclSum, self.comm, self.stream));
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
  });
  unsetenv("NCCL_ALGO");
  EXPECT_TRUE(
      has(log, "NCCL INFO AllReduce: 28 Bytes -> Algo Ring proto [A-Za-z0-9]+ channel\\{Lo..Hi\\}=\\{0..[0-9]+\\}"))
      << log;
}

}  // namespace
}  // namespace nitinol::testing
