// Environment variables as users meet them: what they change, seen through the API.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "base/temporary_folder_testing.h"
#include "cluster.h"
#include "nccl.h"

namespace nitinol::testing {
namespace {

/// Runs the processes' body with variables that no other test sees.
std::string with(const std::map<std::string, std::string>& variables, int processes,
                 const std::function<void(int process, const ncclUniqueId& id)>& body) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  std::string wrong = run_processes(processes, body);
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  return wrong;
}

/// Throws unless ones add up to the number of ranks.
void must_add_up(ncclComm_t comm) {
  int ranks = 0;
  int value = 1;
  int* data = nullptr;
  EXPECT_CALL(ncclCommCount(comm, &ranks));
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), sizeof(int)));
  EXPECT_CALL(cudaMemcpy(data, &value, sizeof(int), cudaMemcpyHostToDevice));
  EXPECT_CALL(ncclAllReduce(data, data, 1, ncclInt, ncclSum, comm, nullptr));
  EXPECT_CALL(cudaStreamSynchronize(nullptr));
  EXPECT_CALL(cudaMemcpy(&value, data, sizeof(int), cudaMemcpyDeviceToHost));
  EXPECT_CALL(cudaFree(data));
  if (value != ranks) throw std::runtime_error("the sum is " + std::to_string(value));
}

TEST(Settings, PointersAreCheckedOnRequest) {
  const auto body = [](int, const ncclUniqueId& id) {
    ncclComm_t comm = nullptr;
    int* other = nullptr;
    int local = 0;
    EXPECT_CALL(cudaSetDevice(1));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&other), 64));
    EXPECT_CALL(cudaSetDevice(0));
    EXPECT_CALL(ncclCommInitRank(&comm, 1, id, 0));
    expect_refusal(ncclBcast(&local, 1, ncclInt, 0, comm, nullptr), ncclInvalidArgument,
                   "not a pointer that CUDA knows");
    expect_refusal(ncclBcast(other, 1, ncclInt, 0, comm, nullptr), ncclInvalidArgument, "lies on device 1");
    int* few = nullptr;
    int* many = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&few), 3 * sizeof(int)));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&many), 4 * sizeof(int)));
    expect_refusal(ncclAllReduce(many, few, 4, ncclInt, ncclSum, comm, nullptr), ncclInvalidArgument,
                   "recvbuff is to hold 16 bytes, its memory ends after 12");
    expect_refusal(ncclAllGather(many + 1, many, 4, ncclInt, comm, nullptr), ncclInvalidArgument,
                   "sendbuff is to hold 16 bytes, its memory ends after 12");
    EXPECT_CALL(ncclAllReduce(many + 1, few, 3, ncclInt, ncclSum, comm, nullptr));
    EXPECT_CALL(cudaStreamSynchronize(nullptr));
    must_add_up(comm);
    EXPECT_CALL(ncclCommDestroy(comm));
  };
  EXPECT_EQ("", with({{"NCCL_CHECK_POINTERS", "1"}}, 1, body));
  for (const char* word : {"DEBUG_LOCAL", "debug_local", "Debug_Global"}) {
    EXPECT_EQ("", with({{"NCCL_CHECK_MODE", word}}, 1, body)) << word;
  }
}

// Opening a FIFO would wait for a writer in the first call.
TEST(Settings, AFifoInPlaceOfTheConfigurationFileIsOneWarning) {
  const TemporaryFolder folder;
  const std::string fifo = folder.file("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ("", with({{"NCCL_CONF_FILE", fifo}, {"NCCL_DEBUG", "WARN"}, {"NCCL_DEBUG_FILE", folder.file("log")}}, 1,
                     [](int, const ncclUniqueId& id) {
                       for (int round = 0; round < 2; ++round) {
                         ncclComm_t comm = nullptr;
                         ncclUniqueId fresh = id;
                         if (round > 0) EXPECT_CALL(ncclGetUniqueId(&fresh));
                         EXPECT_CALL(ncclCommInitRank(&comm, 1, fresh, 0));
                         must_add_up(comm);
                         EXPECT_CALL(ncclCommDestroy(comm));
                       }
                     }));
  const std::string log = folder.read("log");
  const std::string warning =
      "NCCL WARN the configuration file " + fifo + " is a FIFO and is not read: it must be a regular file\n";
  EXPECT_NE(log.find(warning), std::string::npos) << log;
  EXPECT_EQ(log.find(fifo), log.rfind(fifo)) << log;
}

TEST(Settings, OfTheLogThatAreWrongAreTwoWarnings) {
  const TemporaryFolder folder;
  EXPECT_EQ("", with({{"NCCL_DEBUG", "INFO"},
                      {"NCCL_DEBUG_SUBSYS", "COL"},
                      {"NCCL_DEBUG_TIMESTAMP_LEVELS", "WARNING"},
                      {"NCCL_DEBUG_FILE", folder.file("log")}},
                     1, [](int, const ncclUniqueId& id) {
                       ncclComm_t comm = nullptr;
                       EXPECT_CALL(ncclCommInitRank(&comm, 1, id, 0));
                       EXPECT_CALL(ncclCommDestroy(comm));
                     }));
  const std::string log = folder.read("log");
  EXPECT_NE(log.find("NCCL WARN NCCL_DEBUG_SUBSYS=COL: there is no 'COL'"), std::string::npos) << log;
  EXPECT_NE(log.find("NCCL WARN NCCL_DEBUG_TIMESTAMP_LEVELS=WARNING: there is no 'WARNING'"), std::string::npos) << log;
}

TEST(Settings, BlockingOverridesTheConfiguration) {
  EXPECT_EQ("", with({{"NCCL_COMM_BLOCKING", "0"}}, 1, [](int, const ncclUniqueId& id) {
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.blocking = 1;
              ncclComm_t comm = nullptr;
              ncclResult_t state = ncclInProgress;
              if (ncclCommInitRankConfig(&comm, 1, id, 0, &config) != ncclInProgress)
                throw std::runtime_error("blocks");
              while (state == ncclInProgress) {
                EXPECT_CALL(ncclCommGetAsyncError(comm, &state));
                std::this_thread::yield();
              }
              must_add_up(comm);
              EXPECT_CALL(ncclCommDestroy(comm));
            }));
  EXPECT_EQ("", with({{"NCCL_COMM_BLOCKING", "1"}}, 1, [](int, const ncclUniqueId& id) {
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.blocking = 0;
              ncclComm_t comm = nullptr;
              EXPECT_CALL(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
              must_add_up(comm);
              EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

void make_add_up_and_destroy(int ranks, const ncclUniqueId& id, int rank) {
  ncclComm_t comm = nullptr;
  EXPECT_CALL(ncclCommInitRank(&comm, ranks, id, rank));
  must_add_up(comm);
  EXPECT_CALL(ncclCommDestroy(comm));
}

TEST(Settings, RanksShareADeviceUnlessThatIsRefused) {
  for (const bool refused : {false, true}) {
    EXPECT_EQ("", with({{"NCCL_MULTI_RANK_GPU_ENABLE", refused ? "0" : "1"}}, 2,
                       [refused](int process, const ncclUniqueId& id) {
                         EXPECT_CALL(cudaSetDevice(1));  // both the same
                         if (!refused) return make_add_up_and_destroy(2, id, process);
                         ncclComm_t comm = nullptr;
                         expect_refusal(ncclCommInitRank(&comm, 2, id, process), ncclInvalidUsage,
                                        "ranks 0 and 1 use one GPU, device 1 of host");
                       }));
  }
  EXPECT_EQ("", with({{"NCCL_MULTI_RANK_GPU_ENABLE", "0"}}, 2, [](int process, const ncclUniqueId& id) {
              EXPECT_CALL(cudaSetDevice(process));
              make_add_up_and_destroy(2, id, process);
            }));
}

TEST(Settings, WithoutSharedMemoryProcessesNeedGpusThatReachEachOther) {
  using Variables = std::map<std::string, std::string>;
  for (const Variables& reaching : {Variables{}, {{"NCCL_P2P_LEVEL", "NVL"}}, {{"NCCL_P2P_LEVEL", "3"}}}) {
    Variables variables = reaching;
    variables["NCCL_SHM_DISABLE"] = "1";
    EXPECT_EQ("",
              with(variables, 2, [](int process, const ncclUniqueId& id) { make_add_up_and_destroy(2, id, process); }));
  }
  for (const Variables& apart :
       {Variables{{"NCCL_P2P_DISABLE", "1"}}, {{"NCCL_P2P_LEVEL", "loc"}}, {{"NCCL_P2P_LEVEL", "0"}}}) {
    Variables variables = apart;
    variables["NCCL_SHM_DISABLE"] = "1";
    EXPECT_EQ("", with(variables, 2, [](int process, const ncclUniqueId& id) {
                ncclComm_t comm = nullptr;
                expect_refusal(ncclCommInitRank(&comm, 2, id, process), ncclInvalidUsage, "NCCL_SHM_DISABLE=1");
              }));
    variables.erase("NCCL_SHM_DISABLE");
    EXPECT_EQ("",
              with(variables, 2, [](int process, const ncclUniqueId& id) { make_add_up_and_destroy(2, id, process); }));
  }
  EXPECT_EQ("", with({{"NCCL_SHM_DISABLE", "1"}}, 1, [](int, const ncclUniqueId&) {
              ncclComm_t comms[2];
              EXPECT_CALL(ncclCommInitAll(comms, 2, nullptr));
              for (ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

size_t nodes_of_a_captured_sum(ncclComm_t comm) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  int* data = nullptr;
  size_t nodes = 0;
  EXPECT_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), sizeof(int)));
  EXPECT_CALL(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_CALL(ncclAllReduce(data, data, 1, ncclInt, ncclSum, comm, stream));
  EXPECT_CALL(cudaStreamEndCapture(stream, &graph));
  EXPECT_CALL(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_CALL(cudaGraphDestroy(graph));
  EXPECT_CALL(cudaFree(data));
  EXPECT_CALL(cudaStreamDestroy(stream));
  return nodes;
}

/// But for what waits for earlier launches, and what later ones wait for.
TEST(Settings, GraphsThatDoNotMixHoldOperationsAlone) {
  for (const auto& [mixing, nodes] : {std::pair("1", 3U), std::pair("0", 1U)}) {
    EXPECT_EQ("",
              with({{"NCCL_GRAPH_MIXING_SUPPORT", mixing}}, 2, [nodes = nodes](int process, const ncclUniqueId& id) {
                ncclComm_t comm = nullptr;
                EXPECT_CALL(cudaSetDevice(process));
                EXPECT_CALL(ncclCommInitRank(&comm, 2, id, process));
                must_add_up(comm);
                expect_that(nodes_of_a_captured_sum(comm) == nodes, "nodes");
                must_add_up(comm);
                EXPECT_CALL(ncclCommDestroy(comm));
              }));
  }
}

TEST(Settings, HostIdentityDecidesWhoSharesAHost) {
  const auto join = [](bool same, int process, const ncclUniqueId& id) {
    setenv("NCCL_HOSTID", same || process == 0 ? "one" : "another", 1);
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitRank(&comm, 2, id, process);
    if (!same) return expect_refusal(result, ncclInvalidUsage, "on different hosts");
    must_add_up(comm);
    EXPECT_CALL(ncclCommDestroy(comm));
  };
  EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) { join(true, process, id); }));
  EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) { join(false, process, id); }));
}

TEST(Settings, WindowsThatAreSwitchedOffAreNull) {
  EXPECT_EQ("", with({{"NCCL_WIN_ENABLE", "0"}}, 1, [](int, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              void* memory = nullptr;
              auto* window = reinterpret_cast<ncclWindow_t>(1);
              EXPECT_CALL(ncclCommInitRank(&comm, 1, id, 0));
              EXPECT_CALL(ncclMemAlloc(&memory, 4096));
              EXPECT_CALL(ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC));
              if (window != nullptr) throw std::runtime_error("there is a window");
              EXPECT_CALL(ncclCommWindowDeregister(comm, window));
              EXPECT_CALL(ncclMemFree(memory));
              EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

/// Mappings of memory that processes share.
long shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  long found = 0;
  for (std::string line; std::getline(maps, line);) found += line.find("/memfd:") != std::string::npos ? 1 : 0;
  return found;
}

TEST(Settings, MemoryOfPeersIsMappedAtFirstUseOrWhenTheCommunicatorIsMade) {
  for (const bool at_first_use : {true, false}) {
    EXPECT_EQ("", with({{"NCCL_RUNTIME_CONNECT", at_first_use ? "1" : "0"}}, 2, [&](int rank, const ncclUniqueId& id) {
                use_device_of(rank);
                void* first = nullptr;  // for which a virtual GPU maps its own memory
                EXPECT_CALL(cudaMalloc(&first, 64));
                ncclComm_t comm = nullptr;
                EXPECT_CALL(ncclCommInitRank(&comm, 2, id, rank));
                const long before = shared_mappings();
                must_add_up(comm);
                const bool has_more = shared_mappings() > before;
                expect_that(has_more == at_first_use, has_more ? "mapped at first use" : "nothing was mapped");
                EXPECT_CALL(ncclCommDestroy(comm));
                EXPECT_CALL(cudaFree(first));
              }));
  }
}

TEST(Settings, AnAlgorithmCanBeForcedAndOneThatCannotBeUsedIsAnError) {
  const auto works = [](int process, const ncclUniqueId& id) {
    ncclComm_t comm = nullptr;
    EXPECT_CALL(ncclCommInitRank(&comm, 3, id, process));
    must_add_up(comm);
    EXPECT_CALL(ncclCommDestroy(comm));
  };
  for (const char* list :
       {"Ring", "tree", "ONESHOT", "twoshot", "^ring", "broadcast:ring", "NVLS;allreduce:ring,nvls"}) {
    EXPECT_EQ("", with({{"NCCL_ALGO", list}}, 3, works)) << list;
  }
  EXPECT_EQ("", with({{"NCCL_ALGO", "NVLS"}}, 2, [](int process, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              int* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), sizeof(int)));
              EXPECT_CALL(ncclCommInitRank(&comm, 2, id, process));
              expect_refusal(ncclAllReduce(data, data, 1, ncclInt, ncclSum, comm, nullptr), ncclInvalidUsage,
                             "NCCL_ALGO");
              EXPECT_CALL(ncclCommAbort(comm));
            }));
  for (const char* list : {"ring,square", "allsum:ring", "allreduce:", ";;"}) {
    EXPECT_EQ("", with({{"NCCL_ALGO", list}}, 1,
                       [](int, const ncclUniqueId& id) {
                         ncclComm_t comm = nullptr;
                         expect_refusal(ncclCommInitRank(&comm, 1, id, 0), ncclInvalidUsage, "NCCL_ALGO");
                       }))
        << list;
  }
}

TEST(Settings, ThatMeanTheSameMayBeWrittenInAnotherWayOnEachRank) {
  for (const auto& [name, first, second] :
       std::initializer_list<std::array<const char*, 3>>{{"NCCL_ALGO", "ring", "Ring"},
                                                         {"NCCL_ALGO", "ring,tree", "TREE,ring"},
                                                         {"NCCL_PROTO", "simple", "Simple"},
                                                         {"NCCL_PROTO", "^LL", "LL128,simple"},
                                                         {"NCCL_P2P_LEVEL", "loc", "0"},
                                                         {"NCCL_P2P_LEVEL", "PXB", "2"},
                                                         {"NCCL_P2P_LEVEL", "Sys", "4"}}) {
    const char* const values[] = {first, second};
    EXPECT_EQ("", run_processes(2,
                                [&, variable = name](int process, const ncclUniqueId& id) {
                                  setenv(variable, values[process], 1);
                                  ncclComm_t comm = nullptr;
                                  EXPECT_CALL(ncclCommInitRank(&comm, 2, id, process));
                                  must_add_up(comm);
                                  EXPECT_CALL(ncclCommDestroy(comm));
                                }))
        << name << " " << first << " and " << second;
  }
}

TEST(Settings, OfProtocolsRuleNothingOutWhereThereIsOne) {
#if !defined(NITINOL_VGPU)
  GTEST_SKIP() << "GPUs have several";
#endif
  EXPECT_EQ("", with({{"NCCL_PROTO", "LL128"}}, 2,
                     [](int process, const ncclUniqueId& id) { make_add_up_and_destroy(2, id, process); }));
}

// 2^32 is 0 in 32 bits, which would be no new try at all.
TEST(Settings, CountsOfMoreThanThirtyTwoBitsAreTakenAsTheyAre) {
  const std::string port = std::to_string(20000 + getpid() % 12000);
  const auto body = [](int process, const ncclUniqueId&) {
    ncclUniqueId id;
    ncclComm_t comm = nullptr;
    EXPECT_CALL(ncclGetUniqueId(&id));
    if (process == 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the other finds nobody yet
    EXPECT_CALL(ncclCommInitRank(&comm, 2, id, process));
    must_add_up(comm);
    EXPECT_CALL(ncclCommDestroy(comm));
  };
  const std::map<std::string, std::string> variables = {
      {"NCCL_COMM_ID", "127.0.0.1:" + port}, {"NCCL_SOCKET_RETRY_CNT", "4294967296"}, {"NITINOL_INIT_TIMEOUT", "10"}};
  EXPECT_EQ("", with(variables, 2, body));
}

TEST(Settings, OfInterfacesMustMatchSomethingAndUnknownFamiliesAreIgnored) {
  EXPECT_EQ("", with({{"NCCL_SOCKET_FAMILY", "AF_APPLETALK"}}, 1, [](int, const ncclUniqueId&) {
              ncclUniqueId id;
              EXPECT_CALL(ncclGetUniqueId(&id));
            }));
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              setenv("NCCL_SOCKET_IFNAME", "=nosuchinterface", 1);
              ncclUniqueId id;
              expect_refusal(ncclGetUniqueId(&id), ncclInvalidUsage, "Bootstrap : no socket interface found");
            }));
}

}  // namespace
}  // namespace nitinol::testing
