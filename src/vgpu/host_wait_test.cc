// What others can see of a thread that waits on the host.
#include <unistd.h>

#include <atomic>
#include <functional>

#include "vgpu/test_support.h"

namespace nitinol::vgpu::test {
namespace {

unsigned long long id_of(cudaStream_t stream, int device = 0) {
  unsigned long long id = 0;
  EXPECT_CUDA(cudaSetDevice(device));
  EXPECT_CUDA(cudaStreamGetId(stream, &id));
  EXPECT_CUDA(cudaSetDevice(0));
  return id;
}

/// What a thread waits for, seen from here while it does. It waits for the streams' gates.
void look_while(const std::function<void()>& wait, Gate& gate, const std::function<bool(int thread)>& seen) {
  std::atomic<int> id{0};
  std::thread waiting([&] {
    id = gettid();
    wait();
  });
  while (id == 0 || !seen(id)) std::this_thread::yield();
  gate.open();
  waiting.join();
  EXPECT_FALSE(seen(id));
}

TEST(HostWaits, AreSeenAsLongAsTheyLast) {
  StreamOwner stream;
  StreamOwner other;
  for (int i = 0; i < 3; ++i) {
    Gate gate;
    cudaEvent_t event = nullptr;
    ASSERT_CUDA(cudaEventCreate(&event));
    enqueue_gate(stream, gate);
    ASSERT_CUDA(cudaEventRecord(event, stream));
    const std::function<void()> waits[] = {
        [&] { EXPECT_CUDA(cudaStreamSynchronize(stream)); },
        [&] { EXPECT_CUDA(cudaEventSynchronize(event)); },
        [&] { EXPECT_CUDA(cudaDeviceSynchronize()); },
    };
    EXPECT_EQ(vgpuThreadWaitsFor(gettid(), id_of(stream)), 0);
    look_while(waits[i], gate, [&](int thread) {
      EXPECT_EQ(vgpuThreadWaitsFor(thread, id_of(other)), 0);
      EXPECT_EQ(vgpuThreadWaitsFor(thread, id_of(nullptr)), 0);
      return vgpuThreadWaitsFor(thread, id_of(stream)) == 1;
    });
    EXPECT_CUDA(cudaEventDestroy(event));
  }
}

TEST(HostWaits, ForADefaultStreamAreForThatOfTheDevice) {
  Gate gate;
  enqueue_gate(nullptr, gate);
  look_while([] { EXPECT_CUDA(cudaStreamSynchronize(nullptr)); }, gate,
             [](int thread) {
               EXPECT_EQ(vgpuThreadWaitsFor(thread, id_of(nullptr, 1)), 0);
               EXPECT_EQ(vgpuThreadWaitsFor(thread, 0), 0);
               return vgpuThreadWaitsFor(thread, id_of(nullptr)) == 1;
             });
}

TEST(HostWaits, AreForWhatIsBeforeTheirPointOnly) {
  StreamOwner stream;
  Gate first;
  Gate second;
  cudaEvent_t event = nullptr;
  ASSERT_CUDA(cudaEventCreate(&event));
  enqueue_gate(stream, first);
  ASSERT_CUDA(cudaEventRecord(event, stream));
  enqueue_gate(stream, second);
  look_while([&] { EXPECT_CUDA(cudaEventSynchronize(event)); }, first,
             [&](int thread) { return vgpuThreadWaitsFor(thread, id_of(stream)) == 1; });
  second.open();
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA(cudaEventDestroy(event));
}

/// Whoever runs work knows in which stream; within that, what it waits for is in others.
TEST(HostWaits, OfWhatRunsTheStreamIsKnown) {
  StreamOwner stream;
  StreamOwner other;
  std::atomic<unsigned long long> seen[3] = {};
  const auto put_into = [](cudaStream_t where, std::atomic<unsigned long long>& into) {
    enqueue(where, [&into] { into = vgpuRunningStream(); });
  };
  put_into(stream, seen[0]);
  put_into(other, seen[1]);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(other, cudaStreamCaptureModeThreadLocal));
  put_into(other, seen[2]);
  ASSERT_CUDA(cudaStreamEndCapture(other, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  ASSERT_CUDA(cudaGraphLaunch(executable, stream));
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(seen[0], id_of(stream));
  EXPECT_EQ(seen[1], id_of(other));
  EXPECT_EQ(seen[2], id_of(stream));
  EXPECT_EQ(vgpuRunningStream(), 0U);
  EXPECT_CUDA(cudaGraphExecDestroy(executable));
  EXPECT_CUDA(cudaGraphDestroy(graph));
}

TEST(HostWaits, FunctionsOfTheProgramAreKnownToBeThere) {
  StreamOwner stream;
  enqueue(stream, [] {});
  ASSERT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_EQ(vgpuRunsFunctionsOfProgram(), 1);
}

}  // namespace
}  // namespace nitinol::vgpu::test
