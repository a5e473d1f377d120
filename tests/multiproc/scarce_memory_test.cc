// One allocation of a rank fails, wherever that is: its process lives on, and neither it nor the others wait for long.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "cluster.h"
#include "failing_allocation.h"
#include "nccl.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

constexpr int kProcesses = 2;
constexpr std::chrono::seconds kInTime{20};

using Action = std::function<void(ncclComm_t comm, float* data)>;

/// Both processes make a communicator and act on it, time after time; in process 1 an allocation fails meanwhile, each
/// time a later one, until all were tried.
void act_without_memory(const Action& act) {
  const SharedCount rounds;
  const SharedCount tried_all;
  EXPECT_EQ("", run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
              ncclComm_t parent = nullptr;
              float* data = nullptr;
              setenv("NITINOL_TIMEOUT", "1", 1);
              use_device_of(process);
              EXPECT_CALL(ncclCommInitRank(&parent, kProcesses, id, process));
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              for (int nth = 0; tried_all.value() == 0; ++nth) {
                ncclComm_t comm = nullptr;
                EXPECT_CALL(ncclCommSplit(parent, 0, process, &comm, nullptr));
                const auto begin = std::chrono::steady_clock::now();
                if (process == 0) {
                  act(comm, data);
                } else {
                  const FailingAllocation failing(nth, FailsIn::kEveryThread);
                  act(comm, data);
                  if (!failing.has_failed()) tried_all.add();
                }
                expect_that(std::chrono::steady_clock::now() - begin < kInTime, "it took too long");
                rounds.add();
                rounds.wait_for(kProcesses * (nth + 1));
              }
              EXPECT_CALL(ncclCommDestroy(parent));
              EXPECT_CALL(cudaFree(data));
            }));
}

void reduce(ncclComm_t comm, float* data) {
  static_cast<void>(ncclAllReduce(data, data, 100, ncclFloat, ncclSum, comm, nullptr));
}

TEST(ScarceMemory, DestroyEndsAndSoDoesAbort) {
  act_without_memory([](ncclComm_t comm, float*) { static_cast<void>(ncclCommDestroy(comm)); });
  act_without_memory([](ncclComm_t comm, float*) { static_cast<void>(ncclCommAbort(comm)); });
}

TEST(ScarceMemory, OperationsFailOrNot) {
  act_without_memory([](ncclComm_t comm, float* data) {
    reduce(comm, data);
    static_cast<void>(cudaDeviceSynchronize());
    static_cast<void>(ncclCommAbort(comm));
  });
}

/// Process 1 has no memory from an allocation on, each time a later one, and lives on: process 0 does not wait for it,
/// and hears that of it unless all went well.
void tell_of_no_memory(const std::function<ncclResult_t(ncclComm_t comm, float* data)>& act) {
  constexpr int kRounds = 40;
  const SharedCount rounds;
  EXPECT_EQ("", run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
              ncclComm_t parent = nullptr;
              float* data = nullptr;
              use_device_of(process);
              EXPECT_CALL(ncclCommInitRank(&parent, kProcesses, id, process));
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              for (int nth = 0; nth < kRounds; ++nth) {
                ncclComm_t comm = nullptr;
                ncclResult_t result = ncclSuccess;
                EXPECT_CALL(ncclCommSplit(parent, 0, process, &comm, nullptr));
                const auto begin = std::chrono::steady_clock::now();
                if (process == 0) {
                  result = act(comm, data);
                  const std::string sentence = ncclGetLastError(comm);
                  expect_that(result == ncclSuccess || sentence.find("rank 1") != std::string::npos, sentence);
                  rounds.add();
                } else {
                  std::optional<FailingAllocation> failing(std::in_place, nth, FailsIn::kEveryThread,
                                                           Fails::kAllFromThere);
                  // What is in a stream needs a thread of the virtual GPU, and that needs memory.
                  if (act(comm, data) == ncclSuccess) failing.reset();
                  rounds.add();
                  while (rounds.value() < kProcesses * (nth + 1)) usleep(1000);
                }
                expect_that(std::chrono::steady_clock::now() - begin < kInTime, "it took too long");
                rounds.wait_for(kProcesses * (nth + 1));
                EXPECT_EQ(ncclSuccess, ncclCommAbort(comm));
              }
              static_cast<void>(ncclCommAbort(parent));
              EXPECT_CALL(cudaFree(data));
            }));
}

TEST(ScarceMemory, OthersAreToldOfARankThatHasNoneInASplit) {
  tell_of_no_memory([](ncclComm_t comm, float*) {
    ncclComm_t child = nullptr;
    const ncclResult_t result = ncclCommSplit(comm, 0, 0, &child, nullptr);
    if (child != nullptr) static_cast<void>(ncclCommAbort(child));
    return result;
  });
}

TEST(ScarceMemory, OthersAreToldOfARankThatHasNoneWhenItFinalises) {
  tell_of_no_memory([](ncclComm_t comm, float*) { return ncclCommFinalize(comm); });
}

TEST(ScarceMemory, OthersAreToldOfARankThatHasNoneForAnOperation) {
  tell_of_no_memory([](ncclComm_t comm, float* data) {
    const ncclResult_t result = ncclAllReduce(data, data, 100, ncclFloat, ncclSum, comm, nullptr);
    static_cast<void>(cudaDeviceSynchronize());
    ncclResult_t state = result;
    if (result == ncclSuccess) static_cast<void>(ncclCommGetAsyncError(comm, &state));
    return state;
  });
}

}  // namespace
}  // namespace nitinol::testing
