// Calls of one communicator run in the order in which they were made, whatever becomes of the streams, and however the
// captures into graphs take turns.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "cluster.h"
#include "devices.h"
#include "ints.h"
#include "nccl.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

constexpr int kCount = 5000;

class OwnStream {
 public:
  OwnStream() { EXPECT_CALL(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~OwnStream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Holds a stream up until something has overtaken it that should not, or has had the time to.
class Dally {
 public:
  void hold_up(cudaStream_t stream) {
    EXPECT_CALL(cudaLaunchHostFunc(
        stream,
        [](void* pointer) {
          const auto& overtaken = static_cast<Dally*>(pointer)->overtaken_;
          for (int i = 0; i < 200 && !overtaken; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        },
        this));
  }
  void overtake(cudaStream_t stream) {
    EXPECT_CALL(cudaLaunchHostFunc(
        stream, [](void* pointer) { static_cast<Dally*>(pointer)->overtaken_ = true; }, this));
  }

 private:
  std::atomic<bool> overtaken_{false};
};

void sum(const Rank& self, const Ints& from, const Ints& to, cudaStream_t stream) {
  EXPECT_CALL(ncclAllReduce(from.data(), to.data(), kCount, ncclInt, ncclSum, self.comm, stream));
}

TEST(Streams, OneThatGetsTheHandleOfADestroyedOneWaitsForItsWork) {
  EXPECT_EQ("", run_ranks({2, 1}, [](Rank& self) {
              Dally dally;
              const Ints first(kCount, 1);
              const Ints second(kCount);
              {
                const OwnStream stream;
                dally.hold_up(stream.get());
                sum(self, first, second, stream.get());
              }
              const OwnStream stream;
              sum(self, second, second, stream.get());
              dally.overtake(stream.get());
              EXPECT_CALL(cudaDeviceSynchronize());
              second.must_be(9, "the sum of the sum");
            }));
}

/// Rank 1 of the process comes to its first call when rank 0's waits for it in a stream that is gone.
TEST(Streams, OneThatIsDestroyedWhileItWaitsHoldsUpNoFirstUse) {
  for (const std::vector<int>& processes : {std::vector<int>{2}, {2, 1}}) {
    const SharedCount destroyed;
    EXPECT_EQ("", run_ranks(processes, [&](Rank& self) {
                const Ints in(kCount, 1);
                const Ints out(kCount);
                if (self.rank == 1) destroyed.wait_for(1);
                if (self.rank == 0) {
                  sum(self, in, out, OwnStream().get());
                  const OwnStream next;
                  destroyed.add();
                  EXPECT_CALL(cudaDeviceSynchronize());
                } else {
                  sum(self, in, out, self.stream);
                  EXPECT_CALL(cudaStreamSynchronize(self.stream));
                }
                out.must_be(self.ranks, "the sum");
              }));
  }
}

void refuses_to_sum_in(cudaStream_t stream, const Rank& self, const char* why) {
  const Ints from(1);
  const Ints to(1);
  expect_refusal(ncclAllReduce(from.data(), to.data(), 1, ncclInt, ncclSum, self.comm, stream), ncclUnhandledCudaError,
                 why);
}

TEST(Streams, OneOfAnotherDeviceIsNamed) {
  if (devices_here() < 2) GTEST_SKIP() << "names two devices";
  EXPECT_EQ("", run_ranks({1}, [](Rank& self) {
              EXPECT_CALL(cudaSetDevice(1));
              const OwnStream foreign;
              EXPECT_CALL(cudaSetDevice(0));
              refuses_to_sum_in(foreign.get(), self, "is of device 1, the communicator of device 0");
            }));
}

TEST(Streams, OneThatIsDestroyedIsNamed) {
#if defined(NITINOL_CUDA)
  GTEST_SKIP() << "CUDA crashes in any call with such a stream";
#endif
  EXPECT_EQ("", run_ranks({1}, [](Rank& self) {
              cudaStream_t stream = nullptr;
              EXPECT_CALL(cudaStreamCreate(&stream));
              EXPECT_CALL(cudaStreamDestroy(stream));
              refuses_to_sum_in(stream, self, "has it been destroyed?");
            }));
}

TEST(Streams, PerThreadOnesOfTwoThreadsAreTwo) {
  EXPECT_EQ("", run_ranks({2, 1}, [](Rank& self) {
              Dally dally;
              const Ints first(kCount, 1);
              const Ints second(kCount);
              dally.hold_up(cudaStreamPerThread);
              sum(self, first, second, cudaStreamPerThread);
              std::exception_ptr error;
              std::thread([&] {
                try {
                  use_device_of(self.rank);
                  sum(self, second, second, cudaStreamPerThread);
                  dally.overtake(cudaStreamPerThread);
                  EXPECT_CALL(cudaStreamSynchronize(cudaStreamPerThread));
                } catch (const std::exception&) {
                  error = std::current_exception();
                }
              }).join();
              EXPECT_CALL(cudaDeviceSynchronize());
              if (error) std::rethrow_exception(error);
              second.must_be(9, "the sum of the sum");
            }));
}

/// Two streams that are captured into one graph.
class TwoCapturedStreams {
 public:
  TwoCapturedStreams() {
    EXPECT_CALL(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    EXPECT_CALL(cudaStreamBeginCapture(first(), cudaStreamCaptureModeRelaxed));
    EXPECT_CALL(cudaEventRecord(event_, first()));
    EXPECT_CALL(cudaStreamWaitEvent(second(), event_, 0));
  }
  ~TwoCapturedStreams() {
    static_cast<void>(cudaGraphExecDestroy(executable_));
    static_cast<void>(cudaEventDestroy(event_));
  }
  TwoCapturedStreams(const TwoCapturedStreams&) = delete;
  TwoCapturedStreams& operator=(const TwoCapturedStreams&) = delete;

  cudaStream_t first() const { return first_.get(); }
  cudaStream_t second() const { return second_.get(); }
  void end() {
    cudaGraph_t graph = nullptr;
    EXPECT_CALL(cudaEventRecord(event_, second()));
    EXPECT_CALL(cudaStreamWaitEvent(first(), event_, 0));
    EXPECT_CALL(cudaStreamEndCapture(first(), &graph));
    EXPECT_CALL(cudaGraphInstantiate(&executable_, graph, 0));
    EXPECT_CALL(cudaGraphDestroy(graph));
  }
  void launch(cudaStream_t stream) const { EXPECT_CALL(cudaGraphLaunch(executable_, stream)); }

 private:
  OwnStream first_;
  OwnStream second_;
  cudaEvent_t event_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

TEST(Streams, CapturesMayTakeTurns) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              const Ints w(kCount, 1);
              const Ints x(kCount);
              const Ints y(kCount);
              const Ints z(kCount);
              const OwnStream other;
              TwoCapturedStreams a;
              TwoCapturedStreams b;
              // Nothing but the communicator's order lies between calls of one graph, and between the graphs.
              sum(self, w, x, a.first());
              sum(self, y, z, b.first());
              sum(self, x, y, a.second());
              sum(self, z, w, b.second());
              a.end();
              b.end();
              for (int i = 0; i < 3; ++i) {
                a.launch(self.stream);
                b.launch(other.get());
              }
              sum(self, w, w, self.stream);
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              x.must_be(512, "after the first call of the third round");
              y.must_be(1024, "after the second");
              z.must_be(2048, "after the third");
              w.must_be(8192, "after the fourth, and another one");
            }));
}

/// Pools of programs grow meanwhile.
TEST(Streams, MemoryIsAllocatedWhileOneIsCaptured) {
  EXPECT_EQ("", run_ranks({1, 1}, [](Rank& self) {
              const Ints in(kCount, 1);
              const OwnStream captured;
              cudaGraph_t graph = nullptr;
              cudaGraphExec_t executable = nullptr;
              void* memory = nullptr;
              EXPECT_CALL(cudaStreamBeginCapture(captured.get(), cudaStreamCaptureModeGlobal));
              EXPECT_CALL(ncclMemAlloc(&memory, kCount * sizeof(int)));
              EXPECT_CALL(ncclAllReduce(in.data(), memory, kCount, ncclInt, ncclSum, self.comm, captured.get()));
              EXPECT_CALL(cudaStreamEndCapture(captured.get(), &graph));
              EXPECT_CALL(cudaGraphInstantiate(&executable, graph, 0));
              EXPECT_CALL(cudaGraphLaunch(executable, captured.get()));
              EXPECT_CALL(cudaStreamSynchronize(captured.get()));
              int first = 0;
              EXPECT_CALL(cudaMemcpy(&first, memory, sizeof(first), cudaMemcpyDeviceToHost));
              expect_that(first == 2, "the sum is " + std::to_string(first));
              EXPECT_CALL(cudaGraphExecDestroy(executable));
              EXPECT_CALL(cudaGraphDestroy(graph));
              EXPECT_CALL(ncclMemFree(memory));
            }));
}

/// Rank 1 launches it long before rank 0: which comes late, or still ends the communicator for both, where they share a
/// process.
TEST(Streams, GraphsMayBeLaunchedOnceTheirCommunicatorHasEnded) {
  for (const std::vector<int>& processes : {std::vector<int>{1, 1}, {2}}) {
    for (const auto& [destroys, ends_late] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
      const SharedCount ended;
      const SharedCount right;
      EXPECT_EQ("", run_ranks(processes, [&, destroys = destroys, ends_late = ends_late](Rank& self) {
                  const Ints in(kCount, self.rank + 1);
                  const Ints sums(kCount);
                  const Ints got(kCount);
                  ncclComm_t comm = nullptr;
                  cudaGraph_t graph = nullptr;
                  cudaGraphExec_t executable = nullptr;
                  EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
                  EXPECT_CALL(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal));
                  EXPECT_CALL(ncclAllReduce(in.data(), sums.data(), kCount, ncclInt, ncclSum, comm, self.stream));
                  EXPECT_CALL(ncclGroupStart());
                  EXPECT_CALL(ncclSend(in.data(), kCount, ncclInt, 1 - self.rank, comm, self.stream));
                  EXPECT_CALL(ncclRecv(got.data(), kCount, ncclInt, 1 - self.rank, comm, self.stream));
                  EXPECT_CALL(ncclGroupEnd());
                  EXPECT_CALL(cudaStreamEndCapture(self.stream, &graph));
                  EXPECT_CALL(cudaGraphInstantiate(&executable, graph, 0));
                  EXPECT_CALL(cudaGraphDestroy(graph));
                  // Two threads that launch graphs for the first time may do so into one queue of the GPU they share.
                  EXPECT_CALL(cudaGraphUpload(executable, self.stream));
                  EXPECT_CALL(cudaGraphLaunch(executable, self.stream));  // so that all memory is reached
                  EXPECT_CALL(cudaStreamSynchronize(self.stream));
                  sums.fill(-1);
                  got.fill(-1);
                  const bool is_late = self.rank == 0;
                  if (is_late && ends_late) std::this_thread::sleep_for(std::chrono::milliseconds(700));
                  EXPECT_CALL(destroys ? ncclCommDestroy(comm) : ncclCommFinalize(comm));
                  if (!ends_late) ended.meet(2);
                  if (is_late && !ends_late) std::this_thread::sleep_for(std::chrono::milliseconds(700));
                  EXPECT_CALL(cudaGraphLaunch(executable, self.stream));
                  EXPECT_CALL(cudaStreamSynchronize(self.stream));
                  sums.must_be(3, "the sum");
                  got.must_be(2 - self.rank, "the message");
                  right.meet(2);
                  if (!destroys) {
                    ncclResult_t state = ncclInternalError;
                    EXPECT_CALL(ncclCommGetAsyncError(comm, &state));
                    expect_that(state == ncclSuccess, "the state is " + std::to_string(state));
                    EXPECT_CALL(ncclCommDestroy(comm));
                  }
                  EXPECT_CALL(cudaGraphExecDestroy(executable));
                }));
    }
  }
}

}  // namespace
}  // namespace nitinol::testing
