// How communicators begin and end: every way to make one, several at a time, splits, and every order of leaving.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <ostream>
#include <thread>
#include <vector>

#include "cluster.h"
#include "devices.h"
#include "must_work.h"
#include "nccl.h"
#include "scarcity.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

/// Runs body(i) in `count` threads; throws what one of them threw.
void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::string failures;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      try {
        body(i);
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        failures += "thread " + std::to_string(i) + ": " + error.what() + "\n";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!failures.empty()) throw std::runtime_error(failures);
}

TEST(Lifecycle, AThreadMayDestroyItsRanksOneAfterTheOther) {
  if (devices_here() < 6) GTEST_SKIP() << "names six devices";
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              ncclComm_t comms[4];
              for (int round = 0; round < 3; ++round) {
                const int devices[] = {3, 0, 0, 5};
                EXPECT_CALL(ncclCommInitAll(comms, 4, devices));
                int device = -1;
                EXPECT_CALL(ncclCommCuDevice(comms[0], &device));
                if (device != 3) throw std::runtime_error("rank 0 is not on device 3");
                EXPECT_CALL(cudaGetDevice(&device));
                if (device != 0) throw std::runtime_error("the current device was changed");
                for (ncclComm_t comm : comms) EXPECT_CALL(ncclCommFinalize(comm));
                for (ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
              }
              EXPECT_CALL(ncclCommInitAll(comms, 4, nullptr));
              for (ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
              EXPECT_CALL(ncclCommInitAll(comms, 2, nullptr));
              for (int i : {1, 0}) EXPECT_CALL(ncclCommAbort(comms[i]));
            }));
}

TEST(Lifecycle, AfterFinalizeOnlyDestroyingIsAllowed) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              ncclComm_t second = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, 0, &second, nullptr));
              must_work(second, self.stream);
              EXPECT_CALL(ncclCommFinalize(second));
              int number = 0;
              if (ncclAllReduce(&number, &number, 1, ncclInt, ncclSum, second, self.stream) == ncclSuccess) {
                throw std::runtime_error("an operation was accepted after finalize");
              }
              if (ncclCommFinalize(second) != ncclInvalidArgument) throw std::runtime_error("finalized twice");
              EXPECT_CALL(ncclCommDestroy(second));
            }));
}

TEST(Lifecycle, AfterFinalizeInAGroupNothingElseIsAllowedInIt) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              ncclComm_t none = nullptr;
              EXPECT_CALL(ncclCommInitRank(&comm, 1, id, 0));
              const auto finalize = [&] { return ncclCommFinalize(comm); };
              const auto split = [&] { return ncclCommSplit(comm, 0, 0, &none, nullptr); };
              const auto revoke = [&] { return ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT); };
              for (const std::function<ncclResult_t()>& call :
                   std::vector<std::function<ncclResult_t()>>{finalize, split, revoke}) {
                EXPECT_CALL(ncclGroupStart());
                EXPECT_CALL(ncclCommFinalize(comm));
                expect_that(call() == ncclInvalidArgument, "the call after it");
                expect_that(ncclGroupEnd() == ncclInvalidArgument, "the group");
                must_work(comm, nullptr);  // an invalid argument changes nothing
              }
              EXPECT_CALL(ncclCommFinalize(comm));
              EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(Lifecycle, ChildrenThatShareAreRefusedAnotherNetwork) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.splitShare = 1;
              ncclComm_t parent = nullptr;
              EXPECT_CALL(ncclCommInitRankConfig(&parent, 1, id, 0, &config));
              ncclConfig_t other = NCCL_CONFIG_INITIALIZER;
              other.netName = "IB";
              ncclComm_t child = nullptr;
              if (ncclCommSplit(parent, 0, 0, &child, &other) != ncclInvalidUsage || child != nullptr) {
                throw std::runtime_error("a child that shares has another network");
              }
              EXPECT_CALL(ncclCommSplit(parent, 0, 0, &child, nullptr));
              must_work(child, nullptr);
              must_work(parent, nullptr);
              EXPECT_CALL(ncclCommDestroy(child));
              EXPECT_CALL(ncclCommDestroy(parent));
            }));
}

TEST(Lifecycle, SplitOrdersByKeyAndLeavesOutWhoAsksForIt) {
  EXPECT_EQ("", run_ranks({2, 3, 1}, [](Rank& self) {
              const int color = self.rank == 4 ? NCCL_SPLIT_NOCOLOR : self.rank % 2;
              ncclComm_t part = reinterpret_cast<ncclComm_t>(1);
              EXPECT_CALL(ncclCommSplit(self.comm, color, -self.rank, &part, nullptr));
              if (self.rank == 4) {
                if (part != nullptr) throw std::runtime_error("a rank without a color got a communicator");
                must_work(self.comm, self.stream);
                return;
              }
              int rank = -1;
              EXPECT_CALL(ncclCommUserRank(part, &rank));
              const int wanted[] = {1, 2, 0, 1, -1, 0};  // ranks 2, 0 and 5, 3, 1
              if (rank != wanted[self.rank]) throw std::runtime_error("rank " + std::to_string(rank) + " in the part");
              must_work(part, self.stream);
              must_work(self.comm, self.stream);
              EXPECT_CALL(ncclCommDestroy(part));
            }));
}

TEST(Lifecycle, ASplitOutlivesItsParent) {
  EXPECT_EQ("", run_processes(2, [](int process, const ncclUniqueId& id) {
              ncclComm_t parent = nullptr;
              ncclComm_t child = nullptr;
              cudaStream_t stream = nullptr;
              EXPECT_CALL(cudaStreamCreate(&stream));
              EXPECT_CALL(ncclCommInitRank(&parent, 2, id, process));
              EXPECT_CALL(ncclCommSplit(parent, 7, process, &child, nullptr));
              EXPECT_CALL(ncclCommDestroy(parent));
              must_work(child, stream);
              EXPECT_CALL(ncclCommDestroy(child));
            }));
}

TEST(Lifecycle, SeveralIdsShareTheRendezvous) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              constexpr int kRanks = 7;
              ncclUniqueId ids[3];
              for (ncclUniqueId& id : ids) EXPECT_CALL(ncclGetUniqueId(&id));
              in_threads(kRanks, [&](int rank) {
                cudaStream_t stream = nullptr;
                use_device_of(rank);
                EXPECT_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
                ncclComm_t comm = nullptr;
                EXPECT_CALL(ncclCommInitRankScalable(&comm, kRanks, rank, 3, ids, nullptr));
                must_work(comm, stream);
                EXPECT_CALL(ncclCommDestroy(comm));
              });
            }));
}

/// Processes 0 and 2 make an id each; each rank is given both, but rank 3 in another order.
TEST(Lifecycle, IdsInAnotherOrderOnOneRankAreToldToAllProcesses) {
  constexpr int kProcesses = 4;
  void* const shared =
      mmap(nullptr, 2 * sizeof(ncclUniqueId), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* const ids = static_cast<ncclUniqueId*>(shared);
  const SharedCount made;
  const SharedCount heard;
  EXPECT_EQ("", run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
              if (process == 0) ids[0] = id;
              if (process == 2) EXPECT_CALL(ncclGetUniqueId(&ids[1]));
              made.meet(kProcesses);
              ncclUniqueId mine[2] = {ids[0], ids[1]};
              if (process == 3) std::swap(mine[0], mine[1]);
              ncclComm_t comm = nullptr;
              const ncclResult_t result = ncclCommInitRankScalable(&comm, kProcesses, process, 2, mine, nullptr);
              const std::string sentence = ncclGetLastError(nullptr);
              expect_that(result == ncclInvalidUsage, "another code: " + sentence);
              expect_that(sentence.find("rank 3 (host ") != std::string::npos, sentence);
              expect_that(sentence.find("do not pass the same list of unique ids") != std::string::npos, sentence);
              heard.meet(kProcesses);  // the roots stay
            }));
  munmap(shared, 2 * sizeof(ncclUniqueId));
}

/// Communicators whose ranks meet at NCCL_COMM_ID.
std::string meet_at(const std::string& host) {
  setenv("NCCL_COMM_ID", (host + ":" + std::to_string(20000 + getpid() % 12000)).c_str(), 1);
  const std::string wrong = run_processes(3, [](int process, const ncclUniqueId&) {
    ncclUniqueId id;
    EXPECT_CALL(ncclGetUniqueId(&id));
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    EXPECT_CALL(cudaStreamCreate(&stream));
    EXPECT_CALL(ncclCommInitRank(&comm, 3, id, process));
    must_work(comm, stream);
    EXPECT_CALL(ncclCommDestroy(comm));
  });
  unsetenv("NCCL_COMM_ID");
  return wrong;
}

TEST(Lifecycle, AFixedAddressReplacesTheExchangeOfIds) { EXPECT_EQ("", meet_at("127.0.0.1")); }

/// "[address%interface]" of this machine; "" without one.
std::string link_local_host() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET6) continue;
    char text[INET6_ADDRSTRLEN] = {};
    const auto& address = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr;
    if (!IN6_IS_ADDR_LINKLOCAL(&address) || inet_ntop(AF_INET6, &address, text, sizeof(text)) == nullptr) continue;
    found = std::string("[").append(text).append("%").append(one->ifa_name).append("]");
  }
  freeifaddrs(all);
  return found;
}

TEST(Lifecycle, AFixedAddressMayBeOneThatHoldsOnItsLinkAlone) {
  const std::string host = link_local_host();
  if (host.empty()) GTEST_SKIP() << "no interface has such an address";
  EXPECT_EQ("", meet_at(host));
}

TEST(Lifecycle, SeveralCommunicatorsLiveInOneProcessDrivenByOneThreadEach) {
  EXPECT_EQ("", run_processes(2, [](int process, const ncclUniqueId& id) {
              ncclComm_t all = nullptr;
              EXPECT_CALL(ncclCommInitRank(&all, 2, id, process));
              ncclComm_t parts[4];
              for (ncclComm_t& part : parts) EXPECT_CALL(ncclCommSplit(all, 1, process, &part, nullptr));
              in_threads(4, [&](int i) {
                cudaStream_t stream = nullptr;
                use_device_of(i);
                EXPECT_CALL(cudaSetDevice(0));
                EXPECT_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
                for (int round = 0; round < 50; ++round) must_work(parts[i], stream);
              });
              for (ncclComm_t part : parts) EXPECT_CALL(ncclCommDestroy(part));
              EXPECT_CALL(ncclCommDestroy(all));
            }));
}

TEST(Lifecycle, ManyRanksShareTheDevices) {
#if !defined(NITINOL_VGPU)
  GTEST_SKIP() << "GPUs have queues for fewer ranks";
#endif
  EXPECT_EQ("", run_ranks({40, 24}, [](Rank& self) {
              for (int i = 0; i < 3; ++i) must_work(self.comm, self.stream);
            }));
}

/// What the process holds, shared memory included.
size_t resident_bytes() {
  size_t total = 0;
  size_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<size_t>(getpagesize());
}

TEST(Lifecycle, AnIdleCommunicatorHoldsLessThanFourMegabytesARank) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers hold memory of their own";
#elif !defined(NITINOL_VGPU)
  GTEST_SKIP() << "so does CUDA";
#endif
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              constexpr size_t kRanks = 16;
              ncclComm_t comms[kRanks];
              const int devices[kRanks] = {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7};
              const size_t before = resident_bytes();
              EXPECT_CALL(ncclCommInitAll(comms, kRanks, devices));
              const size_t held = resident_bytes() - before;
              if (held > kRanks << 22) throw std::runtime_error(std::to_string(held) + " bytes are held");
              for (ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(Lifecycle, ANonBlockingCommunicatorIsPolledUntilItIsThere) {
  EXPECT_EQ("", run_processes(2, [](int process, const ncclUniqueId& id) {
              const auto wait_for = [](ncclComm_t comm, ncclResult_t result) {
                if (result != ncclSuccess && result != ncclInProgress) EXPECT_CALL(result);
                for (ncclResult_t state = ncclInProgress; state == ncclInProgress; std::this_thread::yield()) {
                  EXPECT_CALL(ncclCommGetAsyncError(comm, &state));
                  if (state != ncclInProgress) EXPECT_CALL(state);
                }
              };
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.blocking = 0;
              ncclComm_t comm = nullptr;
              cudaStream_t stream = nullptr;
              EXPECT_CALL(cudaStreamCreate(&stream));
              wait_for(comm, ncclCommInitRankConfig(&comm, 2, id, process, &config));
              must_work(comm, stream);
              ncclComm_t child = nullptr;
              const ncclResult_t split = ncclCommSplit(comm, 3, process, &child, nullptr);
              wait_for(comm, split);
              wait_for(child, split);
              must_work(child, stream);
              wait_for(child, ncclCommFinalize(child));
              EXPECT_CALL(ncclCommDestroy(child));
              EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(Lifecycle, DifferentSettingsOnRanksAreFoundAtTheStart) {
  for (const auto& [name, first, second] : std::initializer_list<std::array<const char*, 3>>{
           {"NITINOL_CHECK", "strict", ""}, {"NITINOL_CHECK", "", "off"}}) {
    const char* const values[] = {first, second};
    EXPECT_EQ("", run_processes(2, [&, variable = name](int process, const ncclUniqueId& id) {
                setenv(variable, values[process], 1);
                ncclComm_t comm = nullptr;
                const ncclResult_t result = ncclCommInitRank(&comm, 2, id, process);
                if (result == ncclSuccess || comm != nullptr) throw std::runtime_error("accepted");
                const std::string sentence = ncclGetLastError(nullptr);
                expect_that(sentence.find("different settings") != std::string::npos, sentence);
                expect_that(sentence.find(std::string(variable) + "=" + values[process]) != std::string::npos,
                            sentence);
                expect_that(sentence.find("NCCL_P2P") == std::string::npos, "tells what is alike: " + sentence);
              }));
  }
}

/// As those of a trainer and of the engine that it feeds. What they went by alone would not fit together.
TEST(Lifecycle, RanksWithDifferentSettingsChooseAlike) {
  for (const auto& [name, first, second] :
       std::initializer_list<std::array<const char*, 3>>{{"NCCL_ALGO", "Ring", "OneShot"},
                                                         {"NCCL_ALGO", "", "allreduce:Ring"},
                                                         {"NCCL_PROTO", "LL", "Simple"},
                                                         {"NCCL_BUFFSIZE", "65536", "1048576"},
                                                         {"NCCL_MAX_CTAS", "1", "3"}}) {
    const char* const values[] = {first, second};
    EXPECT_EQ("", run_processes(2,
                                [&, variable = name](int process, const ncclUniqueId& id) {
                                  if (*values[process] != '\0') setenv(variable, values[process], 1);
                                  ncclComm_t comm = nullptr;
                                  cudaStream_t stream = nullptr;
                                  use_device_of(process);
                                  EXPECT_CALL(ncclCommInitRank(&comm, 2, id, process));
                                  EXPECT_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
                                  for (const size_t count : {1, 5000, 1'000'000}) must_sum(comm, count, stream);
                                  EXPECT_CALL(cudaStreamDestroy(stream));
                                  EXPECT_CALL(ncclCommDestroy(comm));
                                }))
        << name;
  }
}

/// All ranks of the old communicator hear of it, also one that is in no new one, or in another.
TEST(Lifecycle, ASplitThatFailsInTheNewCommunicatorSaysWhoseNumbersItNames) {
  if (!kMemoryCanBeLimited) GTEST_SKIP() << "a sanitizer needs the memory";
#if defined(NITINOL_CUDA)
  GTEST_SKIP() << "CUDA has some in reserve";
#endif
  EXPECT_EQ("", run_ranks({1, 1, 1}, [](Rank& self) {
              ncclComm_t child = nullptr;
              {
                std::optional<NoMemory> nothing_left;
                if (self.rank == 2) nothing_left.emplace();
                static_cast<void>(ncclCommSplit(self.comm, self.rank == 0 ? 0 : 1, -self.rank, &child, nullptr));
              }
              while (state_of(self.comm) == ncclSuccess) std::this_thread::sleep_for(std::chrono::milliseconds(1));
              const std::string sentence = ncclGetLastError(self.comm);
              expect_that(sentence.find("in the new communicator, of ranks 2, 1 of the old one: ") != std::string::npos,
                          sentence);
              if (child != nullptr) EXPECT_CALL(ncclCommAbort(child));
            }));
}

TEST(Lifecycle, ARankThatNeverComesIsNamed) {
  setenv("NITINOL_INIT_TIMEOUT", "1", 1);
  const SharedCount through;
  const std::string wrong = run_processes(2, [&](int process, const ncclUniqueId& id) {
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitRank(&comm, 4, id, process == 0 ? 0 : 3);
    through.add();
    if (process == 0) through.wait_for(2);  // it hosts the rendezvous, to which the other may come late
    if (result == ncclSuccess || comm != nullptr) throw std::runtime_error("two of four were enough");
    const std::string sentence = ncclGetLastError(nullptr);
    if (sentence.find("1, 2") == std::string::npos) throw std::runtime_error(sentence);
  });
  unsetenv("NITINOL_INIT_TIMEOUT");
  EXPECT_EQ("", wrong);
}

/// Leaves in its destructor, as objects with a thread's or a program's lifetime do.
struct LeavesLate {
  ncclComm_t comm = nullptr;
  std::string* report = nullptr;
  ~LeavesLate() {
    try {
      must_work(comm, nullptr);
      int* data = nullptr;
      EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), sizeof(int)));
      EXPECT_CALL(ncclGroupStart());
      EXPECT_CALL(ncclAllReduce(data, data, 1, ncclInt, ncclSum, comm, nullptr));
      EXPECT_CALL(ncclGroupEnd());
      EXPECT_CALL(cudaStreamSynchronize(nullptr));
      EXPECT_CALL(cudaFree(data));
    } catch (const std::exception& error) {
      *report = error.what();
    }
    if (ncclCommFinalize(comm) != ncclSuccess || ncclCommDestroy(comm) != ncclSuccess) {
      *report += std::string("; cannot leave: ") + ncclGetLastError(nullptr);
    }
  }
};

TEST(Lifecycle, AThreadMayCallFromDestructorsThatRunAfterTheLibrarysOwn) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              std::string report;
              in_threads(1, [&](int) {
                thread_local LeavesLate late;  // made before what the library keeps for the thread, so destroyed after
                late.report = &report;
                EXPECT_CALL(ncclCommInitRank(&late.comm, 1, id, 0));
              });
              if (!report.empty()) throw std::runtime_error(report);
            }));
}

/// A capture that forbids other threads much, while it lives.
class Capture {
 public:
  Capture() {
    thread_ = std::thread([this] {
      cudaStream_t stream = nullptr;
      cudaGraph_t graph = nullptr;
      begun_ = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
               cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess;
      stage_ = 1;
      while (stage_ == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      result_ = cudaStreamEndCapture(stream, &graph);
      if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
      static_cast<void>(cudaStreamDestroy(stream));
    });
    while (stage_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ~Capture() {
    if (thread_.joinable()) static_cast<void>(end());
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  /// cudaSuccess if nobody has broken it.
  cudaError_t end() {
    stage_ = 2;
    thread_.join();
    return begun_ ? result_ : cudaErrorUnknown;
  }

 private:
  std::atomic<int> stage_{0};
  std::atomic<bool> begun_{false};
  cudaError_t result_ = cudaErrorUnknown;
  std::thread thread_;
};

struct WayToEnd {
  const char* name;
  ncclResult_t (*call)(ncclComm_t);
  friend std::ostream& operator<<(std::ostream& out, const WayToEnd& way) { return out << way.name; }
};

ncclResult_t revoke(ncclComm_t comm) { return ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT); }

class BesideACapture : public ::testing::TestWithParam<WayToEnd> {};

TEST_P(BesideACapture, CommunicatorsEnd) {
  EXPECT_EQ("", run_processes(2, [](int process, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              cudaStream_t stream = nullptr;
              use_device_of(process);
              EXPECT_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
              EXPECT_CALL(ncclCommInitRank(&comm, 2, id, process));
              must_work(comm, stream);
              Capture capture;
              EXPECT_CALL(GetParam().call(comm));
              EXPECT_CALL(capture.end());
              ncclResult_t state = ncclSuccess;
              if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) return;  // it is no more
              expect_that(state == ncclSuccess, "the state is " + std::to_string(state));
              EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

INSTANTIATE_TEST_SUITE_P(Ends, BesideACapture,
                         ::testing::Values(WayToEnd{"Finalize", ncclCommFinalize}, WayToEnd{"Destroy", ncclCommDestroy},
                                           WayToEnd{"Abort", ncclCommAbort}, WayToEnd{"Revoke", revoke}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Lifecycle, AProcessMayExitWithoutDestroyingAnything) {
  EXPECT_EQ("", run_processes(2, [](int process, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              cudaStream_t stream = nullptr;
              EXPECT_CALL(cudaStreamCreate(&stream));
              EXPECT_CALL(ncclCommInitRank(&comm, 2, id, process));
              must_work(comm, stream);
            }));
}

}  // namespace
}  // namespace nitinol::testing
