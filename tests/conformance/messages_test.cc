// Sends and receives: messages of a group run at the same time, keep their order, mix with collectives, and stand in
// graphs.
#include <gtest/gtest.h>

#include "cluster.h"
#include "device_memory.h"
#include "ints.h"
#include "nccl.h"

namespace nitinol::testing {
namespace {

constexpr int kCount = 5000;

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
                  EXPECT_CALL(copy_to_device(piece, values.data(), 4000));
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
