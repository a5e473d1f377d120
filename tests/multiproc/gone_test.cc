// Ranks that are gone, by an abort or as their process has ended, when nothing that they called is under way: an error
// to those who wait for them.
#include "gone.h"

#include "nitinol.h"

namespace nitinol::testing {
namespace {

INSTANTIATE_TEST_SUITE_P(By, Gone, every_way_to_go(), name_of_way);

TEST_P(Gone, EndsTheNextOperationOfTheOthers) { end_the_next_operation(); }

/// Where only the failure watch can know.
TEST_P(Gone, EndsTheNextOperationThoughCallsAreNotCompared) {
  setenv("NITINOL_CHECK", "off", 1);
  end_the_next_operation();
  unsetenv("NITINOL_CHECK");
}

/// Rank 0, by way of which the others' words go, has gone before, and nobody compares calls.
TEST_P(Gone, IsToldToWhoWaitsForItThoughNoWordOfItComes) {
  setenv("NITINOL_CHECK", "off", 1);
  const SharedCount ready;
  const SharedCount gone;
  const SharedCount through;
  EXPECT_EQ(GetParam().outcome, run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              use_device_of(process);
              EXPECT_CALL(ncclCommInitRank(&comm, kProcesses, id, process));
              const Stayer stayer(comm);
              stayer.call_all(process);
              stayer.synchronize();
              ready.meet(kProcesses);
              if (process == 0) {
                EXPECT_CALL(ncclCommAbort(comm));
                gone.add();
                return through.wait_for(1);
              }
              gone.wait_for(1);
              if (process == kLeaver) return GetParam().go(comm);
              stay_idle();
              stayer.receive_in_vain(kLeaver);
              expect_that(wait_for_failure(comm) == ncclRemoteError, "the state");
              through.add();
              EXPECT_CALL(ncclCommAbort(comm));
            }));
  unsetenv("NITINOL_CHECK");
}

/// Which reaches for all ranks, and finds that one is not there.
TEST_P(Gone, EndsTheFirstOperationOfTheOthers) {
  run(
      [this](Stayer& stayer) {
        if (stayer.all_reduce() == ncclSuccess) stayer.synchronize();
        must_fail(stayer);
        EXPECT_CALL(ncclCommAbort(stayer.comm()));
      },
      true);
}

/// Such calls wait for all of a GPU's kernels, and others of CUDA may wait for them.
TEST_P(Gone, EndsAnOperationForWhichTheProgramWaitsInCuda) {
  run([this](Stayer& stayer) {
    void* other = nullptr;
    EXPECT_CALL(cudaMalloc(&other, 4096));
    EXPECT_CALL(stayer.all_reduce());
    EXPECT_CALL(cudaFree(other));
    stayer.synchronize();
    must_fail(stayer);
    EXPECT_CALL(ncclCommAbort(stayer.comm()));
  });
}

/// Of launches of graphs the library hears nothing.
TEST_P(Gone, EndsAGraphThatIsLaunchedLater) { end_a_later_graph(); }

TEST_P(Gone, EndsAGraphThatIsLaunchedLaterAndDoesNotMix) {
  setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 1);
  end_a_later_graph();
  unsetenv("NCCL_GRAPH_MIXING_SUPPORT");
}

TEST_P(Gone, EndsASplitOfTheOthers) {
  run([this](Stayer& stayer) {
    stay_idle();
    ncclComm_t child = nullptr;
    expect_that(ncclCommSplit(stayer.comm(), 0, 0, &child, nullptr) == ncclRemoteError, "the split");
    must_tell_of_the_leaver(ncclGetLastError(stayer.comm()));
    EXPECT_CALL(ncclCommAbort(stayer.comm()));
  });
}

TEST_P(Gone, IsLeftOutByThoseWhoShrink) {
  run([](Stayer& stayer) {
    stay_idle();
    ncclComm_t child = nullptr;
    std::vector<int> excluded = {kLeaver};
    EXPECT_CALL(ncclCommShrink(stayer.comm(), excluded.data(), 1, &child, nullptr, NCCL_SHRINK_DEFAULT));
    int ranks = 0;
    EXPECT_CALL(ncclCommCount(child, &ranks));
    expect_that(ranks == kProcesses - 1, "the ranks that are left");
    EXPECT_CALL(ncclCommDestroy(child));
    EXPECT_CALL(ncclCommDestroy(stayer.comm()));
  });
}

/// Who sets a limit of time is told of ranks that do not come.
TEST_P(Gone, IsToldToWhoLeavesWithALimitOfTime) {
  run([this](Stayer& stayer) {
    EXPECT_CALL(nitinolCommSetTimeout(stayer.comm(), 60));
    expect_that(ncclCommFinalize(stayer.comm()) == ncclRemoteError, "finalize");
    must_tell_of_the_leaver(ncclGetLastError(stayer.comm()));
    EXPECT_CALL(ncclCommDestroy(stayer.comm()));
  });
}

}  // namespace
}  // namespace nitinol::testing
