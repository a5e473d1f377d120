// ncclGetLastError of communicators: each that has failed tells why it has, whatever else went wrong in the process.
#include <gtest/gtest.h>

#include <initializer_list>
#include <stdexcept>
#include <string>

#include "cluster.h"
#include "must_work.h"
#include "nccl.h"

namespace nitinol::testing {
namespace {

/// What one rank has: of three communicators, one fails as calls differ, one as it is aborted, and one is well.
struct Comms {
  ncclComm_t differing = nullptr;
  ncclComm_t aborted = nullptr;
  ncclComm_t well = nullptr;
};

void must_tell(ncclComm_t comm, const char* word, std::initializer_list<const char*> not_these) {
  const std::string sentence = ncclGetLastError(comm);
  if (sentence.find(word) == std::string::npos) throw std::runtime_error("'" + sentence + "' lacks '" + word + "'");
  for (const char* other : not_these) {
    if (sentence.find(other) != std::string::npos) throw std::runtime_error("'" + sentence + "' has '" + other + "'");
  }
}

constexpr const char* kDiffers = "do not match";
constexpr const char* kAborts = "aborted its communicator";

void each_tells_its_own(const Comms& comms) {
  must_tell(comms.differing, kDiffers, {kAborts});
  must_tell(comms.aborted, kAborts, {kDiffers});
}

void fail_both(const Comms& comms, Rank& self, float* data) {
  const size_t count = self.rank == 0 ? 5 : 6;
  static_cast<void>(ncclAllReduce(data, data, count, ncclFloat, ncclSum, comms.differing, self.stream));
  if (wait_for_failure(comms.differing) != ncclInvalidUsage) throw std::runtime_error("not for calls that differ");
  if (self.rank == 1) return EXPECT_CALL(ncclCommAbort(comms.aborted));
  static_cast<void>(ncclAllReduce(data, data, 5, ncclFloat, ncclSum, comms.aborted, self.stream));
  if (wait_for_failure(comms.aborted) != ncclRemoteError) throw std::runtime_error("not for an abort");
}

/// The contract: the text is that of the most recent error in the library.
void one_that_is_well_tells_the_latest(const Comms& comms, Rank& self, float* data) {
  if (ncclReduce(data, data, 5, ncclFloat, ncclSum, 17, comms.well, self.stream) != ncclInvalidArgument) {
    throw std::runtime_error("root 17 was accepted");
  }
  must_tell(comms.well, "17", {kDiffers, kAborts});
  ncclResult_t state = ncclInternalError;
  EXPECT_CALL(ncclCommGetAsyncError(comms.well, &state));
  EXPECT_CALL(state);
}

TEST(LastError, OfEachOfSeveralCommunicatorsOfAProcessIsItsOwn) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              Comms comms;
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              for (ncclComm_t* comm : {&comms.differing, &comms.aborted, &comms.well}) {
                EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, comm, nullptr));
              }
              fail_both(comms, self, data);
              if (self.rank == 0) {
                each_tells_its_own(comms);
                one_that_is_well_tells_the_latest(comms, self, data);
                each_tells_its_own(comms);  // still
                EXPECT_CALL(ncclCommAbort(comms.aborted));
              }
              EXPECT_CALL(ncclAllReduce(data, data, 5, ncclFloat, ncclSum, comms.well, self.stream));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              EXPECT_CALL(ncclCommAbort(comms.differing));
              EXPECT_CALL(ncclCommDestroy(comms.well));
              EXPECT_CALL(cudaFree(data));
            }));
}

void must_refuse_root(ncclResult_t result) {
  if (result != ncclInvalidArgument) throw std::runtime_error("the root was accepted");
}

/// As a program sees it in which another thread's call fails before this one has asked.
TEST(LastError, OfACommunicatorThatIsWellIsThatOfItsOwnLatestCallThatFailed) {
  EXPECT_EQ("", run_ranks({1}, [](Rank& self) {
              ncclComm_t other = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, 0, &other, nullptr));
              float* const data = nullptr;
              must_refuse_root(ncclReduce(data, data, 0, ncclFloat, ncclSum, 17, self.comm, self.stream));
              must_refuse_root(ncclReduce(data, data, 0, ncclFloat, ncclSum, 18, other, self.stream));
              must_tell(self.comm, "17", {"18"});
              must_tell(other, "18", {"17"});
              must_tell(nullptr, "18", {"17"});
              must_refuse_root(ncclReduce(data, data, 0, ncclFloat, ncclSum, 19, self.comm, self.stream));
              must_tell(self.comm, "19", {"17", "18"});
              ncclComm_t child = nullptr;
              int excluded[] = {5};
              EXPECT_EQ(ncclInvalidArgument, ncclCommShrink(other, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT));
              must_tell(other, "rank 5 in the exclusion list", {"18"});
              EXPECT_CALL(ncclCommDestroy(other));
            }));
}

/// The group is refused as a whole, and each of its communicators tells so.
TEST(LastError, OfAGroupThatIsRefusedIsThatOfEachOfItsCommunicators) {
  EXPECT_EQ("", run_ranks({1}, [](Rank& self) {
              ncclComm_t other = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, 0, &other, nullptr));
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), sizeof(float)));
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclReduce(data, data, 1, ncclFloat, ncclSum, 0, other, self.stream));
              must_refuse_root(ncclReduce(data, data, 1, ncclFloat, ncclSum, 17, self.comm, self.stream));
              must_refuse_root(ncclGroupEnd());
              must_refuse_root(ncclReduce(data, data, 1, ncclFloat, ncclSum, 18, nullptr, self.stream));
              must_tell(other, "ncclGroupEnd: a call inside the group failed: ", {"18"});
              must_tell(self.comm, "17", {"18", "ncclGroupEnd"});
              EXPECT_CALL(ncclReduce(data, data, 1, ncclFloat, ncclSum, 0, other, self.stream));
              EXPECT_CALL(ncclCommDestroy(other));
              EXPECT_CALL(cudaFree(data));
            }));
}

/// A repair is the later error: the failure that it was to repair is known.
TEST(LastError, AfterAShrinkThatFailedIsThatOfTheShrink) {
  EXPECT_EQ("", run_ranks({1, 1, 1}, [](Rank& self) {
              ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
              config.blocking = 0;
              ncclComm_t comm = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, &config));
              if (self.rank == 2) return EXPECT_CALL(ncclCommAbort(comm));
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              const ncclResult_t begun = ncclAllReduce(data, data, 5, ncclFloat, ncclSum, comm, self.stream);
              if (settled(begun, comm) == ncclSuccess) static_cast<void>(wait_for_failure(comm));
              must_tell(comm, kAborts, {"ncclCommShrink"});
              int excluded = 2;
              for (const int flags : {NCCL_SHRINK_ABORT, NCCL_SHRINK_DEFAULT}) {
                if (self.rank == 1) break;  // it never calls
                ncclComm_t child = nullptr;
                static_cast<void>(ncclCommShrink(comm, &excluded, 1, &child, nullptr, flags));
                EXPECT_CALL(ncclCommAbort(child));
                EXPECT_CALL(settled(ncclInProgress, comm));
                must_tell(comm, "ncclCommShrink to ranks 0, 1", {kAborts});
              }
              EXPECT_CALL(ncclCommAbort(comm));
              EXPECT_CALL(cudaFree(data));
            }));
}

}  // namespace
}  // namespace nitinol::testing
