// Graphs whose launches do not fit together are told, and those that are only late are not.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "communicator_ranks.h"
#include "occupant.h"

namespace {

using namespace nitinol::gpu_testing;

class Graphs : public Ranks {
 protected:
  void TearDown() override { end(); }
  /// So that another communicator can be made.
  void end() {
    for (const cudaGraphExec_t graph : graphs_) EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
    graphs_.clear();
    Ranks::TearDown();
  }

  using Part = std::function<void(size_t rank)>;
  /// A graph of each rank with its part.
  std::vector<cudaGraphExec_t> capture(const Part& part) {
    std::vector<cudaGraphExec_t> made(ranks());
    each([&](size_t rank) {
      cudaGraph_t graph = nullptr;
      CUDA_OK(cudaStreamBeginCapture(streams[rank], cudaStreamCaptureModeThreadLocal));
      part(rank);
      CUDA_OK(cudaStreamEndCapture(streams[rank], &graph));
      instantiate(rank, graph, made[rank]);
      CUDA_OK(cudaGraphDestroy(graph));
    });
    graphs_.insert(graphs_.end(), made.begin(), made.end());
    return made;
  }
  void launch(size_t rank, const std::vector<cudaGraphExec_t>& graphs) const {
    CUDA_OK(cudaGraphLaunch(graphs[rank], streams[rank]));
  }
  void broadcast(size_t rank, size_t count, int root) const {
    NCCL_OK(ncclBroadcast(inputs[rank], outputs[rank], count, ncclInt, root, comms[rank], streams[rank]));
  }
  void send(size_t rank, size_t to, size_t count = 100) const {
    NCCL_OK(ncclSend(inputs[rank], count, ncclInt, static_cast<int>(to), comms[rank], streams[rank]));
  }
  void receive(size_t rank, size_t from, size_t count = 100) const {
    NCCL_OK(ncclRecv(outputs[rank], count, ncclInt, static_cast<int>(from), comms[rank], streams[rank]));
  }

  using Words = std::vector<std::string>;
  /// In a group: so many sends to each other rank, and so many receives from it.
  void exchange(size_t rank, size_t count, size_t sends = 1, size_t receives = 1) const {
    NCCL_OK(ncclGroupStart());
    for (size_t other = 0; other < ranks(); ++other) {
      if (other == rank) continue;
      for (size_t i = 0; i < sends; ++i) send(rank, other, count);
      for (size_t i = 0; i < receives; ++i) receive(rank, other, count);
    }
    NCCL_OK(ncclGroupEnd());
  }
  /// So that messages, copies and sums go by LL and LL128, where data tells whose it is.
  static std::array<size_t, 2> counts() { return {100, 50000}; }

  /// Too long for LL128: they go by Simple.
  static constexpr size_t kLongCount = 5'000'000;
  /// Not yet, but a message of so many waits for its receiver.
  static constexpr size_t kTooMuchForSlots = 3'500'000;

  /// Each rank launches its part, and is told all of `words`.
  void expect_told(const Part& part, const Words& words) const {
    const auto start = Clock::now();
    each([&](size_t rank) {
      part(rank);
      EXPECT_EQ(await_failure(rank), ncclInvalidUsage);
      const std::string sentence = ncclGetLastError(comms[rank]);
      for (const std::string& word : words) EXPECT_NE(sentence.find(word), std::string::npos) << sentence;
      CUDA_OK(cudaStreamSynchronize(streams[rank]));
    });
    std::printf("noticed after %.3f s: %s\n", seconds_since(start), ncclGetLastError(comms[0]));
  }
  /// The last rank launches late; nobody is told anything.
  void expect_right(const Part& part) const {
    each([&](size_t rank) {
      if (rank + 1 == ranks()) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      part(rank);
      CUDA_OK(cudaStreamSynchronize(streams[rank]));
      ncclResult_t state = ncclInternalError;
      NCCL_OK(ncclCommGetAsyncError(comms[rank], &state));
      EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(comms[rank]);
    });
  }

 private:
  std::vector<cudaGraphExec_t> graphs_;
};

TEST_F(Graphs, WithCallsThatDoNotMatchAreTold) {
  make(2);
  if (IsSkipped()) return;
  // Each waits for the other.
  const auto graphs = capture([this](size_t rank) { broadcast(rank, 100, rank == 0 ? 1 : 0); });
  for (const ncclComm_t comm : comms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ncclResult_t state = ncclInternalError;
    NCCL_OK(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclSuccess) << "nothing has run yet";
  }
  expect_told([&](size_t rank) { launch(rank, graphs); }, {"Broadcast", "root 1", "root 0"});
}

TEST_F(Graphs, WithAnotherOperatorOrTypeAreTold) {
  for (const size_t count : counts()) {
    for (const bool type_differs : {false, true}) {
      make(2);
      if (IsSkipped()) return;
      const auto graphs = capture([&](size_t rank) {
        const ncclDataType_t type = type_differs && rank == 1 ? ncclUint32 : ncclInt32;
        const ncclRedOp_t op = !type_differs && rank == 1 ? ncclAvg : ncclSum;
        NCCL_OK(ncclAllReduce(inputs[rank], outputs[rank], count, type, op, comms[rank], streams[rank]));
      });
      const std::string size = std::to_string(count);
      expect_told([&](size_t rank) { launch(rank, graphs); },
                  type_differs ? Words{"count " + size + ", type int32", "count " + size + ", type uint32"}
                               : Words{"AllReduce (count " + size, "op sum", "op avg"});
      end();
    }
  }
}

/// Their data does not tell, and nobody is held up.
TEST_F(Graphs, WithAnotherOperatorBySimpleAreTold) {
  make(2);
  if (IsSkipped()) return;
  const auto graphs = capture([this](size_t rank) { all_reduce(rank, kLongCount, rank == 0 ? ncclMax : ncclMin); });
  expect_told([&](size_t rank) { launch(rank, graphs); },
              {"AllReduce (count 5000000, type int32, op max)", "AllReduce (count 5000000, type int32, op min)"});
}

TEST_F(Graphs, WithAnotherOperatorInEverySecondCallOfManyAreTold) {
  make(2);
  if (IsSkipped()) return;
  const auto graphs = capture([this](size_t rank) {
    all_reduce(rank, kLongCount, ncclMax);
    all_reduce(rank, kLongCount, rank == 0 ? ncclMax : ncclMin);
  });
  expect_told(
      [&](size_t rank) {
        for (int i = 0; i < 500; ++i) launch(rank, graphs);
      },
      {"AllReduce (count 5000000, type int32, op max)", "AllReduce (count 5000000, type int32, op min)"});
}

TEST_F(Graphs, LaunchedInDifferentOrdersWithCallsBySimpleAreTold) {
  make(2);
  if (IsSkipped()) return;
  const auto first = capture([this](size_t rank) { all_reduce(rank, kLongCount, ncclMax); });
  const auto second = capture([this](size_t rank) { all_reduce(rank, kLongCount, ncclMin); });
  expect_told(
      [&](size_t rank) {
        launch(rank, rank == 0 ? first : second);
        launch(rank, rank == 0 ? second : first);
      },
      {"AllReduce (count 5000000, type int32, op max)", "AllReduce (count 5000000, type int32, op min)"});
}

TEST_F(Graphs, InWhichEachSendsAsTheRootAreToldOnceTheyMeet) {
  for (const size_t count : counts()) {
    make(2);
    if (IsSkipped()) return;
    const auto graphs = capture([&](size_t rank) {
      broadcast(rank, count, static_cast<int>(rank));
      broadcast(rank, 2 * count, 0);
    });
    const std::string size = std::to_string(count);
    expect_told([&](size_t rank) { launch(rank, graphs); }, {"Broadcast (count " + size + ", type int32, root 0)",
                                                             "Broadcast (count " + std::to_string(2 * count)});
    end();
  }
}

/// Each rank reduces a block first, which takes data of all others.
TEST_F(Graphs, WithReducesInTwoShotsToDifferentRootsAreTold) {
  make(3);
  if (IsSkipped()) return;
  constexpr size_t kCount = size_t{1} << 18;
  const auto graphs = capture([&](size_t rank) {
    NCCL_OK(ncclReduce(inputs[rank], outputs[rank], kCount, ncclFloat, ncclSum, rank == 1 ? 1 : 0, comms[rank],
                       streams[rank]));
  });
  expect_told([&](size_t rank) { launch(rank, graphs); },
              {"Reduce (count " + std::to_string(kCount) + ", type float32", "root 0", "root 1"});
}

TEST_F(Graphs, WithGroupsOfDifferentCollectivesAreTold) {
  make(2);
  if (IsSkipped()) return;
  const auto group_of = [this](size_t count) {
    return capture([this, count](size_t rank) {
      NCCL_OK(ncclGroupStart());
      for (size_t i = 1; i <= 2; ++i) all_reduce(rank, count * i);
      NCCL_OK(ncclGroupEnd());
    });
  };
  const auto small = group_of(100);
  const auto large = group_of(100000);
  expect_told([&](size_t rank) { launch(rank, rank == 0 ? small : large); }, {"AllReduce", "count"});
}

TEST_F(Graphs, WithMessagesOfAnotherTypeAreTold) {
  for (const size_t count : {counts()[0], counts()[1], kLongCount}) {
    make(2);
    if (IsSkipped()) return;
    const auto graphs = capture([&](size_t rank) {
      if (rank == 0) {
        NCCL_OK(ncclSend(inputs[0], count, ncclInt32, 1, comms[0], streams[0]));
      } else {
        NCCL_OK(ncclRecv(outputs[1], count, ncclFloat32, 0, comms[1], streams[1]));
      }
    });
    const std::string size = std::to_string(count);
    expect_told([&](size_t rank) { launch(rank, graphs); }, {"Recv from rank 0 (count " + size + ", type float32)",
                                                             "Send to rank 1 (count " + size + ", type int32)"});
    end();
  }
}

TEST_F(Graphs, LaunchedInDifferentOrdersAreTold) {
  make(2);
  if (IsSkipped()) return;
  const auto first = capture([this](size_t rank) { all_reduce(rank, 100); });
  const auto second = capture([this](size_t rank) { broadcast(rank, 200, 0); });
  expect_told(
      [&](size_t rank) {
        launch(rank, rank == 0 ? first : second);
        launch(rank, rank == 0 ? second : first);
      },
      {"AllReduce", "count 100", "Broadcast", "count 200"});
}

// The root waits for nobody, and what it broadcasts has connections of its own, where it is kept.
TEST_F(Graphs, LaunchedInDifferentOrdersInWhichNobodyWaitsForTheOtherAreRight) {
  make(2);
  if (IsSkipped()) return;
  const auto first = capture([this](size_t rank) { all_reduce(rank, 100); });
  const auto second = capture([this](size_t rank) { broadcast(rank, 200, 0); });
  expect_right([&](size_t rank) {
    launch(rank, rank == 1 ? first : second);
    launch(rank, rank == 1 ? second : first);
  });
}

TEST_F(Graphs, AndCallsInDifferentOrdersAreTold) {
  make(2);
  if (IsSkipped()) return;
  const auto graphs = capture([this](size_t rank) { all_reduce(rank, 100); });
  expect_told(
      [&](size_t rank) {
        if (rank == 0) launch(rank, graphs);
        broadcast(rank, 200, 0);
        if (rank != 0) launch(rank, graphs);
      },
      {"AllReduce", "count 100", "Broadcast", "count 200"});
}

TEST_F(Graphs, WithReceivesThatWaitForEachOtherAreTold) {
  make(3);
  if (IsSkipped()) return;
  const auto graphs = capture([this](size_t rank) {
    receive(rank, (rank + 1) % ranks());
    send(rank, (rank + ranks() - 1) % ranks());
  });
  expect_told([&](size_t rank) { launch(rank, graphs); }, {"wait for each other in a circle"});
}

/// What they wait for does not come from launches that do send something.
TEST_F(Graphs, WithGroupsThatReceiveMoreThanIsSentAreTold) {
  for (const size_t count : {counts()[0], counts()[1], kLongCount}) {
    for (const int size : {2, 3}) {
      make(size);
      if (IsSkipped()) return;
      const auto graphs = capture([&](size_t rank) { exchange(rank, count, 1, 2); });
      expect_told([&](size_t rank) { launch(rank, graphs); }, {"wait for each other in a circle"});
      end();
    }
  }
}

TEST_F(Graphs, AndCallsThatReceiveMoreThanIsSentAreTold) {
  make(3);
  if (IsSkipped()) return;
  const auto graphs = capture([&](size_t rank) { exchange(rank, 100, 1, 2); });
  expect_told([&](size_t rank) { rank == 0 ? launch(rank, graphs) : exchange(rank, 100, 1, 2); },
              {"wait for each other in a circle"});
}

TEST_F(Graphs, WithGroupsThatSendMoreThanIsReceivedAndThereIsRoomForAreTold) {
  for (const size_t count : {kTooMuchForSlots, kLongCount}) {
    for (const int size : {2, 3}) {
      make(size);
      if (IsSkipped()) return;
      const auto graphs = capture([&](size_t rank) { exchange(rank, count, 2, 1); });
      expect_told([&](size_t rank) { launch(rank, graphs); }, {"wait for each other in a circle"});
      end();
    }
  }
}

TEST_F(Graphs, WithManyShortMessagesMoreThanAreReceivedAreTold) {
  constexpr size_t kMoreThanSlots = 40;
  for (const int size : {2, 3}) {
    make(size);
    if (IsSkipped()) return;
    const auto graphs = capture([&](size_t rank) { exchange(rank, 100, kMoreThanSlots, 1); });
    expect_told([&](size_t rank) { launch(rank, graphs); }, {"wait for each other in a circle"});
    end();
  }
}

/// The system may have to fetch what they send and receive.
TEST_F(Graphs, WithGroupsOfManagedMemoryThatReceiveMoreThanIsSentAreTold) {
  for (const size_t count : {counts()[0], counts()[1], kLongCount}) {
    make(2);
    if (IsSkipped()) return;
    std::vector<int*> managed(ranks());
    for (int*& memory : managed) {
      CUDA_OK(cudaMallocManaged(&memory, 3 * count * sizeof(int)));
      std::fill_n(memory, 3 * count, 7);
    }
    const auto graphs = capture([&](size_t rank) {
      const int other = static_cast<int>(1 - rank);
      NCCL_OK(ncclGroupStart());
      NCCL_OK(ncclSend(managed[rank], count, ncclInt, other, comms[rank], streams[rank]));
      for (const size_t which : {1, 2}) {
        NCCL_OK(ncclRecv(managed[rank] + which * count, count, ncclInt, other, comms[rank], streams[rank]));
      }
      NCCL_OK(ncclGroupEnd());
    });
    expect_told([&](size_t rank) { launch(rank, graphs); }, {"wait for each other in a circle"});
    end();
    for (int* const memory : managed) CUDA_OK(cudaFree(memory));
  }
}

/// By one of the two more is received than is sent.
TEST_F(Graphs, WithGroupsOfSeveralProtocolsThatReceiveMoreThanIsSentAreTold) {
  for (const size_t missing : {counts()[0], kLongCount}) {
    make(2);
    if (IsSkipped()) return;
    const auto graphs = capture([&](size_t rank) {
      NCCL_OK(ncclGroupStart());
      for (const size_t count : {counts()[0], kLongCount}) exchange(rank, count, 1, count == missing ? 2 : 1);
      NCCL_OK(ncclGroupEnd());
    });
    expect_told([&](size_t rank) { launch(rank, graphs); }, {"wait for each other in a circle"});
    end();
  }
}

/// Each of two waits in what goes by another protocol, and is through with the rest.
TEST_F(Graphs, InWhichRanksWaitForEachOtherByDifferentProtocolsAreTold) {
  for (const size_t who : {0U, 1U}) {
    make(2);
    if (IsSkipped()) return;
    const auto graphs = capture([&](size_t rank) {
      NCCL_OK(ncclGroupStart());
      exchange(rank, counts()[0], 1, rank == who ? 2 : 1);
      exchange(rank, kLongCount, 1, rank == who ? 1 : 2);
      NCCL_OK(ncclGroupEnd());
    });
    expect_told([&](size_t rank) { launch(rank, graphs); }, {"wait for each other in a circle"});
    end();
  }
}

TEST_F(Graphs, WithAReceiveBehindAnExchangeThatWaitsForOneInItAreTold) {
  make(3);
  if (IsSkipped()) return;
  const auto graphs = capture([this](size_t rank) {
    if (rank == 0) {
      receive(rank, 1);
      receive(rank, 1);  // sent once rank 1 has what rank 2 sends, which waits for this rank
      send(rank, 2);
    } else if (rank == 1) {
      NCCL_OK(ncclGroupStart());
      send(rank, 0);
      receive(rank, 2);
      NCCL_OK(ncclGroupEnd());
      send(rank, 0);
    } else {
      receive(rank, 0);
      send(rank, 1);
    }
  });
  expect_told([&](size_t rank) { launch(rank, graphs); }, {"wait for each other in a circle"});
}

TEST_F(Graphs, OfMessagesOfSeveralProtocolsThatNobodySendsAreTold) {
  make(3);
  if (IsSkipped()) return;
  const auto graphs = capture([this](size_t rank) {  // to the next one, from the next one
    NCCL_OK(ncclGroupStart());
    for (const size_t count : {size_t{100}, kLongCount}) {
      send(rank, (rank + 1) % ranks(), count);
      receive(rank, (rank + 1) % ranks(), count);
    }
    NCCL_OK(ncclGroupEnd());
  });
  expect_told([&](size_t rank) { launch(rank, graphs); }, {"wait for each other in a circle"});
}

/// Of their kernels only a part has begun for three seconds, if any has, and that waits for what has not.
TEST_F(Graphs, OnGPUsThatHaveNoRoomForAllOfAKernelAreRight) {
  make(2);
  if (IsSkipped()) return;
  const auto graphs = capture([this](size_t rank) {
    for (const size_t count : {counts()[1], kLongCount}) exchange(rank, count);
  });
  int* leave = nullptr;
  CUDA_OK(cudaHostAlloc(&leave, sizeof(int), cudaHostAllocPortable));
  *leave = 0;
  std::vector<cudaStream_t> apart;
  for (int device = 0; device < std::min(gpus(), 2); ++device) {
    cudaStream_t stream = nullptr;
    CUDA_OK(cudaSetDevice(device));
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_OK(occupy(leave, stream));
    apart.push_back(stream);
  }
  each([&](size_t rank) { launch(rank, graphs); });
  std::this_thread::sleep_for(std::chrono::seconds(3));
  const auto expect_no_error = [&] {
    for (size_t rank = 0; rank < ranks(); ++rank) {
      ncclResult_t state = ncclInternalError;
      NCCL_OK(ncclCommGetAsyncError(comms[rank], &state));
      EXPECT_EQ(state, ncclSuccess) << ncclGetLastError(comms[rank]);
    }
  };
  expect_no_error();
  for (const cudaStream_t stream : streams) EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady) << "there was room";
  *static_cast<volatile int*>(leave) = 1;
  for (const cudaStream_t stream : streams) CUDA_OK(cudaStreamSynchronize(stream));
  expect_no_error();
  for (const cudaStream_t stream : apart) {
    CUDA_OK(cudaStreamSynchronize(stream));
    CUDA_OK(cudaStreamDestroy(stream));
  }
  CUDA_OK(cudaFreeHost(leave));
}

TEST_F(Graphs, WithAReceiveThatWaitsForOneInACollectiveAreTold) {
  make(2);
  if (IsSkipped()) return;
  const auto graphs = capture([this](size_t rank) {
    if (rank == 0) receive(rank, 1);
    all_reduce(rank, 100);
    if (rank == 1) send(rank, 0);
  });
  expect_told([&](size_t rank) { launch(rank, graphs); }, {"AllReduce", "count 100"});
}

TEST_F(Graphs, OfWhichOneIsLateAreRight) {
  make(3);
  if (IsSkipped()) return;
  const auto graphs = capture([this](size_t rank) {
    all_reduce(rank, 100);
    all_reduce(rank, kBytes / sizeof(int));
    all_reduce(rank, kLongCount, ncclMax);
    broadcast(rank, 5000, 1);
    broadcast(rank, kBytes / sizeof(int), 2);
    NCCL_OK(ncclGroupStart());
    for (size_t other = 0; other < ranks(); ++other) {
      for (const size_t count : {size_t{100}, kLongCount}) {
        send(rank, other, count);
        receive(rank, other, count);
      }
    }
    NCCL_OK(ncclGroupEnd());
  });
  expect_right([&](size_t rank) {
    for (int i = 0; i < 3; ++i) launch(rank, graphs);
    all_reduce(rank, 7);
    launch(rank, graphs);
  });
}

TEST_F(Graphs, WithCallsThatMoveNothingAreRight) {
  make(2);
  if (IsSkipped()) return;
  const auto graphs = capture([this](size_t rank) {
    for (const size_t count : {0, 8, 0, 0, 8, 0}) all_reduce(rank, count);
  });
  expect_right([&](size_t rank) {
    launch(rank, graphs);
    launch(rank, graphs);
  });
}

TEST_F(Graphs, InWhichOneWaitsForAChainOfOthersAreRight) {
  make(4);
  if (IsSkipped()) return;
  const auto graphs = capture([this](size_t rank) {
    if (rank + 1 < ranks()) receive(rank, rank + 1);  // the last one begins
    if (rank > 0) send(rank, rank - 1);
    all_reduce(rank, 100);
  });
  expect_right([&](size_t rank) { launch(rank, graphs); });
}

TEST_F(Graphs, ThatWaitForARankThatHasLeftAreTold) {
  make(2);
  if (IsSkipped()) return;
  const auto graphs = capture([this](size_t rank) { all_reduce(rank, 100); });
  std::thread leaver([this] {
    CUDA_OK(cudaSetDevice(device(1)));
    static_cast<void>(ncclCommFinalize(comms[1]));  // waits for rank 0
  });
  CUDA_OK(cudaSetDevice(device(0)));
  launch(0, graphs);
  EXPECT_EQ(await_failure(0), ncclInvalidUsage);
  const std::string sentence = ncclGetLastError(comms[0]);
  EXPECT_NE(sentence.find("finalizes or destroys"), std::string::npos) << sentence;
  CUDA_OK(cudaStreamSynchronize(streams[0]));
  leaver.join();
}

}  // namespace
