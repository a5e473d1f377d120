// Ranks that are gone are nothing to those who do not wait for them, whatever else these do.
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "gone.h"
#include "nitinol.h"
#include "observe.h"
#include "shared.h"

namespace nitinol::testing {
namespace {

using GoingOn = Gone;

INSTANTIATE_TEST_SUITE_P(After, GoingOn, every_way_to_go(), name_of_way);

TEST_P(GoingOn, OfRanksThatAreIdle) {
  run([](Stayer& stayer) {
    stay_idle();
    expect_that(state_of(stayer.comm()) == ncclSuccess, "it has failed");
    EXPECT_CALL(ncclCommFinalize(stayer.comm()));
    EXPECT_CALL(ncclCommDestroy(stayer.comm()));
  });
}

TEST_P(GoingOn, OfRanksThatLeaveRightAway) {
  run([](Stayer& stayer) {
    EXPECT_CALL(ncclCommFinalize(stayer.comm()));
    expect_that(state_of(stayer.comm()) == ncclSuccess, "it has failed");
    EXPECT_CALL(ncclCommDestroy(stayer.comm()));
  });
}

void receive_what_it_has_sent(const Gone& test, bool fresh) {
  test.run({[](Stayer& leaver) {
              leaver.send(17, 0);
              leaver.send(18, 2);
            },
            [](Stayer& stayer) {
              stay_idle();
              stayer.receive(stayer.rank() == 0 ? 17 : 18, kLeaver);
              if (stayer.rank() == 2) stayer.send(19, 0);
              if (stayer.rank() == 0) stayer.receive(19, 2);
              stay_idle();
              EXPECT_CALL(ncclCommDestroy(stayer.comm()));
            }},
           fresh);
}

void take_what_it_has_broadcast(const Gone& test, bool fresh) {
  test.run({[](Stayer& leaver) { leaver.broadcast(19); },
            [](Stayer& stayer) {
              stay_idle();
              stayer.take_broadcast(19);
              EXPECT_CALL(ncclCommDestroy(stayer.comm()));
            }},
           fresh);
}

TEST_P(GoingOn, OfWhoReceivesWhatItHasSent) { receive_what_it_has_sent(*this, false); }
TEST_P(GoingOn, OfWhoTakesWhatItHasBroadcast) { take_what_it_has_broadcast(*this, false); }

/// Its memory has not been reached yet.
TEST_P(GoingOn, OfWhoReceivesWhatItHasSentForTheFirstTime) { receive_what_it_has_sent(*this, true); }
TEST_P(GoingOn, OfWhoTakesWhatItHasBroadcastForTheFirstTime) { take_what_it_has_broadcast(*this, true); }

/// Who waits for another that is late, in a collective that the one that is gone was through with.
TEST_P(GoingOn, OfWhoReducesWhatItHasGivenForTheFirstTime) {
  run({[](Stayer& leaver) { leaver.reduce(17, 0); },
       [](Stayer& stayer) {
         stay_idle();
         if (stayer.rank() == 2) std::this_thread::sleep_for(std::chrono::seconds(3));
         stayer.reduce(stayer.rank() + 1, 0);
         if (stayer.rank() == 0) stayer.must_have(17 + 1 + 3);
         expect_that(state_of(stayer.comm()) == ncclSuccess, "it has failed");
         EXPECT_CALL(ncclCommDestroy(stayer.comm()));
       }},
      true);
}

/// Which is not in its memory.
TEST_P(GoingOn, ButNotOfWhoWaitsForMoreThanItHasSentForTheFirstTime) {
  run({[](Stayer& leaver) { leaver.send(17, 0); },
       [this](Stayer& stayer) {
         stay_idle();
         if (stayer.rank() == 0) stayer.receive(17, kLeaver);
         stayer.receive_in_vain(kLeaver);
         must_fail(stayer);
         EXPECT_CALL(ncclCommAbort(stayer.comm()));
       }},
      true);
}

/// Who waits for another that is late does not wait for the one that is gone.
TEST_P(GoingOn, OfOthersThatGoOnAmongThemselves) {
  run([](Stayer& stayer) {
    stay_idle();
    const int rank = stayer.rank();
    for (int i = 0; i < 3; ++i) {
      if (rank == 2) stay_idle();
      if (rank == 2) stayer.send(i, 0);
      if (rank == 0) stayer.receive(i, 2);
    }
    if (rank == 0) stayer.send(3, 2);
    if (rank == 2) stay_idle();
    if (rank == 2) stayer.receive(3, 0);
    EXPECT_CALL(ncclCommDestroy(stayer.comm()));
  });
}

/// Word of the second may come before the rank looks again, which had waited for it a moment ago.
TEST_P(GoingOn, OfWhoReceivesWhatASecondOneHasSentJustBeforeItGoesToo) {
  const SharedCount received;
  run([&](Stayer& stayer) {
    stay_idle();
    if (stayer.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
      stayer.send(20, 0);
      EXPECT_CALL(ncclCommAbort(stayer.comm()));
      return received.wait_for(1);
    }
    stayer.receive(20, 2);
    stay_idle();
    expect_that(state_of(stayer.comm()) == ncclSuccess, "it has failed");
    received.add();
    EXPECT_CALL(ncclCommDestroy(stayer.comm()));
  });
}

#if defined(NITINOL_VGPU)
/// Ranks 0 and 1 send and receive for the first time, with a limit of time, for which they look what all others do:
/// rank 2 has been made to `go`, which gets the number that rank 2 leaves once it has.
std::string use_first_beside_one_that_is_gone(const std::function<void(ncclComm_t, std::atomic<pid_t>&)>& go) {
  const Shared<std::atomic<pid_t>> gone;
  const SharedCount through;
  return run_processes(kProcesses, [&](int rank, const ncclUniqueId& id) {
    ncclComm_t comm = nullptr;
    use_device_of(rank);
    EXPECT_CALL(ncclCommInitRank(&comm, kProcesses, id, rank));
    EXPECT_CALL(nitinolCommSetTimeout(comm, kLongTime));
    if (rank == 2) return go(comm, *gone);
    while (*gone == 0 || (*gone > 1 && !is_stopped(*gone))) usleep(1000);
    stay_idle();
    {
      const Stayer stayer(comm);
      if (rank == 0) stayer.send(17, 1);
      if (rank == 1) stayer.receive(17, 0);
      expect_that(state_of(comm) == ncclSuccess, "it has failed");
    }
    through.meet(2);
    if (*gone > 1) kill(*gone, SIGKILL);
    EXPECT_CALL(ncclCommAbort(comm));
  });
}

TEST(GoingOnFromTheFirstUse, BesideARankThatHasAborted) {
  EXPECT_EQ("", use_first_beside_one_that_is_gone([](ncclComm_t comm, std::atomic<pid_t>& gone) {
              EXPECT_CALL(ncclCommAbort(comm));
              gone = 1;
            }));
}

TEST(GoingOnFromTheFirstUse, BesideARankThatIsStopped) {
  EXPECT_EQ("process 2 ended by signal 9\n",
            use_first_beside_one_that_is_gone([](ncclComm_t, std::atomic<pid_t>& gone) {
              gone = getpid();
              raise(SIGSTOP);
            }));
}
#endif

TEST(GoingOnFromTheFirstUse, NobodySendsToARankThatIsGone) {
  const SharedCount gone;
  const SharedCount through;
  EXPECT_EQ("", run_processes(kProcesses, [&](int rank, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              use_device_of(rank);
              EXPECT_CALL(ncclCommInitRank(&comm, kProcesses, id, rank));
              const Stayer stayer(comm);
              if (rank == kLeaver) {
                stayer.send(17, 0);
                stayer.send(17, 2);
                EXPECT_CALL(ncclCommAbort(comm));
                gone.add();
                return through.wait_for(2);
              }
              gone.wait_for(1);
              stay_idle();
              stayer.receive(17, kLeaver);
              expect_that(stayer.try_to_send(kLeaver) == ncclRemoteError, "a send to it");
              const std::string sentence = ncclGetLastError(comm);
              expect_that(sentence.find("rank 1 (host ") != std::string::npos, sentence);
              through.add();
              EXPECT_CALL(ncclCommAbort(comm));
            }));
}

/// Whose memory is the same process's.
struct RanksOfAProcess {
  RanksOfAProcess() {
    make_communicators(comms.data(), kProcesses);
    for (int rank = 0; rank < kProcesses; ++rank) {
      use_device_of(rank);
      ranks.push_back(std::make_unique<Stayer>(comms[static_cast<size_t>(rank)]));
    }
  }
  std::vector<ncclComm_t> comms = std::vector<ncclComm_t>(kProcesses);
  std::vector<std::unique_ptr<Stayer>> ranks;
};

TEST(GoneOfTheSameProcess, IsAFailureToWhoWaitsForItAlone) {
  EXPECT_EQ("", run_processes(1, [&](int, const ncclUniqueId&) {
              const RanksOfAProcess all;
              const auto& [comms, ranks] = all;
              EXPECT_CALL(ncclGroupStart());
              for (int rank = 0; rank < kProcesses; ++rank) ranks[static_cast<size_t>(rank)]->call_all(rank);
              EXPECT_CALL(ncclGroupEnd());
              ranks[kLeaver]->broadcast(19);
              ranks[kLeaver]->send(17, 0);
              EXPECT_CALL(ncclCommAbort(comms[kLeaver]));
              stay_idle();
              for (const int rank : {0, 2}) ranks[static_cast<size_t>(rank)]->take_broadcast(19);
              ranks[0]->receive(17, kLeaver);
              ranks[2]->send(18, 0);
              ranks[0]->receive(18, 2);
              for (const int rank : {0, 2}) EXPECT_CALL(ranks[static_cast<size_t>(rank)]->all_reduce());
              for (const int rank : {0, 2}) {
                const ncclComm_t comm = comms[static_cast<size_t>(rank)];
                expect_that(wait_for_failure(comm) == ncclRemoteError, "the state");
                const std::string sentence = ncclGetLastError(comm);
                expect_that(sentence.find("rank 1 (host ") != std::string::npos, sentence);
                ranks[static_cast<size_t>(rank)]->synchronize();
                EXPECT_CALL(ncclCommAbort(comm));
              }
            }));
}

TEST(GoneOfTheSameProcess, HasSentWhatIsReceivedInAFirstUse) {
  EXPECT_EQ("", run_processes(1, [&](int, const ncclUniqueId&) {
              const RanksOfAProcess all;
              const auto& [comms, ranks] = all;
              ranks[kLeaver]->send(17, 0);
              EXPECT_CALL(ncclCommAbort(comms[kLeaver]));
              ranks[0]->receive(17, kLeaver);
              ranks[2]->send(18, 0);
              ranks[0]->receive(18, 2);
              expect_that(ranks[0]->try_to_send(kLeaver) == ncclRemoteError, "a send to it");
              for (const int rank : {0, 2}) EXPECT_CALL(ncclCommAbort(comms[static_cast<size_t>(rank)]));
            }));
}

}  // namespace
}  // namespace nitinol::testing
