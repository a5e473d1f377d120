// Kernels of one process at the same time on the same GPUs. Communicators, so many that not all their kernels fit on a
// GPU: what comes first on one GPU may not keep out what another waits for (this needs several GPUs; ranks that share
// one have room). And threads that launch at the same moment.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "communicator_ranks.h"
#include "gate.h"
#include "gpus.h"
#include "nccl.h"

namespace {

using nitinol::gpu_testing::Clock;
using nitinol::gpu_testing::Gate;
using nitinol::gpu_testing::gpus;
using nitinol::gpu_testing::Ranks;
using nitinol::gpu_testing::seconds_since;

constexpr size_t kMost = size_t{16} << 20;  ///< elements: 64 MB, for which kernels are largest
constexpr size_t kCrowd = 8;                ///< communicators; half of them fill a GPU

struct Place {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  cudaStream_t graph = nullptr;  ///< where a graph runs that uses it, besides
  int* input = nullptr;
  int* output = nullptr;
};

/// Communicators with a rank on each GPU.
class Communicators : public testing::Test {
 protected:
  void make(size_t communicators) {
    if (gpus() < 2) GTEST_SKIP() << "fewer than two GPUs here";
    std::vector<int> devices(static_cast<size_t>(gpus()));
    for (size_t i = 0; i < devices.size(); ++i) devices[i] = static_cast<int>(i);
    for (size_t c = 0; c < communicators; ++c) {
      std::vector<ncclComm_t> comms(devices.size());
      NCCL_OK(ncclCommInitAll(comms.data(), static_cast<int>(comms.size()), devices.data()));
      for (const int device : devices) {
        Place place;
        place.comm = comms[static_cast<size_t>(device)];
        CUDA_OK(cudaSetDevice(device));
        CUDA_OK(cudaStreamCreateWithFlags(&place.stream, cudaStreamNonBlocking));
        CUDA_OK(cudaMalloc(reinterpret_cast<void**>(&place.input), kMost * sizeof(int)));
        CUDA_OK(cudaMalloc(reinterpret_cast<void**>(&place.output), kMost * sizeof(int)));
        std::vector<int> numbers(kMost);
        for (size_t i = 0; i < kMost; ++i) numbers[i] = number(c, i) * (device + 1);
        CUDA_OK(nitinol::copy_to_device(place.input, numbers.data(), kMost * sizeof(int)));
        places_.push_back(place);
      }
    }
    for (size_t c = 0; c < communicators; ++c) {  // nothing is to be loaded while another waits
      for (const size_t count : {size_t{1000}, kMost / 64, kMost}) {
        for (size_t device = 0; device < devices.size(); ++device) all_reduce(c, device, count);
      }
    }
    ASSERT_TRUE(all_end());
  }
  void TearDown() override {
    for (const Place& place : places_) EXPECT_EQ(ncclCommAbort(place.comm), ncclSuccess);
    for (const Place& place : places_) {
      EXPECT_EQ(cudaStreamDestroy(place.stream), cudaSuccess);
      EXPECT_EQ(cudaFree(place.input), cudaSuccess);
      EXPECT_EQ(cudaFree(place.output), cudaSuccess);
    }
  }

  static int number(size_t communicator, size_t i) { return static_cast<int>((i * 2654435761U + communicator) % 1000); }
  static size_t ranks() { return static_cast<size_t>(gpus()); }
  Place& at(size_t communicator, size_t device) { return places_[communicator * ranks() + device]; }

  void all_reduce(size_t communicator, size_t device, size_t count) {
    const Place& place = at(communicator, device);
    CUDA_OK(cudaSetDevice(static_cast<int>(device)));
    NCCL_OK(ncclAllReduce(place.input, place.output, count, ncclInt, ncclSum, place.comm, place.stream));
  }

  /// Kernels that wait for each other for ever are aborted.
  bool all_end() {
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    const auto ended = [](const Place& place) {
      const bool graph = place.graph == nullptr || cudaStreamQuery(place.graph) != cudaErrorNotReady;
      return graph && cudaStreamQuery(place.stream) != cudaErrorNotReady;
    };
    while (Clock::now() < deadline) {
      if (std::all_of(places_.begin(), places_.end(), ended)) return true;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    for (Place& place : places_) {
      static_cast<void>(ncclCommAbort(place.comm));
      place.comm = nullptr;
    }
    std::erase_if(places_, [](const Place& place) { return place.comm == nullptr; });
    return false;
  }

  void expect_sums(size_t communicator, size_t count) {
    const auto ranks_of_sum = static_cast<int>(ranks() * (ranks() + 1) / 2);
    std::vector<int> got(std::min<size_t>(count, 5000));
    for (size_t device = 0; device < ranks(); ++device) {
      for (const size_t first : {size_t{0}, count / 2 - got.size() / 2, count - got.size()}) {
        const int* const from = at(communicator, device).output + first;
        CUDA_OK(cudaMemcpy(got.data(), from, got.size() * sizeof(int), cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], number(communicator, first + i) * ranks_of_sum);
      }
    }
  }

  std::vector<Place> places_;
};

/// On every other GPU it is the first half that could begin late, on the others the second.
bool is_held(size_t communicator, size_t device) { return (communicator < kCrowd / 2) == (device % 2 == 0); }

TEST_F(Communicators, DoNotKeepEachOtherOut) {
  make(kCrowd);
  if (IsSkipped()) return;
  Gate gate;
  for (size_t device = 0; device < ranks(); ++device) {
    for (size_t c = 0; c < kCrowd; ++c) {
      if (is_held(c, device)) gate.hold(at(c, device).stream);
      all_reduce(c, device, kMost);
    }
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  gate.open();
  ASSERT_TRUE(all_end());
  for (size_t c = 0; c < kCrowd; ++c) expect_sums(c, kMost);
}

/// The communicators' all-reduces beside each other in one graph.
void capture(cudaStream_t main, const std::vector<cudaStream_t>& streams, const std::function<void(size_t)>& enqueue,
             cudaGraphExec_t& executable) {
  cudaEvent_t event = nullptr;
  cudaGraph_t graph = nullptr;
  CUDA_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  CUDA_OK(cudaStreamBeginCapture(main, cudaStreamCaptureModeRelaxed));
  CUDA_OK(cudaEventRecord(event, main));
  for (const cudaStream_t stream : streams) CUDA_OK(cudaStreamWaitEvent(stream, event, 0));
  for (size_t i = 0; i < streams.size(); ++i) enqueue(i);
  for (const cudaStream_t stream : streams) {
    CUDA_OK(cudaEventRecord(event, stream));
    CUDA_OK(cudaStreamWaitEvent(main, event, 0));
  }
  CUDA_OK(cudaStreamEndCapture(main, &graph));
  CUDA_OK(cudaGraphInstantiate(&executable, graph, 0));
  CUDA_OK(cudaGraphDestroy(graph));
  CUDA_OK(cudaEventDestroy(event));
}

TEST_F(Communicators, DoNotKeepEachOtherOutInGraphs) {
  make(kCrowd);
  if (IsSkipped()) return;
  Gate gate;
  std::vector<cudaGraphExec_t> graphs(ranks());
  std::vector<cudaStream_t> mains(ranks());
  for (size_t device = 0; device < ranks(); ++device) {
    std::vector<cudaStream_t> streams;
    for (size_t c = 0; c < kCrowd; ++c) streams.push_back(at(c, device).stream);
    CUDA_OK(cudaSetDevice(static_cast<int>(device)));
    CUDA_OK(cudaStreamCreateWithFlags(&mains[device], cudaStreamNonBlocking));
    const auto enqueue = [&](size_t c) {
      if (is_held(c, device)) gate.hold(streams[c]);
      all_reduce(c, device, kMost);
    };
    capture(mains[device], streams, enqueue, graphs[device]);
  }
  for (size_t device = 0; device < ranks(); ++device) {
    CUDA_OK(cudaSetDevice(static_cast<int>(device)));
    CUDA_OK(cudaGraphLaunch(graphs[device], mains[device]));
    for (size_t c = 0; c < kCrowd; ++c) at(c, device).graph = mains[device];
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  gate.open();
  ASSERT_TRUE(all_end());
  for (size_t c = 0; c < kCrowd; ++c) expect_sums(c, kMost);
  for (const cudaGraphExec_t graph : graphs) CUDA_OK(cudaGraphExecDestroy(graph));
  for (const cudaStream_t main : mains) CUDA_OK(cudaStreamDestroy(main));
}

/// Each rank sends twice by the communicator to the next one, and then receives twice by that from the one before. What
/// it sends first is through only when the next one receives: nothing may hold that up until the second is sent.
TEST_F(Communicators, SendInARing) {
  make(std::max<size_t>(3, static_cast<size_t>(gpus()) + 1));
  if (IsSkipped()) return;
  const size_t large = ranks();  // a communicator that has had large kernels, and has nothing to do now
  for (size_t device = 0; device < ranks(); ++device) all_reduce(large, device, kMost);
  ASSERT_TRUE(all_end());
  const auto to_next = [&](size_t device, bool sends) {  // or from the one before
    const size_t from = sends ? device : (device + ranks() - 1) % ranks();
    const Place& place = at(from, device);
    const int peer = static_cast<int>(sends ? (device + 1) % ranks() : from);
    CUDA_OK(cudaSetDevice(static_cast<int>(device)));
    for (int i = 0; i < 2; ++i) {
      NCCL_OK(sends ? ncclSend(place.input, kMost / 2, ncclInt, peer, place.comm, place.stream)
                    : ncclRecv(place.output, kMost / 2, ncclInt, peer, place.comm, place.stream));
    }
  };
  for (size_t device = 0; device < ranks(); ++device) {
    to_next(device, true);
    to_next(device, false);
  }
  ASSERT_TRUE(all_end());
  for (size_t device = 0; device < ranks(); ++device) {
    const size_t from = (device + ranks() - 1) % ranks();
    std::vector<int> got(5000);
    CUDA_OK(cudaMemcpy(got.data(), at(from, device).output, got.size() * sizeof(int), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], number(from, i) * static_cast<int>(from + 1));
  }
}

/// Each is held up for a while on some GPUs, before any of its operations.
TEST_F(Communicators, RunAtTheSameTimeWhoeverComesFirst) {
  make(kCrowd);
  if (IsSkipped()) return;
  std::mt19937 random(1);
  const auto dally = [](void* microseconds) {
    std::this_thread::sleep_for(std::chrono::microseconds(reinterpret_cast<intptr_t>(microseconds)));
  };
  for (int round = 0; round < 150; ++round) {
    std::vector<size_t> last(kCrowd, 0);  // counts
    for (int i = 0; i < 24; ++i) {
      const size_t c = random() % kCrowd;
      last[c] = random() % 3 == 0 ? kMost : 1 + random() % (kMost >> random() % 16);
      for (size_t device = 0; device < ranks(); ++device) {
        const intptr_t pause = random() % 4 == 0 ? random() % 1000 : 0;
        if (pause > 0) {
          CUDA_OK(cudaLaunchHostFunc(at(c, device).stream, dally, reinterpret_cast<void*>(pause)));
        }
        all_reduce(c, device, last[c]);
      }
    }
    ASSERT_TRUE(all_end()) << "round " << round;
    for (size_t c = 0; c < kCrowd; ++c) {
      if (last[c] > 0) expect_sums(c, last[c]);
    }
    ASSERT_FALSE(HasFatalFailure());
  }
}

class Threads : public Ranks {
 protected:
  void make_fresh_streams() {
    for (size_t rank = 0; rank < ranks(); ++rank) {
      CUDA_OK(cudaSetDevice(device(rank)));
      CUDA_OK(cudaStreamDestroy(streams[rank]));
      CUDA_OK(cudaStreamCreateWithFlags(&streams[rank], cudaStreamNonBlocking));
    }
  }

  /// Each rank's calls at the same moment. False if they do not end.
  bool launch_together() const {
    std::barrier together(static_cast<std::ptrdiff_t>(ranks()));
    std::atomic<bool> all_ended{true};
    each([&](size_t rank) {
      together.arrive_and_wait();
      for (int i = 0; i < 3; ++i) {
        NCCL_OK(ncclAllReduce(inputs[rank], outputs[rank], 100, ncclInt, ncclSum, comms[rank], streams[rank]));
      }
      const auto start = Clock::now();
      while (cudaStreamQuery(streams[rank]) == cudaErrorNotReady) {
        std::this_thread::yield();
        if (seconds_since(start) < 5) continue;
        all_ended = false;
        return;
      }
    });
    return all_ended;
  }
};

TEST_F(Threads, ThatLaunchAtTheSameMomentIntoFreshStreamsMeet) {
  make(4);
  if (IsSkipped()) return;
  for (int round = 0; round < 100; ++round) {
    make_fresh_streams();
    ASSERT_TRUE(launch_together()) << "round " << round;
  }
}

}  // namespace
