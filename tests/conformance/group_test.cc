// Groups: nesting, aggregation, several communicators and streams, messages that must run at the same time.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "cluster.h"
#include "nccl.h"

namespace nitinol::testing {
namespace {

constexpr int kCount = 5000;

/// A device array of ints.
class Ints {
 public:
  explicit Ints(int count, int value = -1) : count_(count) {
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data_), sizeof(int) * static_cast<size_t>(count_)));
    fill(value);
  }
  ~Ints() { static_cast<void>(cudaFree(data_)); }
  Ints(const Ints&) = delete;
  Ints& operator=(const Ints&) = delete;
  int* data() const { return data_; }
  void fill(int value) const {
    const std::vector<int> values(static_cast<size_t>(count_), value);
    EXPECT_CALL(cudaMemcpy(data_, values.data(), sizeof(int) * values.size(), cudaMemcpyHostToDevice));
  }
  /// Throws unless elements [from, from + count) are all `value`.
  void must_be(int value, int from, int count, const char* what) const {
    std::vector<int> values(static_cast<size_t>(count_));
    EXPECT_CALL(cudaMemcpy(values.data(), data_, sizeof(int) * values.size(), cudaMemcpyDeviceToHost));
    for (int i = from; i < from + count; ++i) {
      const int got = values[static_cast<size_t>(i)];
      if (got != value) {
        throw std::runtime_error(std::string(what) + ": element " + std::to_string(i) + " is " + std::to_string(got) +
                                 ", should be " + std::to_string(value));
      }
    }
  }
  void must_be(int value, const char* what) const { must_be(value, 0, count_, what); }

 private:
  int count_;
  int* data_ = nullptr;
};

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

TEST(Group, EndingAGroupThatIsNotOpenIsRefused) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              if (ncclGroupEnd() != ncclInvalidUsage) throw std::runtime_error("accepted");
              if (std::string(ncclGetLastError(nullptr)) != "ncclGroupEnd: not in a group call.") {
                throw std::runtime_error(ncclGetLastError(nullptr));
              }
              if (ncclGroupSimulateEnd(nullptr) != ncclInvalidUsage) throw std::runtime_error("simulated");
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
              EXPECT_CALL(ncclCommInitAll(comms, kRanks, nullptr));
              std::vector<std::unique_ptr<Ints>> data;
              for (int i = 0; i < kRanks; ++i) {
                EXPECT_CALL(cudaSetDevice(i));
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

// A program that reads results without having waited for the stream gets what was there before.
TEST(Group, CallsReturnBeforeWhatTheyAskForIsDone) {
  EXPECT_EQ("", run_ranks({2, 1}, [](Rank& self) {
              Gate gate;
              const Ints data(kCount, self.rank);
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

// ---- Messages ------------------------------------------------------------------------------------------------------

TEST(Messages, AllToAllWithSelfAndManySizesInOneGroup) {
  EXPECT_EQ("", run_ranks({3, 1, 2}, [](Rank& self) {
              // Message from s to r has (s * 7 + r * 3) % 5 * 4000 elements; some are empty.
              const auto size = [](int from, int to) { return (from * 7 + to * 3) % 5 * 4000; };
              std::vector<std::unique_ptr<Ints>> out;
              std::vector<std::unique_ptr<Ints>> in;
              EXPECT_CALL(ncclGroupStart());
              for (int peer = 0; peer < self.ranks; ++peer) {
                out.push_back(std::make_unique<Ints>(size(self.rank, peer) + 1, 100 * self.rank + peer));
                in.push_back(std::make_unique<Ints>(size(peer, self.rank) + 1));
                EXPECT_CALL(ncclSend(out.back()->data(), static_cast<size_t>(size(self.rank, peer)), ncclInt, peer,
                                     self.comm, self.stream));
              }
              for (int peer = self.ranks - 1; peer >= 0; --peer) {
                EXPECT_CALL(ncclRecv(in[static_cast<size_t>(peer)]->data(), static_cast<size_t>(size(peer, self.rank)),
                                     ncclInt, peer, self.comm, self.stream));
              }
              EXPECT_CALL(ncclGroupEnd());
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              for (int peer = 0; peer < self.ranks; ++peer) {
                const Ints& got = *in[static_cast<size_t>(peer)];
                got.must_be(100 * peer + self.rank, 0, size(peer, self.rank), "message");
                got.must_be(-1, size(peer, self.rank), 1, "behind the message");
              }
            }));
}

TEST(Messages, WithOnePeerKeepTheirOrder) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              const Ints data(40 * 1000);
              const int peer = 1 - self.rank;
              EXPECT_CALL(ncclGroupStart());
              for (int i = 0; i < 40; ++i) {
                int* const piece = data.data() + 1000 * i;
                const size_t count = static_cast<size_t>(25 * i);
                if (self.rank == 0) {
                  const std::vector<int> values(1000, i);
                  EXPECT_CALL(cudaMemcpy(piece, values.data(), 4000, cudaMemcpyHostToDevice));
                  EXPECT_CALL(ncclSend(piece, count, ncclInt, peer, self.comm, self.stream));
                } else {
                  EXPECT_CALL(ncclRecv(piece, count, ncclInt, peer, self.comm, self.stream));
                }
              }
              EXPECT_CALL(ncclGroupEnd());
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              for (int i = 0; i < 40 && self.rank == 1; ++i) {
                data.must_be(i, 1000 * i, 25 * i, "piece");
                data.must_be(-1, 1000 * i + 25 * i, 1000 - 25 * i, "rest");
              }
            }));
}

TEST(Messages, OfAGroupDoNotWaitForEachOther) {
  constexpr int kLong = 5 << 20;
  constexpr int kMedium = 2 << 20;
  const auto exchange = [](Rank& self) {
    const auto one_by_one = [&] { return self.rank == 0; };
    const auto group = [&](const auto& calls) {
      if (!one_by_one()) EXPECT_CALL(ncclGroupStart());
      calls();
      if (!one_by_one()) EXPECT_CALL(ncclGroupEnd());
    };
    const auto send = [&](const Ints& data, size_t count) {
      EXPECT_CALL(ncclSend(data.data(), count, ncclInt, 1 - self.rank, self.comm, self.stream));
    };
    const auto receive = [&](const Ints& data, size_t count) {
      EXPECT_CALL(ncclRecv(data.data(), count, ncclInt, 1 - self.rank, self.comm, self.stream));
    };
    const Ints large(kLong, 10 + self.rank);
    const Ints medium(kMedium, 20 + self.rank);
    const Ints small(100, 30 + self.rank);
    group([&] {
      self.rank == 0 ? send(large, kLong) : receive(large, kLong);
      self.rank == 0 ? send(small, 100) : receive(small, 100);
    });
    group([&] {
      self.rank == 0 ? send(large, kLong) : send(medium, kMedium);
      self.rank == 0 ? receive(medium, kMedium) : receive(large, kLong);
    });
    group([&] {
      self.rank == 0 ? receive(large, kLong) : send(large, kLong);
      self.rank == 0 ? receive(medium, kMedium) : send(medium, kMedium);
    });
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
    large.must_be(10, "large");
    medium.must_be(21, "medium");
    small.must_be(30, 0, 1, "small");
  };
  for (const std::vector<int>& processes : {std::vector<int>{1, 1}, {2}}) EXPECT_EQ("", run_ranks(processes, exchange));
}

TEST(Messages, ToOneselfWithoutAMatchAreRefused) {
  EXPECT_EQ("", run_ranks({1}, [](Rank& self) {
              const Ints data(10, 3);
              if (ncclSend(data.data(), 10, ncclInt, 0, self.comm, self.stream) != ncclInvalidUsage) {
                throw std::runtime_error("accepted");
              }
              ncclResult_t state = ncclSuccess;
              EXPECT_CALL(ncclCommGetAsyncError(self.comm, &state));
            }));
}

TEST(Messages, ShareAGroupWithCollectives) {
  EXPECT_EQ("", run_ranks({2, 2}, [](Rank& self) {
              const Ints sum(kCount, 1);
              const Ints out(kCount, self.rank);
              const Ints in(kCount);
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclSend(out.data(), kCount, ncclInt, (self.rank + 1) % 4, self.comm, self.stream));
              EXPECT_CALL(ncclAllReduce(sum.data(), sum.data(), kCount, ncclInt, ncclSum, self.comm, self.stream));
              EXPECT_CALL(ncclRecv(in.data(), kCount, ncclInt, (self.rank + 3) % 4, self.comm, self.stream));
              EXPECT_CALL(ncclGroupEnd());
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              sum.must_be(4, "sum");
              in.must_be((self.rank + 3) % 4, "message");
            }));
}

// ---- Graphs --------------------------------------------------------------------------------------------------------

TEST(Graph, ReplaysMixWithEagerCalls) {
  EXPECT_EQ("", run_ranks({2, 1}, [](Rank& self) {
              const Ints data(kCount, 1);
              const Ints copy(kCount);
              cudaGraph_t graph = nullptr;
              cudaGraphExec_t exec = nullptr;
              EXPECT_CALL(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal));
              EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, self.comm, self.stream));
              EXPECT_CALL(cudaMemcpyAsync(copy.data(), data.data(), sizeof(int) * kCount, cudaMemcpyDeviceToDevice,
                                          self.stream));
              EXPECT_CALL(cudaStreamEndCapture(self.stream, &graph));
              EXPECT_CALL(cudaGraphInstantiate(&exec, graph, 0));
              data.must_be(1, "capturing runs nothing");
              int wanted = 1;
              for (int i = 0; i < 5; ++i) {
                EXPECT_CALL(cudaGraphLaunch(exec, self.stream));
                EXPECT_CALL(ncclAllReduce(data.data(), data.data(), kCount, ncclInt, ncclSum, self.comm, self.stream));
                EXPECT_CALL(cudaStreamSynchronize(self.stream));
                copy.must_be(wanted * 3, "captured");
                wanted *= 9;
                data.must_be(wanted, "eager");
              }
              EXPECT_CALL(cudaGraphExecDestroy(exec));
              EXPECT_CALL(cudaGraphDestroy(graph));
            }));
}

TEST(Graph, CanHoldAGroupOfMessagesAndTheFirstUseOfACommunicator) {
  EXPECT_EQ("", run_ranks({1, 1, 1}, [](Rank& self) {
              const Ints out(kCount, self.rank);
              const Ints in(kCount);
              cudaGraph_t graph = nullptr;
              cudaGraphExec_t exec = nullptr;
              EXPECT_CALL(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeGlobal));
              EXPECT_CALL(ncclGroupStart());
              EXPECT_CALL(ncclSend(out.data(), kCount, ncclInt, (self.rank + 1) % 3, self.comm, self.stream));
              EXPECT_CALL(ncclRecv(in.data(), kCount, ncclInt, (self.rank + 2) % 3, self.comm, self.stream));
              EXPECT_CALL(ncclGroupEnd());
              EXPECT_CALL(cudaStreamEndCapture(self.stream, &graph));
              EXPECT_CALL(cudaGraphInstantiate(&exec, graph, 0));
              for (int i = 0; i < 3; ++i) {
                in.fill(-1);
                EXPECT_CALL(cudaGraphLaunch(exec, self.stream));
                EXPECT_CALL(cudaStreamSynchronize(self.stream));
                in.must_be((self.rank + 2) % 3, "message");
              }
              EXPECT_CALL(cudaGraphExecDestroy(exec));
              EXPECT_CALL(cudaGraphDestroy(graph));
            }));
}

}  // namespace
}  // namespace nitinol::testing
