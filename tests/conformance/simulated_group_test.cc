// Groups that end in ncclGroupSimulateEnd, or are refused at their end: nothing of them has had an effect. What groups
// revoke they revoke at their end.
#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "cluster.h"
#include "ints.h"
#include "nccl.h"
#include "scarcity.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

constexpr int kCount = 1000;

/// Adds up ones, which takes all ranks, and whatever runs in the communicators' background.
void must_work(const std::vector<ncclComm_t>& comms) {
  std::deque<Ints> data;
  EXPECT_CALL(ncclGroupStart());
  for (size_t rank = 0; rank < comms.size(); ++rank) {
    use_device_of(static_cast<int>(rank));
    int* const ones = data.emplace_back(kCount, 1).data();
    EXPECT_CALL(ncclAllReduce(ones, ones, kCount, ncclInt, ncclSum, comms[rank], nullptr));
  }
  const ncclResult_t begun = ncclGroupEnd();
  for (size_t rank = 0; rank < comms.size(); ++rank) {
    EXPECT_CALL(settled(begun, comms[rank]));
    use_device_of(static_cast<int>(rank));
    EXPECT_CALL(cudaStreamSynchronize(nullptr));
    data[rank].must_be(static_cast<int>(comms.size()), "the sum");
  }
}

std::vector<ncclComm_t> make(int ranks, bool blocking) {
  if (!blocking) return make_non_blocking(ranks);
  std::vector<ncclComm_t> comms(static_cast<size_t>(ranks));
  make_communicators(comms.data(), ranks);
  return comms;
}

void must_refuse_to_simulate() {
  expect_that(ncclGroupSimulateEnd(nullptr) == ncclInvalidUsage, "another code");
  const std::string sentence = ncclGetLastError(nullptr);
  expect_that(sentence.find("are not simulated, and were not carried out") != std::string::npos, sentence);
}

using CallOn = std::function<void(ncclComm_t)>;

/// Two ranks of a thread are as good as before after one of them, and then both, have made a call in a group that is
/// only simulated.
void simulate(const CallOn& call, bool blocking) {
  EXPECT_EQ("", run_processes(1,
                              [&](int, const ncclUniqueId&) {
                                const std::vector<ncclComm_t> comms = make(2, blocking);
                                for (const size_t callers : {1, 2}) {
                                  EXPECT_CALL(ncclGroupStart());
                                  for (size_t rank = 0; rank < callers; ++rank) call(comms[rank]);
                                  must_refuse_to_simulate();
                                  for (const ncclComm_t comm : comms) EXPECT_CALL(state_of(comm));
                                  must_work(comms);
                                }
                                for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
                              }))
      << (blocking ? "blocking" : "not blocking");
}

/// One whose handle is not given at the end has given it already, and it has to be ended.
void must_make_nothing(ncclComm_t made, bool handle_at_the_end) {
  if (handle_at_the_end) return expect_that(made == nullptr, "there is a communicator");
  expect_that(made != nullptr && state_of(made) == ncclInvalidUsage, "whoever polls is not told");
  const std::string sentence = ncclGetLastError(made);
  expect_that(sentence.find("ncclGroupSimulateEnd: the call was not carried out") != std::string::npos, sentence);
  EXPECT_CALL(ncclCommAbort(made));
}

TEST(SimulatedGroup, RevokesNothing) {
  const CallOn revoke = [](ncclComm_t comm) { EXPECT_CALL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT)); };
  for (const bool blocking : {true, false}) simulate(revoke, blocking);
}

TEST(SimulatedGroup, FinalizesNothing) {
  const CallOn finalize = [](ncclComm_t comm) { EXPECT_CALL(ncclCommFinalize(comm)); };
  for (const bool blocking : {true, false}) simulate(finalize, blocking);
}

/// `begin` makes a call on a rank, in a group that is simulated then.
void simulate_making(const std::function<void(ncclComm_t parent, ncclComm_t* made)>& begin, bool blocking,
                     bool handle_at_the_end) {
  EXPECT_EQ("", run_processes(1,
                              [&](int, const ncclUniqueId&) {
                                const std::vector<ncclComm_t> comms = make(2, blocking);
                                ncclComm_t made = nullptr;
                                EXPECT_CALL(ncclGroupStart());
                                begin(comms[0], &made);
                                must_refuse_to_simulate();
                                must_make_nothing(made, handle_at_the_end);
                                must_work(comms);
                                for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
                              }))
      << (blocking ? "blocking" : "not blocking");
}

TEST(SimulatedGroup, ShrinksNothingAndStopsNothingForIt) {
  for (const int flags : {NCCL_SHRINK_DEFAULT, NCCL_SHRINK_ABORT}) {
    for (const bool blocking : {true, false}) {
      simulate_making(
          [&](ncclComm_t parent, ncclComm_t* made) {
            int excluded = 1;
            EXPECT_CALL(ncclCommShrink(parent, &excluded, 1, made, nullptr, flags));
          },
          blocking, blocking);
    }
  }
}

TEST(SimulatedGroup, SplitsNothing) {
  for (const bool blocking : {true, false}) {
    simulate_making(
        [](ncclComm_t parent, ncclComm_t* made) { EXPECT_CALL(ncclCommSplit(parent, 0, 0, made, nullptr)); }, blocking,
        blocking);
  }
}

TEST(SimulatedGroup, MakesNothing) {
  for (const bool blocking : {true, false}) {
    simulate_making(
        [&](ncclComm_t, ncclComm_t* made) {
          ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
          config.blocking = blocking ? 1 : 0;
          ncclUniqueId id;
          EXPECT_CALL(ncclGetUniqueId(&id));
          EXPECT_CALL(ncclCommInitRankConfig(made, 2, id, 0, &config));
        },
        blocking, false);
  }
}

/// What a group takes of ranks of this thread, in which `calls` has them call. Nothing of it may happen.
float simulated(const std::vector<ncclComm_t>& comms, const std::function<void(size_t rank)>& calls) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  EXPECT_CALL(ncclGroupStart());
  for (size_t rank = 0; rank < comms.size(); ++rank) calls(rank);
  EXPECT_CALL(ncclGroupSimulateEnd(&info));
  return info.estimatedTime;
}

TEST(SimulatedGroup, SaysWhatItsOperationsWouldTakeAndRunsNone) {
  for (const bool blocking : {true, false}) {
    EXPECT_EQ("", run_processes(1, [&](int, const ncclUniqueId&) {
                const std::vector<ncclComm_t> comms = make(2, blocking);
                constexpr size_t kMost = 1 << 22;
                const Ints in(kMost, 1);
                const Ints out(kMost, 77);
                const auto sum = [&](size_t count) {
                  return [&, count](size_t rank) {
                    EXPECT_CALL(ncclAllReduce(in.data(), out.data(), count, ncclInt, ncclSum, comms[rank], nullptr));
                  };
                };
                const auto exchange = [&](size_t count) {
                  return [&, count](size_t rank) {
                    const int other = rank == 0 ? 1 : 0;
                    EXPECT_CALL(ncclSend(in.data(), count, ncclInt, other, comms[rank], nullptr));
                    EXPECT_CALL(ncclRecv(out.data(), count, ncclInt, other, comms[rank], nullptr));
                  };
                };
                const float brief = simulated(comms, sum(1));
                const float full = simulated(comms, sum(kMost));
                expect_that(brief > 0 && full > 10 * brief, "a long one takes longer");
                const float both = simulated(comms, [&](size_t rank) {
                  sum(kMost)(rank);
                  sum(kMost)(rank);
                });
                expect_that(both > 1.9F * full && both < 2.1F * full, "one comes after the other");
                expect_that(simulated(comms, exchange(kMost)) > 10 * simulated(comms, exchange(1)), "messages as well");
                out.must_be(77, "nothing has run");
                must_work(comms);
                for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
              }));
  }
}

TEST(SimulatedGroup, OfRanksThatShareADeviceTakesAsLongAsOneOfThem) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              const int devices[2] = {0, 0};
              std::vector<ncclComm_t> comms(2);
              EXPECT_CALL(ncclCommInitAll(comms.data(), 2, devices));
              const Ints data(kCount, 1);
              const auto sum = [&](size_t rank) {
                EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, comms[rank], nullptr));
              };
              const float of_one = simulated({comms[0]}, sum);
              expect_that(simulated(comms, sum) == of_one, "they run at the same time");
              for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(SimulatedGroup, OfSeveralCommunicatorsOfADeviceTakesAsLongAsAllOfThem) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              const std::vector<ncclComm_t> one = make(2, true);
              const std::vector<ncclComm_t> other = make(2, true);
              const Ints data(kCount, 1);
              const auto sum = [&](ncclComm_t comm) {
                EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, comm, nullptr));
              };
              const float of_one = simulated(one, [&](size_t rank) { sum(one[rank]); });
              const float of_both = simulated(one, [&](size_t rank) {
                sum(one[rank]);
                sum(other[rank]);
              });
              expect_that(of_both == 2 * of_one, "one comes after the other");
              for (const auto& comms : {one, other}) {
                for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
              }
            }));
}

TEST(SimulatedGroup, NeedsNoOtherRank) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              const Ints data(kCount, 1);
              if (self.rank == 0) {
                ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
                EXPECT_CALL(ncclGroupStart());
                EXPECT_CALL(ncclBroadcast(data.data(), data.data(), kCount, ncclInt, 1, self.comm, self.stream));
                EXPECT_CALL(ncclGroupSimulateEnd(&info));
                expect_that(info.estimatedTime > 0, "no time");
              }
              EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, self.comm, self.stream));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              data.must_be(2, "the sum");
            }));
}

TEST(SimulatedGroup, WithoutPlaceForItsTimeIsDroppedAsWell) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              const std::vector<ncclComm_t> comms = make(2, true);
              const Ints data(kCount, 1);
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, comms[0], nullptr));
              EXPECT_CALL(ncclGroupSimulateEnd(nullptr));
              must_work(comms);
              for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(SimulatedGroup, OfWhatCannotBeCarriedOutHasNoTime) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              const std::vector<ncclComm_t> comms = make(2, true);
              const Ints data(kCount, 1);
              ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclSend(data.data(), kCount, ncclInt, 0, comms[0], nullptr));
              expect_that(ncclGroupSimulateEnd(&info) == ncclInvalidUsage, "nobody receives");
              EXPECT_CALL(ncclGroupStart());
              expect_that(ncclAllReduce(nullptr, data.data(), kCount, ncclInt, ncclSum, comms[0], nullptr) ==
                              ncclInvalidArgument,
                          "a call");
              expect_that(ncclGroupSimulateEnd(&info) == ncclInvalidArgument, "with a call that failed");
              expect_that(info.estimatedTime == NCCL_UNDEF_FLOAT, "a time");
              ncclSimInfo_t unknown = NCCL_SIM_INFO_INITIALIZER;
              unknown.magic = 0;
              ncclSimInfo_t without_room = NCCL_SIM_INFO_INITIALIZER;
              without_room.size = offsetof(ncclSimInfo_t, estimatedTime);
              for (ncclSimInfo_t* const bad : {&unknown, &without_room}) {
                EXPECT_CALL(ncclGroupStart());
                EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, comms[0], nullptr));
                expect_that(ncclGroupSimulateEnd(bad) == ncclInvalidArgument, "into what is none");
                expect_that(bad->estimatedTime == NCCL_UNDEF_FLOAT, "a time");
              }
              must_work(comms);
              for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(SimulatedGroup, EndsOneWithinAnotherWithoutALook) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              const std::vector<ncclComm_t> comms = make(2, true);
              const Ints data(kCount, 1);
              ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
              info.magic = 0;
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclGroupStart());
              for (size_t rank = 0; rank < 2; ++rank) {
                int* const ones = data.data();
                EXPECT_CALL(ncclBroadcast(ones, ones, kCount, ncclInt, 0, comms[rank], nullptr));
              }
              EXPECT_CALL(ncclGroupSimulateEnd(&info));
              EXPECT_CALL(ncclGroupEnd());
              must_work(comms);
              for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(SimulatedGroup, OfNothingHasNoTime) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclGroupSimulateEnd(&info));
              expect_that(info.estimatedTime == NCCL_UNDEF_FLOAT, "a time");
            }));
}

TEST(RefusedGroup, RevokesNothing) {
  for (const bool blocking : {true, false}) {
    EXPECT_EQ("", run_processes(1, [&](int, const ncclUniqueId&) {
                const std::vector<ncclComm_t> comms = make(2, blocking);
                EXPECT_CALL(ncclGroupStart());
                for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
                expect_that(ncclCommRevoke(comms[0], 77) == ncclInvalidArgument, "the flags");
                expect_that(ncclGroupEnd() == ncclInvalidArgument, "the group");
                must_work(comms);
                for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
              }));
  }
}

// Who destroys what was revoked waits for nobody, not for the end of the group either.
TEST(Group, MayDestroyWhatItRevokes) {
  const SharedCount through;
  EXPECT_EQ("", run_ranks({1, 1}, [&](Rank& self) {
              ncclComm_t comm = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              const Ints data(kCount, 1);
              if (self.rank == 0) {  // the other never comes
                EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, comm, self.stream));
                EXPECT_CALL(ncclGroupStart());
                EXPECT_CALL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
                EXPECT_CALL(ncclCommDestroy(comm));
                expect_that(ncclGroupEnd() == ncclInvalidUsage, "the group has lost one");
              }
              through.meet(2);
              if (self.rank == 1) EXPECT_CALL(ncclCommAbort(comm));
            }));
}

TEST(Group, ThatRevokesAndHasNoThreadsLeavesNobodyPolling) {
  if (!kMemoryCanBeLimited) GTEST_SKIP() << "a sanitizer takes threads of its own";
  EXPECT_EQ("", run_processes(1, [&](int, const ncclUniqueId&) {
              const std::vector<ncclComm_t> comms = make(2, true);
              {
                const NoThreads none;
                EXPECT_CALL(ncclGroupStart());
                for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
                expect_that(ncclGroupEnd() == ncclSystemError, "the group");
              }
              for (const ncclComm_t comm : comms) {
                expect_that(state_of(comm) != ncclInProgress, "in progress for ever");
                EXPECT_CALL(ncclCommAbort(comm));
              }
            }));
}

}  // namespace
}  // namespace nitinol::testing
