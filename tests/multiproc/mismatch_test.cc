// Ranks whose calls do not match: every rank hears of it within a second, with both calls.
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "cluster.h"
#include "device_memory.h"
#include "mismatches.h"
#include "nccl.h"
#include "nitinol.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

const std::vector<Mismatch>& mismatches() {
  static const std::vector<Mismatch> all = {
      {"Operation",
       [](Rank& r, float* d) { return all_reduce(r, d, 100); },
       [](Rank& r, float* d) { return ncclBroadcast(d, d, 100, ncclFloat, 0, r.comm, r.stream); },
       {"rank N calls AllReduce number 3 (count 100, type float32, op sum)",
        "rank 2 calls Broadcast number 3 (count 100, type float32, root 0)"}},
      {"Count",
       [](Rank& r, float* d) { return all_reduce(r, d, 100); },
       [](Rank& r, float* d) { return all_reduce(r, d, 99); },
       {"rank N calls AllReduce number 3 (count 100, type float32, op sum)",
        "rank 2 calls AllReduce number 3 (count 99, type float32, op sum)"}},
      {"LargeCount",
       [](Rank& r, float* d) { return all_reduce(r, d, 400'000); },
       [](Rank& r, float* d) { return all_reduce(r, d, 400'001); },
       {"rank N calls AllReduce number 3 (count 400000, type float32, op sum)",
        "rank 2 calls AllReduce number 3 (count 400001, type float32, op sum)"}},
      {"NoElements",
       [](Rank& r, float* d) { return all_reduce(r, d, 100); },
       [](Rank& r, float* d) { return all_reduce(r, d, 0); },
       {"rank N calls AllReduce number 3 (count 100, type float32, op sum)",
        "rank 2 calls AllReduce number 3 (count 0, type float32, op sum)"}},
      {"Operator",
       [](Rank& r, float* d) { return all_reduce(r, d, 100); },
       [](Rank& r, float* d) { return all_reduce(r, d, 100, ncclMax); },
       {"rank N calls AllReduce number 3 (count 100, type float32, op sum)",
        "rank 2 calls AllReduce number 3 (count 100, type float32, op max)"}},
      {"Type",
       [](Rank& r, float* d) { return all_reduce(r, d, 100); },
       [](Rank& r, float* d) { return ncclAllReduce(d, d, 100, ncclInt32, ncclSum, r.comm, r.stream); },
       {"rank N calls AllReduce number 3 (count 100, type float32, op sum)",
        "rank 2 calls AllReduce number 3 (count 100, type int32, op sum)"}},
      {"TypeOfBytes",
       [](Rank& r, float* d) { return ncclBroadcast(d, d, 50, ncclFloat, 0, r.comm, r.stream); },
       [](Rank& r, float* d) { return ncclBroadcast(d, d, 100, ncclFloat16, 0, r.comm, r.stream); },
       {"rank N calls Broadcast number 3 (count 50, type float32, root 0)",
        "rank 2 calls Broadcast number 3 (count 100, type float16, root 0)"}},
      // Nobody sends anything: the ranks' records tell.
      {"Root",
       [](Rank& r, float* d) { return ncclBroadcast(d, d, 100, ncclFloat, kOdd, r.comm, r.stream); },
       [](Rank& r, float* d) { return ncclBroadcast(d, d, 100, ncclFloat, 1, r.comm, r.stream); },
       {"rank N calls Broadcast number 3 (count 100, type float32, root 2)",
        "rank 2 calls Broadcast number 3 (count 100, type float32, root 1)"}},
      {"Order",
       [](Rank& r, float* d) {
         EXPECT_CALL(ncclGroupStart());
         static_cast<void>(all_reduce(r, d, 100));  // another rank's failure may be known already
         static_cast<void>(ncclReduce(d, d, 100, ncclFloat, ncclSum, 1, r.comm, r.stream));
         return ncclGroupEnd();
       },
       [](Rank& r, float* d) {
         EXPECT_CALL(ncclGroupStart());
         static_cast<void>(ncclReduce(d, d, 100, ncclFloat, ncclSum, 1, r.comm, r.stream));
         static_cast<void>(all_reduce(r, d, 100));
         return ncclGroupEnd();
       },
       {"rank N calls AllReduce number 3 (count 100, type float32, op sum)",
        "rank 2 calls Reduce number 3 (count 100, type float32, op sum, root 1)"}},
  };
  return all;
}

TEST(Mismatch, IsHeardOnEveryRankOfSeveralProcesses) { EXPECT_EQ("", run({1, 1, 1, 1}, mismatches())); }
TEST(Mismatch, IsHeardByThreadsToo) { EXPECT_EQ("", run({2, 2}, mismatches())); }
TEST(Mismatch, IsHeardInOneProcess) { EXPECT_EQ("", run({3}, mismatches())); }

TEST(Mismatch, ThatHoldsNobodyUpIsHeardWhenAllLeave) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              ncclComm_t comm = nullptr;
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              // Each is the root that sends, and none receives.
              static_cast<void>(ncclBroadcast(data, data, 10, ncclFloat, self.rank, comm, self.stream));  // or at once
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              const ncclResult_t left = ncclCommFinalize(comm);
              const std::string sentence = ncclGetLastError(comm);
              const bool both =
                  sentence.find("root 0)") != std::string::npos && sentence.find("root 1)") != std::string::npos;
              if (left != ncclInvalidUsage || !both) throw std::runtime_error(std::to_string(left) + ": " + sentence);
              EXPECT_CALL(ncclCommDestroy(comm));
              EXPECT_CALL(cudaFree(data));
            }));
}

ncclResult_t nothing(Rank&, float*) { return ncclSuccess; }

/// What the odd rank does while the others wait in strict mode, on the host.
struct Instead {
  Step odd;
  const char* words;
  ncclResult_t code;
  double timeout = 0;
};

const std::vector<Instead>& done_instead() {
  static const std::vector<Instead> all = {
      {leave, "rank 2 in ncclCommFinalize or ncclCommDestroy", ncclInvalidUsage},
      {[](Rank& r, float*) { return ncclCommRevoke(r.comm, NCCL_REVOKE_DEFAULT); }, "carries out nothing any more",
       ncclRemoteError},
      {[](Rank& r, float* d) { return ncclRecv(d, 4, ncclFloat, 0, r.comm, r.stream); },
       "which calls AllReduce number 2 (count 17, type float32, op sum) next", ncclInvalidUsage},
      {nothing,
       "in AllReduce number 2 (count 17, type float32, op sum); its process is alive; idle, its last collective was "
       "AllReduce number 1 (count 10, type float32, op sum)",
       ncclRemoteError, kShortTime},
  };
  return all;
}

void do_instead(const Instead& instead, Rank& self, float* data, const SharedCount& ready, const SharedCount& heard) {
  Rank mine = self;
  EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &mine.comm, nullptr));
  EXPECT_CALL(all_reduce(mine, data, 10));
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  EXPECT_CALL(nitinolCommSetTimeout(mine.comm, instead.timeout));
  ready.meet(3);
  const ncclResult_t called = self.rank == kOdd ? instead.odd(mine, data) : all_reduce(mine, data, 17);
  if (self.rank == kOdd) {
    heard.wait_for(2);
  } else {
    const std::string sentence = ncclGetLastError(mine.comm);
    heard.add();
    const bool told = sentence.find(instead.words) != std::string::npos && sentence.find("rank 2") != std::string::npos;
    if (called != instead.code || !told) throw std::runtime_error(std::to_string(called) + ": " + sentence);
  }
  EXPECT_CALL(all_reduce(mine, data, 1) == ncclSuccess ? ncclInternalError : ncclSuccess);
  EXPECT_CALL(ncclCommAbort(mine.comm));
}

TEST(Mismatch, InStrictModeThoseWhoWaitHearWhatTheOddRankDoes) {
  setenv("NITINOL_CHECK", "strict", 1);
  const std::vector<SharedCount> ready(done_instead().size());
  const std::vector<SharedCount> heard(done_instead().size());
  EXPECT_EQ("", run_ranks({1, 1, 1}, [&](Rank& self) {
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              for (size_t i = 0; i < heard.size(); ++i) {
                do_instead(done_instead()[i], self, data, ready[i], heard[i]);
              }
              EXPECT_CALL(cudaFree(data));
            }));
  unsetenv("NITINOL_CHECK");
}

void must_not_run(Rank& self, int* data) {
  const int before = 41 + self.rank;
  EXPECT_CALL(copy_to_device(data, &before, sizeof(int)));
  Rank mine = self;
  EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &mine.comm, nullptr));
  const ncclResult_t called =
      ncclAllReduce(data, data, self.rank == 0 ? 1 : 2, ncclInt, ncclSum, mine.comm, self.stream);
  if (called != ncclInvalidUsage) throw std::runtime_error("accepted");
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  int after = 0;
  EXPECT_CALL(cudaMemcpy(&after, data, sizeof(int), cudaMemcpyDeviceToHost));
  if (after != before) throw std::runtime_error("it ran all the same");
  EXPECT_CALL(ncclCommAbort(mine.comm));
}

TEST(Mismatch, InStrictModeNothingRuns) {
  setenv("NITINOL_CHECK", "strict", 1);
  EXPECT_EQ("", run_ranks({1, 1, 1, 1}, [](Rank& self) {
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 2'000'000));
              for (const Mismatch& mismatch : mismatches()) differ(mismatch, self, data);
              must_not_run(self, reinterpret_cast<int*>(data));
              EXPECT_CALL(cudaFree(data));
            }));
  unsetenv("NITINOL_CHECK");
}

}  // namespace
}  // namespace nitinol::testing
