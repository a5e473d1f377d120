// Groups: nesting, aggregation, several communicators and streams.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "cluster.h"
#include "ints.h"
#include "nccl.h"

namespace nitinol::testing {
namespace {

constexpr int kCount = 5000;

int sum_of_ranks(int ranks) { return ranks * (ranks - 1) / 2; }

TEST(Group, NestsAndOnlyTheOutermostEndActs) {
  EXPECT_EQ("", run_ranks({3}, [](Rank& self) {
              const Ints data(kCount, self.rank);
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, self.comm, self.stream));
              EXPECT_CALL(ncclGroupEnd());
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              data.must_be(self.rank, "before the outer end");
              EXPECT_CALL(ncclGroupEnd());
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              data.must_be(sum_of_ranks(3), "after the outer end");
            }));
}

TEST(Group, HoldsManyOperationsOfDifferentKinds) {
  EXPECT_EQ("", run_ranks({2, 2}, [](Rank& self) {
              constexpr int kOperations = 100;
              const Ints sums(kOperations * 10, self.rank);
              const Ints maxima(kOperations * 10, self.rank);
              const Ints news(kOperations * 10, self.rank + 50);
              EXPECT_CALL(ncclGroupStart());
              for (int i = 0; i < kOperations; ++i) {
                int* const sum = sums.data() + 10 * i;
                int* const maximum = maxima.data() + 10 * i;
                int* const piece = news.data() + 10 * i;
                EXPECT_CALL(ncclAllReduce(sum, sum, 10, ncclInt, ncclSum, self.comm, self.stream));
                EXPECT_CALL(ncclAllReduce(maximum, maximum, 10, ncclInt, ncclMax, self.comm, self.stream));
                EXPECT_CALL(ncclBroadcast(piece, piece, 10, ncclInt, i % 4, self.comm, self.stream));
              }
              EXPECT_CALL(ncclGroupEnd());
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              sums.must_be(6, "sums");
              maxima.must_be(3, "maxima");
              for (int i = 0; i < kOperations; ++i) news.must_be(50 + i % 4, 10 * i, 10, "broadcasts");
            }));
}

TEST(Group, OneThreadDrivesAllRanks) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              constexpr int kRanks = 8;
              ncclComm_t comms[kRanks];
              cudaStream_t streams[kRanks];
              int devices[kRanks];
              for (int i = 0; i < kRanks; ++i) {
                use_device_of(i);
                EXPECT_CALL(cudaGetDevice(&devices[i]));
              }
              EXPECT_CALL(ncclCommInitAll(comms, kRanks, devices));
              std::vector<std::unique_ptr<Ints>> data;
              for (int i = 0; i < kRanks; ++i) {
                EXPECT_CALL(cudaSetDevice(devices[i]));
                EXPECT_CALL(cudaStreamCreate(&streams[i]));
                data.push_back(std::make_unique<Ints>(kCount, i));
              }
              EXPECT_CALL(ncclGroupStart());
              for (int i = 0; i < kRanks; ++i) {
                int* const d = data[static_cast<size_t>(i)]->data();
                EXPECT_CALL(ncclAllReduce(d, d, kCount, ncclInt, ncclSum, comms[i], streams[i]));
              }
              EXPECT_CALL(ncclGroupEnd());
              for (int i = 0; i < kRanks; ++i) {
                EXPECT_CALL(cudaStreamSynchronize(streams[i]));
                data[static_cast<size_t>(i)]->must_be(sum_of_ranks(kRanks), "sum");
                EXPECT_CALL(ncclCommDestroy(comms[i]));
              }
            }));
}

TEST(Group, MakesTheRanksOfAllDevicesAtItsEnd) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              constexpr int kRanks = 2;
              ncclComm_t first[kRanks];
              ncclComm_t second[kRanks];
              const int devices[kRanks] = {0, 0};
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclCommInitAll(first, kRanks, devices));
              EXPECT_CALL(ncclCommInitAll(second, kRanks, devices));
              EXPECT_CALL(ncclGroupEnd());
              for (int rank = 0; rank < kRanks; ++rank) {
                expect_place(first[rank], rank, kRanks);
                expect_place(second[rank], rank, kRanks);
                EXPECT_CALL(ncclCommDestroy(first[rank]));
                EXPECT_CALL(ncclCommDestroy(second[rank]));
              }
              EXPECT_CALL(ncclGroupStart());
              const int unknown[kRanks] = {0, 4711};
              expect_that(ncclCommInitAll(first, kRanks, unknown) == ncclInvalidArgument, "no such device");
              expect_that(ncclGroupEnd() == ncclInvalidArgument, "the group");
            }));
}

/// What the handle was written to may be gone when the group ends: a variable of a function, as in NVIDIA's bindings.
TEST(Group, GivesTheHandlesOfRanksThatItMakesAtOnce) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              std::vector<ncclComm_t> comms(3);
              EXPECT_CALL(ncclGroupStart());
              for (int rank = 0; rank < 3; ++rank) {
                use_device_of(rank);
                ncclComm_t of_the_call = nullptr;
                EXPECT_CALL(ncclCommInitRank(&of_the_call, 3, id, rank));
                expect_that(of_the_call != nullptr, "no handle");
                comms[static_cast<size_t>(rank)] = std::exchange(of_the_call, nullptr);
              }
              EXPECT_CALL(ncclGroupEnd());
              for (int rank = 0; rank < 3; ++rank) expect_place(comms[static_cast<size_t>(rank)], rank, 3);
              for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(Group, ThatCannotMakeARankLeavesAHandleToAFailedOne) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              ncclComm_t comm = nullptr;
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclCommInitRank(&comm, 2, id, 0));
              ncclComm_t none = nullptr;
              expect_that(ncclCommInitRank(&none, 2, id, 7) == ncclInvalidArgument, "rank 7 of 2");
              expect_that(ncclGroupEnd() == ncclInvalidArgument, "the group");
              expect_that(none == nullptr && comm != nullptr, "the handles");
              expect_that(state_of(comm) == ncclInvalidArgument, "the state");
              EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(Group, SpansCommunicatorsOfTheSameRanks) {
  EXPECT_EQ("", run_ranks({2, 1}, [](Rank& self) {
              ncclComm_t second = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, -self.rank, &second, nullptr));
              const Ints a(kCount, self.rank);
              const Ints b(kCount, self.rank);
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclAllReduce(a.data(), a.data(), kCount, ncclInt, ncclSum, self.comm, self.stream));
              EXPECT_CALL(ncclBroadcast(b.data(), b.data(), kCount, ncclInt, 0, second, self.stream));
              EXPECT_CALL(ncclGroupEnd());
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              a.must_be(3, "sum on the first");
              b.must_be(2, "the second's rank 0 is the first's rank 2");
              EXPECT_CALL(ncclCommDestroy(second));
            }));
}

TEST(Group, JoinsAllStreamsThatItUses) {
  EXPECT_EQ("", run_ranks({2}, [](Rank& self) {
              cudaStream_t other = nullptr;
              EXPECT_CALL(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
              const Ints a(kCount, self.rank);
              const Ints b(kCount);
              for (int round = 0; round < 20; ++round) {
                a.fill(self.rank + round);
                EXPECT_CALL(ncclGroupStart());
                EXPECT_CALL(ncclAllReduce(a.data(), a.data(), kCount, ncclInt, ncclSum, self.comm, self.stream));
                EXPECT_CALL(ncclAllReduce(a.data(), b.data(), kCount, ncclInt, ncclMax, self.comm, other));
                EXPECT_CALL(ncclGroupEnd());
                // Either stream alone is enough to wait for the whole group.
                EXPECT_CALL(cudaStreamSynchronize(round % 2 == 0 ? other : self.stream));
                a.must_be(1 + 2 * round, "sum");
                b.must_be(1 + 2 * round, "maximum of the sums");
              }
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              EXPECT_CALL(cudaStreamSynchronize(other));
              EXPECT_CALL(cudaStreamDestroy(other));
            }));
}

/// Holds a stream up until it is opened.
struct Gate {
  std::atomic<bool> is_open{false};
  void hold_up(cudaStream_t stream) {
    const auto wait = [](void* gate) { static_cast<Gate*>(gate)->is_open.wait(false); };
    EXPECT_CALL(cudaLaunchHostFunc(stream, wait, this));
  }
  void open() {
    is_open = true;
    is_open.notify_all();
  }
};

/// CUDA may wait for the streams of a GPU when it maps memory, as for a communicator's first operation.
/// `data` is to last: freeing it waits for what others of the GPU hold up.
void reach_memory(Rank& self, const Ints& data) {
  EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, self.comm, self.stream));
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
}

// A program that reads results without having waited for the stream gets what was there before.
TEST(Group, CallsReturnBeforeWhatTheyAskForIsDone) {
  EXPECT_EQ("", run_ranks({2, 1}, [](Rank& self) {
              Gate gate;
              const Ints first(kCount, self.rank);
              const Ints data(kCount, self.rank);
              reach_memory(self, first);
              gate.hold_up(self.stream);
              EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, self.comm, self.stream));
              const cudaError_t state = cudaStreamQuery(self.stream);
              data.must_be(self.rank, "before the stream was waited for");
              gate.open();
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              data.must_be(sum_of_ranks(3), "afterwards");
              if (state != cudaErrorNotReady) throw std::runtime_error("the stream claimed to be done");
            }));
}

TEST(Group, BeginsWhenAllItsStreamsAreThroughWithWhatCameBefore) {
  EXPECT_EQ("", run_ranks({2}, [](Rank& self) {
              Gate gate;
              cudaStream_t other = nullptr;
              EXPECT_CALL(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
              const Ints a(kCount, self.rank);
              const Ints b(kCount, self.rank);
              const Ints first(kCount, self.rank);
              reach_memory(self, first);
              gate.hold_up(other);
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclAllReduce(a.data(), a.data(), kCount, ncclInt, ncclSum, self.comm, self.stream));
              EXPECT_CALL(ncclAllReduce(b.data(), b.data(), kCount, ncclInt, ncclSum, self.comm, other));
              EXPECT_CALL(ncclGroupEnd());
              bool waits = true;
              for (int i = 0; i < 1000; ++i) waits = waits && cudaStreamQuery(self.stream) == cudaErrorNotReady;
              a.must_be(self.rank, "while the other stream is held up");
              gate.open();
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              a.must_be(1, "afterwards");
              b.must_be(1, "in the other stream, afterwards");
              EXPECT_CALL(cudaStreamDestroy(other));
              if (!waits) throw std::runtime_error("the group began too early");
            }));
}

TEST(Group, SuccessiveOperationsKeepTheirOrderOverStreams) {
  EXPECT_EQ(
      "", run_ranks({1, 1, 1}, [](Rank& self) {
        cudaStream_t streams[3] = {self.stream, nullptr, nullptr};
        EXPECT_CALL(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
        EXPECT_CALL(cudaStreamCreateWithFlags(&streams[2], cudaStreamNonBlocking));
        const Ints data(kCount, 1);
        for (int i = 0; i < 9; ++i) {
          EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, self.comm, streams[i % 3]));
        }
        EXPECT_CALL(cudaStreamSynchronize(streams[8 % 3]));
        data.must_be(19683, "3 to the power of 9");
        EXPECT_CALL(cudaStreamDestroy(streams[1]));
        EXPECT_CALL(cudaStreamDestroy(streams[2]));
      }));
}

}  // namespace
}  // namespace nitinol::testing
