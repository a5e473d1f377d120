// What the end of a group makes, splits, destroys and refuses.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster.h"
#include "device_memory.h"
#include "ints.h"
#include "nccl.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

constexpr int kCount = 5000;

TEST(Group, EndingAGroupThatIsNotOpenIsRefused) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              if (ncclGroupEnd() != ncclInvalidUsage) throw std::runtime_error("accepted");
              if (std::string(ncclGetLastError(nullptr)) != "ncclGroupEnd: not in a group call.") {
                throw std::runtime_error(ncclGetLastError(nullptr));
              }
              if (ncclGroupSimulateEnd(nullptr) != ncclInvalidUsage) throw std::runtime_error("simulated");
            }));
}

TEST(Group, ThatMakesRanksMayBeMadeAgainWithTheSameIdIfAnArgumentWasInvalidOrItWasSimulated) {
  EXPECT_EQ("", run_processes(2, [](int process, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              ncclComm_t none = nullptr;
              if (process == 1) {
                EXPECT_CALL(ncclGroupStart());
                EXPECT_CALL(ncclCommInitRank(&comm, 2, id, 1));
                expect_that(ncclCommInitRank(&none, 2, id, 7) == ncclInvalidArgument, "rank 7 of 2");
                expect_that(ncclGroupEnd() == ncclInvalidArgument, "the group");
                EXPECT_CALL(ncclGroupStart());
                EXPECT_CALL(ncclCommInitRank(&comm, 2, id, 1));
                expect_that(ncclGroupSimulateEnd(nullptr) == ncclInvalidUsage, "nothing was made");
              }
              EXPECT_CALL(ncclCommInitRank(&comm, 2, id, process));
              EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(Group, ThatMakesRanksAndIsRefusedOtherwiseIsToldToThoseWhoWaitForThem) {
  EXPECT_EQ("", run_processes(2, [](int process, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              if (process == 0) {
                expect_that(ncclCommInitRank(&comm, 2, id, 0) == ncclInvalidUsage, "rank 0 alone");
                const std::string sentence = ncclGetLastError(nullptr);
                expect_that(sentence.find("rank 1 (host ") != std::string::npos, sentence);
                expect_that(sentence.find("both communication and making") != std::string::npos, sentence);
                return;
              }
              ncclComm_t alone = nullptr;
              EXPECT_CALL(ncclCommInitAll(&alone, 1, nullptr));
              const Ints data(kCount, 1);
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclCommInitRank(&comm, 2, id, 1));
              EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, alone, nullptr));
              expect_that(ncclGroupEnd() == ncclInvalidUsage, "the group");
              EXPECT_CALL(ncclCommAbort(alone));
            }));
}

TEST(Group, SplitsACommunicatorSeveralTimesInTheOrderOfTheCalls) {
  EXPECT_EQ("", run_ranks({2, 2}, [](Rank& self) {
              for (int round = 0; round < 10; ++round) {
                ncclComm_t parity = nullptr;
                ncclComm_t half = nullptr;
                EXPECT_CALL(ncclGroupStart());
                EXPECT_CALL(ncclCommSplit(self.comm, self.rank % 2, self.rank, &parity, nullptr));
                EXPECT_CALL(ncclCommSplit(self.comm, self.rank / 2, -self.rank, &half, nullptr));
                EXPECT_CALL(ncclGroupEnd());
                expect_place(parity, self.rank / 2, 2);
                expect_place(half, 1 - self.rank % 2, 2);
                EXPECT_CALL(ncclCommDestroy(parity));
                EXPECT_CALL(ncclCommDestroy(half));
              }
            }));
}

TEST(Group, OfOneThreadSplitsCommunicatorsThatDoNotBlockSeveralTimes) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              const std::vector<ncclComm_t> parents = make_non_blocking(2);
              ncclComm_t children[2][2] = {};
              EXPECT_CALL(ncclGroupStart());
              for (int rank = 0; rank < 2; ++rank) {
                use_device_of(rank);
                for (ncclComm_t& child : children[rank]) {
                  const int key = &child == &children[rank][0] ? rank : -rank;
                  EXPECT_CALL(ncclCommSplit(parents[static_cast<size_t>(rank)], 0, key, &child, nullptr));
                }
              }
              const ncclResult_t begun = ncclGroupEnd();
              for (const ncclComm_t parent : parents) EXPECT_CALL(settled(begun, parent));
              for (int rank = 0; rank < 2; ++rank) {
                expect_place(children[rank][0], rank, 2);
                expect_place(children[rank][1], 1 - rank, 2);
              }
              for (int rank = 0; rank < 2; ++rank) {
                for (const ncclComm_t child : children[rank]) EXPECT_CALL(ncclCommAbort(child));
                EXPECT_CALL(ncclCommAbort(parents[static_cast<size_t>(rank)]));
              }
            }));
}

void must_refuse_the_group(ncclResult_t wanted, const char* call, const char* why) {
  expect_that(ncclGroupEnd() == wanted, "another code");
  const std::string sentence = ncclGetLastError(nullptr);
  expect_that(sentence.find(call) != std::string::npos && sentence.find(why) != std::string::npos, "the sentence");
}

/// Rank 0 of a communicator whose other rank never comes.
ncclComm_t begin_to_make(const ncclUniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  static_cast<void>(ncclCommInitRankConfig(&comm, 2, id, 0, &config));
  expect_that(comm != nullptr && state_of(comm) == ncclInProgress, "nobody has come");
  return comm;
}

TEST(Group, ThatUsesWhatItMakesIsRefusedAndLeavesNobodyPolling) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              const Ints data(kCount, 1);
              int ranks = 0;
              EXPECT_CALL(ncclGroupStart());
              const ncclComm_t comm = begin_to_make(id);
              expect_that(ncclCommCount(comm, &ranks) == ncclInProgress, "a question");
              expect_that(
                  ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, comm, nullptr) == ncclInProgress,
                  "the call");
              must_refuse_the_group(ncclInvalidUsage, "AllReduce", "still being initialised");
              expect_that(state_of(comm) == ncclInvalidUsage, "the state");
              EXPECT_CALL(ncclCommAbort(comm));
            }));
}

TEST(Group, QuestionsToOneThatIsBeingMadeAreNoPartOfIt) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.blocking = 0;
              ncclComm_t comm = nullptr;
              int ranks = 0;
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
              expect_that(ncclCommCount(comm, &ranks) == ncclInProgress, "a question");
              EXPECT_CALL(settled(ncclGroupEnd(), comm));
              expect_place(comm, 0, 1);
              EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(Group, IsCarriedOutThoughCallsInItThatAreNoneOfItsOwnHaveFailed) {
  EXPECT_EQ("", run_ranks({2}, [](Rank& self) {
              int32_t* data = nullptr;
              void* memory = nullptr;
              ncclRedOp_t op{};
              int number = 0;
              const int32_t one = 1;
              int32_t sum = 0;
              const auto fails = [](ncclResult_t result) { expect_that(result != ncclSuccess, "no error"); };
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), sizeof(*data)));
              EXPECT_CALL(copy_to_device(data, &one, sizeof(one)));
              EXPECT_CALL(ncclGroupStart());
              fails(ncclMemAlloc(&memory, SIZE_MAX));  // a pool gives back what it can spare then, and tries again
              fails(ncclMemFree(&number));
              fails(ncclCommCount(self.comm, nullptr));
              fails(ncclCommGetAsyncError(nullptr, nullptr));
              fails(ncclGetUniqueId(nullptr));
              fails(ncclCommDeregister(self.comm, &number));
              fails(ncclRedOpCreatePreMulSum(&op, nullptr, ncclInt32, ncclScalarHostImmediate, self.comm));
              fails(ncclRedOpDestroy(ncclSum, self.comm));
              EXPECT_CALL(ncclAllReduce(data, data, 1, ncclInt32, ncclSum, self.comm, self.stream));
              fails(ncclMemFree(&number));
              EXPECT_CALL(ncclGroupEnd());
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              EXPECT_CALL(cudaMemcpy(&sum, data, sizeof(sum), cudaMemcpyDeviceToHost));
              expect_that(sum == 2, "the sum");
              EXPECT_CALL(cudaFree(data));
            }));
}

TEST(Group, WithACallOnOneThatIsStillBeingMadeFailsItsOtherCommunicators) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              const ncclComm_t unfinished = begin_to_make(id);
              const Ints data(kCount, 1);
              const auto sum_on = [&](ncclComm_t comm) {
                return ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, comm, nullptr);
              };
              const ncclComm_t used = make_non_blocking(1).front();
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(sum_on(used));
              expect_that(sum_on(unfinished) == ncclInProgress, "the call");
              must_refuse_the_group(ncclInvalidUsage, "AllReduce", "still being initialised");
              expect_that(state_of(used) == ncclInvalidUsage, "a call was lost in silence");
              const ncclComm_t parent = make_non_blocking(1).front();
              ncclComm_t child = nullptr;
              ncclComm_t none = nullptr;
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclCommSplit(parent, 0, 0, &child, nullptr));
              expect_that(ncclCommSplit(unfinished, 0, 0, &none, nullptr) == ncclInvalidArgument, "the split");
              must_refuse_the_group(ncclInvalidArgument, "ncclCommSplit", "still being initialised");
              expect_that(none == nullptr, "a handle");
              expect_that(state_of(child) == ncclInvalidArgument, "the child's state");
              EXPECT_CALL(state_of(parent));
              expect_that(state_of(unfinished) == ncclInProgress, "the one that is made was no part of the groups");
              for (const ncclComm_t comm : {used, child, parent, unfinished}) EXPECT_CALL(ncclCommAbort(comm));
            }));
}

/// It is for one thread at a time; but programs do so, and what all threads call is the same.
TEST(Group, CallsOfSeveralThreadsOnACommunicatorComeOneAfterTheOther) {
  constexpr int kThreads = 4;
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              std::vector<std::unique_ptr<Ints>> data;
              for (int i = 0; i < kThreads; ++i) data.push_back(std::make_unique<Ints>(kCount, 3));
              std::atomic<int> succeeded{0};
              std::vector<std::thread> threads;
              for (int i = 0; i < kThreads; ++i) {
                threads.emplace_back([&, i] {
                  use_device_of(self.rank);
                  const Ints& mine = *data[static_cast<size_t>(i)];
                  const auto result =
                      ncclAllReduce(mine.data(), mine.data(), kCount, ncclInt, ncclSum, self.comm, self.stream);
                  if (result == ncclSuccess) ++succeeded;
                });
              }
              for (std::thread& thread : threads) thread.join();
              expect_that(succeeded == kThreads, "a call failed");
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              for (const auto& mine : data) mine->must_be(2 * 3, "a sum");
            }));
}

/// Nothing is carried out, and both stay usable.
TEST(Group, RefusesTheCallThatMixesBlockingAndNonBlockingCommunicators) {
  EXPECT_EQ("", run_ranks({1}, [](Rank& self) {
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.blocking = 0;
              ncclComm_t polled = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, 0, &polled, &config));
              const Ints from(kCount, 5);
              const Ints to(kCount, 0);
              const auto sum = [&](ncclComm_t comm) {
                return ncclAllReduce(from.data(), to.data(), kCount, ncclInt, ncclSum, comm, self.stream);
              };
              for (const auto [first, second] : {std::pair(self.comm, polled), std::pair(polled, self.comm)}) {
                EXPECT_CALL(ncclGroupStart());
                EXPECT_CALL(sum(first));
                expect_that(sum(second) == ncclInvalidArgument, "a mixture");
                expect_that(ncclGroupEnd() == ncclInvalidArgument, "its group");
                EXPECT_CALL(ncclGroupStart());
                EXPECT_CALL(ncclCommFinalize(first));
                ncclComm_t child = nullptr;
                expect_that(ncclCommSplit(second, 0, 0, &child, nullptr) == ncclInvalidArgument, "a mixture of jobs");
                expect_that(ncclGroupEnd() == ncclInvalidArgument, "their group");
                expect_that(child == nullptr, "a child");
              }
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              to.must_be(0, "what was refused");
              EXPECT_CALL(settled(sum(polled), polled));
              EXPECT_CALL(sum(self.comm));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              to.must_be(5, "afterwards");
              EXPECT_CALL(ncclCommDestroy(polled));
            }));
}

TEST(Group, ThatSplitsWhatItRevokesIsRefused) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              ncclComm_t comm = nullptr;
              ncclComm_t child = nullptr;
              make_communicators(&comm, 1);
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
              expect_that(ncclCommSplit(comm, 0, 0, &child, nullptr) == ncclInvalidArgument, "the split");
              must_refuse_the_group(ncclInvalidArgument, "ncclCommSplit", "is being revoked");
              expect_that(child == nullptr, "a child");
              EXPECT_CALL(state_of(comm));
              EXPECT_CALL(ncclCommSplit(comm, 0, 0, &child, nullptr));
              EXPECT_CALL(ncclCommDestroy(child));
              EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(Group, WhoseCommunicatorsAreAllDestroyedBeforeItEndsIsRefused) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              constexpr int kMany = 150;  // more than the library keeps of those that were destroyed
              const Ints data(kCount, 1);
              std::vector<ncclComm_t> comms(kMany);
              for (ncclComm_t& comm : comms) make_communicators(&comm, 1);
              EXPECT_CALL(ncclGroupStart());
              for (const ncclComm_t comm : comms) {
                EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, comm, nullptr));
              }
              for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
              must_refuse_the_group(ncclInvalidUsage, "rank 0", "destroyed or aborted");
            }));
}

TEST(Group, DestroysAtTheSameTimeWhatOtherProcessesDestroyInAnotherOrder) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              ncclComm_t comms[2] = {};
              for (ncclComm_t& comm : comms) EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              EXPECT_CALL(ncclGroupStart());
              for (const int i : {self.rank, 1 - self.rank}) EXPECT_CALL(ncclCommDestroy(comms[i]));
              EXPECT_CALL(ncclGroupEnd());
            }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(Group, DestroysWhatItHasFinalizedToo) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              std::vector<ncclComm_t> blocking(2);
              make_communicators(blocking.data(), 2);
              for (const std::vector<ncclComm_t>& comms : {blocking, make_non_blocking(2)}) {
                EXPECT_CALL(ncclGroupStart());
                for (const ncclComm_t comm : comms) {
                  EXPECT_CALL(ncclCommFinalize(comm));
                  EXPECT_CALL(ncclCommDestroy(comm));
                }
                EXPECT_CALL(ncclGroupEnd());
              }
            }));
}

TEST(Group, OfAThreadThatEndsWithoutEndingItFailsItsCommunicators) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              ncclComm_t unfinished = nullptr;
              std::thread([&] {
                EXPECT_CALL(ncclGroupStart());
                unfinished = begin_to_make(id);
              }).join();
              const std::vector<ncclComm_t> used = make_non_blocking(2);
              const Ints data(kCount, 1);
              std::thread([&] {
                EXPECT_CALL(ncclGroupStart());
                EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, used[0], nullptr));
              }).join();
              for (const ncclComm_t comm : {unfinished, used[0]}) {
                expect_that(state_of(comm) == ncclInvalidUsage, "the state");
                const std::string sentence = ncclGetLastError(comm);
                expect_that(sentence.find("its thread has ended") != std::string::npos, sentence);
              }
              while (state_of(used[1]) == ncclSuccess) std::this_thread::yield();
              expect_that(state_of(used[1]) == ncclInvalidUsage, "the other rank");
              for (const ncclComm_t comm : {unfinished, used[0], used[1]}) EXPECT_CALL(ncclCommAbort(comm));
            }));
}

/// Nobody comes to the communicators that the group began to make before it failed.
TEST(Group, ThatFailsAfterSomeOfItHasBegunFailsThatToo) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              for (ncclResult_t (*end)(ncclComm_t) : {ncclCommDestroy, ncclCommAbort}) {
                const auto parents = make_non_blocking(2);
                ncclComm_t child = nullptr;
                ncclUniqueId ids[2];
                for (ncclUniqueId& id : ids) EXPECT_CALL(ncclGetUniqueId(&id));
                EXPECT_CALL(ncclGroupStart());
                EXPECT_CALL(ncclCommSplit(parents[0], 0, 0, &child, nullptr));
                const ncclComm_t made = begin_to_make(ids[0]);
                EXPECT_CALL(end(begin_to_make(ids[1])));
                must_refuse_the_group(ncclInvalidUsage, "rank 0", "aborted");
                for (const ncclComm_t comm : {child, made, parents[0]}) {
                  expect_that(state_of(comm) == ncclInvalidUsage, "it seems to go on");
                  EXPECT_CALL(ncclCommDestroy(comm));
                }
                while (state_of(parents[1]) == ncclSuccess) std::this_thread::yield();  // until word of it has come
                EXPECT_CALL(ncclCommDestroy(parents[1]));
              }
            }));
}

TEST(Group, WhoseMessagesToItselfDoNotMatchFailsAllItsCommunicators) {
  EXPECT_EQ("", run_ranks({2, 1}, [](Rank& self) {
              ncclComm_t comms[2] = {};
              for (ncclComm_t& comm : comms) EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              const Ints data(kCount, self.rank);
              EXPECT_CALL(ncclGroupStart());
              if (self.rank == 0) EXPECT_CALL(ncclSend(data.data(), 1, ncclInt, 0, comms[0], self.stream));
              for (const ncclComm_t comm : comms) {  // another rank may have heard already
                static_cast<void>(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, comm, self.stream));
              }
              const ncclResult_t ended = ncclGroupEnd();
              expect_that(self.rank != 0 || ended == ncclInvalidUsage, "the group");
              for (const ncclComm_t comm : comms) {
                while (state_of(comm) == ncclSuccess) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                const std::string sentence = ncclGetLastError(comm);
                expect_that(sentence.find("rank 0 sends 1 message to itself and receives 0") != std::string::npos,
                            sentence);
                EXPECT_CALL(ncclCommAbort(comm));
              }
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
            }));
}

TEST(Group, OfACommunicatorThatAllItsThreadsDestroyMeanwhileIsRefusedOnEach) {
  const SharedCount called;
  EXPECT_EQ("", run_ranks({3}, [&](Rank& self) {
              ncclComm_t comm = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              const Ints data(kCount, self.rank);
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, comm, self.stream));
              called.meet(3);
              EXPECT_CALL(ncclCommDestroy(comm));
              expect_that(ncclGroupEnd() == ncclInvalidUsage, "the group");
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              data.must_be(self.rank, "what was not reduced");
            }));
}

}  // namespace
}  // namespace nitinol::testing
