// One allocation of a rank fails, wherever that is: its process lives on, and neither it nor the others wait for long.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cluster.h"
#include "failing_allocation.h"
#include "nccl.h"
#include "nitinol.h"
#include "observe.h"
#include "scarcity.h"
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
              use_device_of(process);
              EXPECT_CALL(ncclCommInitRank(&parent, kProcesses, id, process));
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              for (int nth = 0; tried_all.value() == 0; ++nth) {
                ncclComm_t comm = nullptr;
                EXPECT_CALL(ncclCommSplit(parent, 0, process, &comm, nullptr));
                static_cast<void>(nitinolCommSetTimeout(comm, 1));  // or the other has failed
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

/// Process 1 has no memory at an allocation, or from it on, each time a later one, and lives on: process 0 does not
/// wait for it, and hears that of it unless all went well.
void tell_of_no_memory(const std::function<ncclResult_t(ncclComm_t comm, float* data)>& act, bool blocking = true,
                       Fails which = Fails::kAllFromThere) {
  constexpr int kRounds = 40;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
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
                EXPECT_CALL(settled(ncclCommSplit(parent, 0, process, &comm, &config), comm));
                const auto begin = std::chrono::steady_clock::now();
                if (process == 0) {
                  result = act(comm, data);
                  const std::string sentence = ncclGetLastError(comm);
                  expect_that(result == ncclSuccess || sentence.find("rank 1") != std::string::npos, sentence);
                  rounds.add();
                } else {
                  std::optional<FailingAllocation> failing(std::in_place, nth, FailsIn::kEveryThread, which);
                  // What is in a stream needs a thread of the virtual GPU, and that needs memory.
                  result = act(comm, data);
                  const char* const sentence = ncclGetLastError(comm);
                  if (result == ncclSuccess) failing.reset();
                  rounds.add();
                  while (rounds.value() < kProcesses * (nth + 1)) usleep(1000);
                  failing.reset();
                  expect_that(std::string_view(sentence).find("bad_alloc") == std::string_view::npos, sentence);
                }
                expect_that(std::chrono::steady_clock::now() - begin < kInTime, "it took too long");
                rounds.wait_for(kProcesses * (nth + 1));
                EXPECT_EQ(ncclSuccess, ncclCommAbort(comm));
              }
              static_cast<void>(ncclCommAbort(parent));
              EXPECT_CALL(cudaFree(data));
            }));
}

ncclResult_t split(ncclComm_t comm, float*) {
  ncclComm_t child = nullptr;
  const ncclResult_t result = ncclCommSplit(comm, 0, 0, &child, nullptr);
  if (child != nullptr) static_cast<void>(ncclCommAbort(child));
  return result;
}

TEST(ScarceMemory, OthersAreToldOfARankThatHasNoneInASplit) { tell_of_no_memory(split); }

TEST(ScarceMemory, OthersAreToldOfARankThatHasNoneToWriteItsFlightRecorder) {
  setenv("NITINOL_DUMP_FILE", "/dev/null", 1);
  tell_of_no_memory(split);
  unsetenv("NITINOL_DUMP_FILE");
}

TEST(ScarceMemory, OthersWhoRevokedAreToldOfARankThatHasNoneForThat) {
  tell_of_no_memory([](ncclComm_t comm, float* data) {
    const ncclResult_t result = ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
    return result == ncclSuccess ? split(comm, data) : result;
  });
}

/// An id that process 0 makes, on all ranks of the communicator. `data` has room for it.
ncclUniqueId new_id(int process, ncclComm_t comm, float* data) {
  ncclUniqueId id{};
  if (process == 0) EXPECT_CALL(ncclGetUniqueId(&id));
  EXPECT_CALL(cudaMemcpy(data, &id, sizeof(id), cudaMemcpyHostToDevice));
  EXPECT_CALL(ncclBroadcast(data, data, sizeof(id), ncclInt8, 0, comm, nullptr));
  EXPECT_CALL(cudaMemcpy(&id, data, sizeof(id), cudaMemcpyDeviceToHost));
  return id;
}

using Join = std::function<ncclResult_t(ncclComm_t (&comms)[2], const ncclUniqueId& id, int process)>;

/// The root's process is told of by its number, as a rank of it may not have come yet.
bool names_poor(const std::string& sentence, int poor) {
  const auto names = [&](const char* who) { return sentence.find(who) != std::string::npos; };
  if (poor == 0) return names("rank 0 (host ") || names("the root of the unique id (host ");
  return names("rank 1 (host ") || names("rank 2 (host ");
}

/// In a thread that calls for the first time. Whether an allocation failed.
bool join_in_poverty(const Join& join, ncclComm_t (&comms)[2], const ncclUniqueId& id, int process,
                     const std::function<FailingAllocation()>& fail) {
  bool failed = false;
  std::thread([&] {
    use_device_of(process);
    const FailingAllocation failing = fail();
    static_cast<void>(join(comms, id, process));
    failed = failing.has_failed();
  }).join();
  return failed;
}

/// The poor one of two processes has no memory at an allocation of `join`, each time at a later one, until all were
/// tried: the other one does not wait for it. Process 0 has the root.
void join_without_memory(const Join& join, FailsIn where, Fails which, int poor = 1) {
  const SharedCount have_ids;
  const SharedCount rounds;
  const SharedCount tried_all;
  EXPECT_EQ("", run_processes(kProcesses, [&](int process, const ncclUniqueId& first) {
              ncclComm_t parent = nullptr;
              float* data = nullptr;
              use_device_of(process);
              EXPECT_CALL(ncclCommInitRank(&parent, kProcesses, first, process));
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              for (int nth = 0; tried_all.value() == 0; ++nth) {
                ncclComm_t comms[2] = {};
                const ncclUniqueId id = new_id(process, parent, data);
                have_ids.add();  // the other one may still need this one's memory for the parent's broadcast
                have_ids.wait_for(kProcesses * (nth + 1));
                const auto begin = std::chrono::steady_clock::now();
                if (process == poor) {
                  const auto fail = [&] { return FailingAllocation(nth, where, which); };
                  if (!join_in_poverty(join, comms, id, process, fail)) tried_all.add();
                } else {
                  const ncclResult_t result = join(comms, id, process);
                  const std::string sentence = ncclGetLastError(nullptr);
                  // Without memory on its network thread a rank may say no more than that it goes.
                  const bool says_why = where == FailsIn::kEveryThread || sentence.find(" memory") != std::string::npos;
                  const bool tells = names_poor(sentence, poor) && says_why;
                  expect_that(result == ncclSuccess || tells, std::to_string(nth) + ": " + sentence);
                }
                expect_that(std::chrono::steady_clock::now() - begin < kInTime,
                            std::to_string(nth) + ": it took too long");
                rounds.add();
                rounds.wait_for(kProcesses * (nth + 1));
                for (const ncclComm_t comm : comms) {
                  if (comm != nullptr) EXPECT_CALL(ncclCommAbort(comm));
                }
              }
              EXPECT_CALL(ncclCommDestroy(parent));
              EXPECT_CALL(cudaFree(data));
            }));
}

ncclResult_t join_alone(ncclComm_t (&comms)[2], const ncclUniqueId& id, int process) {
  return ncclCommInitRank(&comms[0], kProcesses, id, process);
}

/// Process 1 has two ranks.
ncclResult_t join_in_a_group(ncclComm_t (&comms)[2], const ncclUniqueId& id, int process) {
  if (process == 0) return ncclCommInitRank(&comms[0], 3, id, 0);
  EXPECT_CALL(ncclGroupStart());
  for (const int i : {0, 1}) static_cast<void>(ncclCommInitRank(&comms[i], 3, id, 1 + i));
  return ncclGroupEnd();
}

TEST(ScarceMemory, OthersAreToldOfARankThatHasNoneWhenItJoins) {
  join_without_memory(join_alone, FailsIn::kThisThread, Fails::kOne);
  join_without_memory(join_alone, FailsIn::kEveryThread, Fails::kOne);
  join_without_memory(join_alone, FailsIn::kThisThread, Fails::kAllFromThere);
}

TEST(ScarceMemory, OthersAreToldOfARootThatHasNone) {
  join_without_memory(join_alone, FailsIn::kEveryThread, Fails::kOne, 0);
  join_without_memory(join_alone, FailsIn::kEveryThread, Fails::kAllFromThere, 0);
}

/// The root's process has none for some seconds, and its rank comes then.
TEST(ScarceMemory, ARootThatHadNoneServesItsRanksOnceItHas) {
  constexpr std::chrono::seconds kPoverty{4};
  const SharedCount poor;
  EXPECT_EQ("", run_processes(3, [&](int process, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              use_device_of(process);
              if (process == 0) {
                const FailingAllocation failing(0, FailsIn::kEveryThread, Fails::kAllFromThere);
                poor.add();
                usleep(std::chrono::microseconds(kPoverty).count());
              }
              poor.wait_for(1);
              EXPECT_CALL(ncclCommInitRank(&comm, 3, id, process));
              EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(ScarceMemory, OthersAreToldOfAGroupThatHasNoneToLetItsRanksJoin) {
  join_without_memory(join_in_a_group, FailsIn::kThisThread, Fails::kOne);
  join_without_memory(join_in_a_group, FailsIn::kThisThread, Fails::kAllFromThere);
}

/// The poor of two processes that leave the third one out has no memory at an allocation of its shrink, each time at a
/// later one, until they meet as ranks that join: the other one does not wait for it.
std::string shrink_without_memory(int poor, int flags, Fails which) {
  constexpr int kExcluded = 2;
  constexpr int kAll = 3;
  constexpr int kRounds = 38;
  const SharedCount splits;
  const SharedCount rounds;
  return run_processes(kAll, [&](int process, const ncclUniqueId& id) {
    ncclComm_t parent = nullptr;
    use_device_of(process);
    EXPECT_CALL(ncclCommInitRank(&parent, kAll, id, process));
    for (int nth = 0; nth < kRounds; ++nth) {
      ncclComm_t comm = nullptr;
      ncclComm_t child = nullptr;
      int excluded = kExcluded;
      EXPECT_CALL(ncclCommSplit(parent, 0, process, &comm, nullptr));
      splits.meet(kAll * (nth + 1));  // whoever is still in it might be told of the lack there
      const auto begin = std::chrono::steady_clock::now();
      if (process == poor) {
        const FailingAllocation failing(nth, FailsIn::kThisThread, which);
        static_cast<void>(ncclCommShrink(comm, &excluded, 1, &child, nullptr, flags));
      } else if (process != kExcluded) {
        const ncclResult_t result = ncclCommShrink(comm, &excluded, 1, &child, nullptr, flags);
        const std::string sentence = ncclGetLastError(nullptr);
        const bool names_it = sentence.find("rank " + std::to_string(poor) + " (host ") != std::string::npos;
        expect_that(result == ncclSuccess || names_it, std::to_string(nth) + ": " + sentence);
      }
      expect_that(std::chrono::steady_clock::now() - begin < kInTime, std::to_string(nth) + ": it took too long");
      rounds.add();
      rounds.wait_for(kAll * (nth + 1));
      for (const ncclComm_t each : {child, comm}) {
        if (each != nullptr) EXPECT_CALL(ncclCommAbort(each));
      }
    }
    EXPECT_CALL(ncclCommDestroy(parent));
  });
}

/// All ways at the same time: ranks that come a moment after the word of another wait for a while.
TEST(ScarceMemory, OthersAreToldOfARankThatHasNoneWhenItShrinks) {
  std::vector<std::function<std::string()>> all;
  for (const int poor : {0, 1}) {
    for (const int flags : {NCCL_SHRINK_DEFAULT, NCCL_SHRINK_ABORT}) {
      for (const Fails which : {Fails::kOne, Fails::kAllFromThere}) {
        all.emplace_back([=] { return shrink_without_memory(poor, flags, which); });
      }
    }
  }
  EXPECT_EQ("", run_at_once(all));
}

/// Process 1 gets no threads to split two communicators at the same time, and lives on.
TEST(ScarceMemory, OthersAreToldOfAGroupThatHasNoThreadsForItsSplits) {
  if (!kMemoryCanBeLimited) GTEST_SKIP() << "a sanitizer takes threads of its own";
  const SharedCount over;
  EXPECT_EQ("", run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
              ncclComm_t parents[2] = {};
              ncclComm_t children[2] = {};
              use_device_of(process);
              EXPECT_CALL(ncclCommInitRank(&parents[0], kProcesses, id, process));
              EXPECT_CALL(ncclCommSplit(parents[0], 0, process, &parents[1], nullptr));
              std::optional<NoThreads> none;
              if (process == 1) none.emplace();
              const auto begin = std::chrono::steady_clock::now();
              EXPECT_CALL(ncclGroupStart());
              for (const int i : {0, 1})
                static_cast<void>(ncclCommSplit(parents[i], 0, process, &children[i], nullptr));
              EXPECT_EQ(ncclGroupEnd(), process == 1 ? ncclSystemError : ncclRemoteError);
              expect_that(std::chrono::steady_clock::now() - begin < kInTime, "it took too long");
              const std::string sentence = ncclGetLastError(parents[0]);
              expect_that(process == 1 || sentence.find("rank 1 (host ") != std::string::npos, sentence);
              over.meet(kProcesses);
              for (const ncclComm_t parent : parents) EXPECT_CALL(ncclCommAbort(parent));
            }));
}

TEST(ScarceMemory, NobodyPollsInVainACommunicatorWhoseCallWasNotRecorded) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              bool failed = true;
              for (int nth = 0; failed; ++nth) {
                ncclUniqueId id{};
                ncclComm_t comm = nullptr;
                ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
                config.blocking = 0;
                EXPECT_CALL(ncclGetUniqueId(&id));
                {
                  const FailingAllocation failing(nth);
                  static_cast<void>(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
                  failed = failing.has_failed();
                }
                if (comm == nullptr) continue;
                static_cast<void>(settled(ncclInProgress, comm));  // without an end the process is killed
                EXPECT_CALL(ncclCommAbort(comm));
              }
            }));
}

TEST(ScarceMemory, InitAllEnds) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              bool tried_all = false;
              for (int nth = 0; !tried_all; ++nth) {
                ncclComm_t comms[2] = {};
                const auto begin = std::chrono::steady_clock::now();
                ncclResult_t result = ncclSuccess;
                {
                  const FailingAllocation failing(nth, FailsIn::kEveryThread);
                  result = ncclCommInitAll(comms, 2, nullptr);
                  tried_all = result == ncclSuccess && !failing.has_failed();
                }
                expect_that(std::chrono::steady_clock::now() - begin < kInTime,
                            std::to_string(nth) + ": it took too long");
                for (const ncclComm_t comm : comms) {
                  expect_that((comm != nullptr) == (result == ncclSuccess), "a communicator, or none");
                  if (comm != nullptr) EXPECT_CALL(ncclCommDestroy(comm));
                }
              }
            }));
}

/// Two ranks of a process leave, and an allocation of the first one's call fails, each time a later one, until all were
/// tried; the last round has what it needs. Their descriptors go all the same.
void leave_without_memory(const std::function<void(ncclComm_t comm)>& leave) {
  EXPECT_EQ("", run_processes(1, [&](int, const ncclUniqueId&) {
              int usual = 0;
              bool failed = true;
              for (int nth = -1; failed; ++nth) {  // the first round has it, too
                ncclComm_t comms[2] = {};
                EXPECT_CALL(ncclCommInitAll(comms, 2, nullptr));
                std::optional<FailingAllocation> failing(std::in_place, nth);
                leave(comms[0]);
                failed = nth < 0 || failing->has_failed();
                failing.reset();
                static_cast<void>(ncclCommDestroy(comms[1]));
                const auto deadline = std::chrono::steady_clock::now() + kInTime;
                if (nth < 0) usual = entries_of("/proc/self/fd");
                while (entries_of("/proc/self/fd") > usual && std::chrono::steady_clock::now() < deadline) usleep(1000);
                expect_that(entries_of("/proc/self/fd") <= usual, std::to_string(nth) + ": descriptors are left");
              }
            }));
}

TEST(ScarceMemory, WhatIsDestroyedOrAbortedLeavesNothing) {
  setenv("NCCL_DEBUG", "INFO", 1);
  setenv("NCCL_DEBUG_FILE", "/dev/null", 1);
  leave_without_memory([](ncclComm_t comm) { static_cast<void>(ncclCommDestroy(comm)); });
  leave_without_memory([](ncclComm_t comm) { static_cast<void>(ncclCommAbort(comm)); });
  unsetenv("NCCL_DEBUG");
  unsetenv("NCCL_DEBUG_FILE");
}

TEST(ScarceMemory, OthersAreToldOfARankThatHasNoneWhenItFinalises) {
  tell_of_no_memory([](ncclComm_t comm, float*) { return ncclCommFinalize(comm); });
  const auto in_background = [](ncclComm_t comm, float*) { return settled(ncclCommFinalize(comm), comm); };
  for (const Fails which : {Fails::kOne, Fails::kAllFromThere}) tell_of_no_memory(in_background, false, which);
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
