// Aborts from another thread at a random moment of everything that a rank may be doing. What counts is that all ends,
// and that a sanitizer finds nothing.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "nccl.h"
#include "nitinol.h"

namespace nitinol::testing {
namespace {

constexpr int kRanks = 3;
constexpr int kRounds = 12;
constexpr int kMostCalls = 100'000;

/// What a rank's thread has to work with. Its communicator may be aborted at any time.
struct Scene {
  int rank = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* data = nullptr;
  const std::atomic<bool>* aborted = nullptr;  ///< the abort has returned
};

using Work = std::function<void(Scene&)>;

void run_rank(Scene scene, const Work& work) {
  use_device_of(scene.rank);
  EXPECT_CALL(cudaStreamCreateWithFlags(&scene.stream, cudaStreamNonBlocking));
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&scene.data), 4096));
  work(scene);
  EXPECT_CALL(cudaStreamSynchronize(scene.stream));
  EXPECT_CALL(cudaFree(scene.data));
  EXPECT_CALL(cudaStreamDestroy(scene.stream));
}

/// In each round all ranks work on new communicators, and `abort` is called for each at its moment.
std::string race(const std::function<void(std::array<ncclComm_t, kRanks>& comms)>& make, const Work& work) {
  return run_processes(1, [&](int, const ncclUniqueId&) {
    std::mt19937 random(5);
    for (int round = 0; round < kRounds; ++round) {
      std::array<ncclComm_t, kRanks> comms{};
      make(comms);
      std::array<std::atomic<bool>, kRanks> aborted{};
      std::vector<std::thread> threads;
      for (int rank = 0; rank < kRanks; ++rank) {
        const auto index = static_cast<size_t>(rank);
        const Scene scene{rank, comms[index], nullptr, nullptr, &aborted[index]};
        threads.emplace_back([&work, scene] { run_rank(scene, work); });
        const std::chrono::microseconds delay(random() % 3000);
        threads.emplace_back([comm = scene.comm, delay, &done = aborted[index]] {
          std::this_thread::sleep_for(delay);
          const ncclResult_t result = ncclCommAbort(comm);
          done = true;
          // A destroy may have been first.
          if (result != ncclInvalidArgument) EXPECT_CALL(result);
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
  });
}

void make_all(std::array<ncclComm_t, kRanks>& comms) { make_communicators(comms.data(), kRanks); }

/// The communicators are still being made when this returns.
void begin_to_make_all(std::array<ncclComm_t, kRanks>& comms) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclUniqueId id;
  EXPECT_CALL(ncclGetUniqueId(&id));
  for (int rank = 0; rank < kRanks; ++rank) {
    use_device_of(rank);
    const ncclResult_t begun = ncclCommInitRankConfig(&comms[static_cast<size_t>(rank)], kRanks, id, rank, &config);
    if (begun != ncclInProgress) EXPECT_CALL(begun);
  }
}

void make_all_without_blocking(std::array<ncclComm_t, kRanks>& comms) {
  begin_to_make_all(comms);
  for (ncclComm_t comm : comms) EXPECT_CALL(settled(ncclInProgress, comm));
}

/// Calls until the communicator is gone.
void repeat(const std::function<ncclResult_t()>& call) {
  for (int i = 0; i < kMostCalls; ++i) {
    const ncclResult_t result = call();
    if (result != ncclSuccess && result != ncclInProgress) return;
  }
}

TEST(AbortRace, WithInit) {
  EXPECT_EQ("", race(begin_to_make_all, [](Scene& s) {
              repeat([&] {
                ncclResult_t state = ncclSuccess;
                const ncclResult_t asked = ncclCommGetAsyncError(s.comm, &state);
                return asked != ncclSuccess ? asked : state;
              });
            }));
}

TEST(AbortRace, WithGroups) {
  EXPECT_EQ("", race(make_all, [](Scene& s) {
              repeat([&] {
                EXPECT_CALL(ncclGroupStart());
                static_cast<void>(ncclAllReduce(s.data, s.data, 64, ncclFloat, ncclSum, s.comm, s.stream));
                static_cast<void>(ncclSend(s.data, 9, ncclFloat, (s.rank + 1) % kRanks, s.comm, s.stream));
                static_cast<void>(ncclRecv(s.data, 9, ncclFloat, (s.rank + 2) % kRanks, s.comm, s.stream));
                return ncclGroupEnd();
              });
            }));
}

TEST(AbortRace, WithCallsThatAreCompared) {
  setenv("NITINOL_CHECK", "strict", 1);
  EXPECT_EQ("", race(make_all, [](Scene& s) {
              repeat([&] { return ncclAllReduce(s.data, s.data, 64, ncclFloat, ncclSum, s.comm, s.stream); });
            }));
  unsetenv("NITINOL_CHECK");
}

TEST(AbortRace, WithCallsThatGoOnInTheBackground) {
  setenv("NITINOL_CHECK", "strict", 1);
  EXPECT_EQ("", race(make_all_without_blocking, [](Scene& s) {
              repeat([&] {
                ncclResult_t state = ncclAllReduce(s.data, s.data, 64, ncclFloat, ncclSum, s.comm, s.stream);
                while (state == ncclInProgress) {
                  const ncclResult_t asked = ncclCommGetAsyncError(s.comm, &state);
                  if (asked != ncclSuccess) return asked;
                }
                return state;
              });
              // Until then what goes on in the background may use the stream.
              while (!*s.aborted) std::this_thread::sleep_for(std::chrono::microseconds(100));
            }));
  unsetenv("NITINOL_CHECK");
}

TEST(AbortRace, WithWhatIsAskedOfACommunicator) {
  EXPECT_EQ("", race(make_all, [](Scene& s) {
              float scalar = 2;
              repeat([&] {
                ncclResult_t state = ncclSuccess;
                ncclRedOp_t op = ncclSum;
                void* registration = nullptr;
                static_cast<void>(ncclGetLastError(s.comm));
                static_cast<void>(ncclCommGetAsyncError(s.comm, &state));
                static_cast<void>(nitinolCommDump(s.comm, "/dev/null"));
                static_cast<void>(ncclCommRegister(s.comm, s.data, 4096, &registration));
                static_cast<void>(ncclCommDeregister(s.comm, registration));
                if (ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat, ncclScalarHostImmediate, s.comm) == ncclSuccess) {
                  static_cast<void>(ncclAllReduce(s.data, s.data, 64, ncclFloat, op, s.comm, s.stream));
                  static_cast<void>(ncclRedOpDestroy(op, s.comm));
                }
                return nitinolCommSetTimeout(s.comm, 30);
              });
            }));
}

TEST(AbortRace, WithSplits) {
  EXPECT_EQ("", race(make_all, [](Scene& s) {
              repeat([&] {
                ncclComm_t child = nullptr;
                const ncclResult_t result = ncclCommSplit(s.comm, 0, s.rank, &child, nullptr);
                if (child != nullptr) EXPECT_CALL(ncclCommAbort(child));
                return result;
              });
            }));
}

TEST(AbortRace, WithFinalize) {
  EXPECT_EQ("", race(make_all, [](Scene& s) {
              static_cast<void>(ncclAllReduce(s.data, s.data, 64, ncclFloat, ncclSum, s.comm, s.stream));
              static_cast<void>(ncclCommFinalize(s.comm));
            }));
}

TEST(AbortRace, WithDestroy) {
  EXPECT_EQ("", race(make_all, [](Scene& s) {
              static_cast<void>(ncclAllReduce(s.data, s.data, 64, ncclFloat, ncclSum, s.comm, s.stream));
              std::this_thread::sleep_for(std::chrono::microseconds(1000));
              static_cast<void>(ncclCommDestroy(s.comm));
            }));
}

TEST(AbortRace, WithRevokeAndShrink) {
  EXPECT_EQ("", race(make_all, [](Scene& s) {
              const int excluded = kRanks - 1;
              if (s.rank == excluded) return;
              ncclComm_t child = nullptr;
              static_cast<void>(ncclCommRevoke(s.comm, NCCL_REVOKE_DEFAULT));
              static_cast<void>(ncclCommShrink(s.comm, const_cast<int*>(&excluded), 1, &child, nullptr, 0));
              if (child != nullptr) EXPECT_CALL(ncclCommAbort(child));
            }));
}

TEST(AbortRace, WithGraphsThatAreReplayed) {
  EXPECT_EQ("", race(make_all, [](Scene& s) {
              cudaGraph_t graph = nullptr;
              cudaGraphExec_t executable = nullptr;
              EXPECT_CALL(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal));
              const ncclResult_t result = ncclAllReduce(s.data, s.data, 64, ncclFloat, ncclSum, s.comm, s.stream);
              EXPECT_CALL(cudaStreamEndCapture(s.stream, &graph));
              EXPECT_CALL(cudaGraphInstantiate(&executable, graph, 0));
              for (int i = 0; i < 200 && result == ncclSuccess; ++i) {
                EXPECT_CALL(cudaGraphLaunch(executable, s.stream));
                if (i % 8 == 0) EXPECT_CALL(cudaStreamSynchronize(s.stream));
              }
              EXPECT_CALL(cudaStreamSynchronize(s.stream));
              EXPECT_CALL(cudaGraphExecDestroy(executable));
              EXPECT_CALL(cudaGraphDestroy(graph));
            }));
}

}  // namespace
}  // namespace nitinol::testing
