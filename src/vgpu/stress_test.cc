// Random streams, events, graphs and waits from several threads at once; every kernel checks that what it was ordered
// after has happened.
#include <atomic>
#include <random>

#include "vgpu/graph_test_support.h"

namespace nitinol::vgpu::test {
namespace {

// A stream whose kernels count: the n-th to be queued must be the n-th to run.
struct CountingStream {
  explicit CountingStream(unsigned flags) : stream(flags) {}
  StreamOwner stream;
  int queued = 0;
  std::atomic<int> ran{0};
};

// One thread's play on its own streams.
class Player {
 public:
  Player(unsigned seed, std::atomic<int>* wrong) : random_(seed), wrong_(wrong) {
    for (unsigned i = 0; i < kStreams; ++i) streams_.push_back(std::make_unique<CountingStream>(i % 2));
  }

  void step() {
    CountingStream& stream = any();
    switch (random_() % 12) {
      case 0: EXPECT_CUDA(cudaStreamSynchronize(stream.stream)); break;
      case 1: cudaStreamQuery(stream.stream); break;
      case 2: wait_for(stream, any()); break;
      case 3: wait_for(any(), stream); break;
      case 4: launch_graph(stream, any()); break;
      case 5: vgpuAboutToBlock(); break;
      case 6: std::this_thread::yield(); break;
      default: count(stream); break;
    }
  }

  void finish() {
    for (auto& stream : streams_) {
      EXPECT_CUDA(cudaStreamSynchronize(stream->stream));
      EXPECT_EQ(stream->ran, stream->queued);
    }
  }

 private:
  static constexpr unsigned kStreams = 5;

  CountingStream& any() { return *streams_[random_() % kStreams]; }

  void count(CountingStream& stream) {
    const int before = stream.queued++;
    enqueue(stream.stream, [this, &stream, before] {
      if (stream.ran.fetch_add(1) != before) ++*wrong_;
    });
  }

  void wait_for(CountingStream& waiting, CountingStream& other) {
    EventOwner event(random_() % 2 == 0 ? cudaEventDefault : cudaEventDisableTiming);
    EXPECT_CUDA(cudaEventRecord(event, other.stream));
    EXPECT_CUDA(cudaStreamWaitEvent(waiting.stream, event));
    check(waiting, other);
  }

  void check(CountingStream& waiting, CountingStream& other) {
    enqueue(waiting.stream, [this, &other, least = other.queued] {
      if (other.ran < least) ++*wrong_;
    });
  }

  // A graph of two branches, launched where all that has been queued in the two streams comes before.
  void launch_graph(CountingStream& stream, CountingStream& other) {
    StreamOwner origin;
    StreamOwner side;
    EventOwner fork;
    EventOwner join;
    begin(origin);
    EXPECT_CUDA(cudaEventRecord(fork, origin));
    EXPECT_CUDA(cudaStreamWaitEvent(side, fork));
    for (int i = 0; i < 3; ++i) {
      enqueue(side, [this, &stream, least = stream.queued] {
        if (stream.ran < least) ++*wrong_;
      });
      enqueue(origin, [this, &stream, least = stream.queued] {
        if (stream.ran < least) ++*wrong_;
      });
    }
    EXPECT_CUDA(cudaEventRecord(join, side));
    EXPECT_CUDA(cudaStreamWaitEvent(origin, join));
    GraphOwner owner;
    EXPECT_CUDA(cudaStreamEndCapture(origin, &owner.graph));
    InstanceOwner instance(owner.graph);
    EXPECT_CUDA(cudaGraphLaunch(instance.exec, stream.stream));
    EXPECT_CUDA(cudaGraphLaunch(instance.exec, stream.stream));
    wait_for(other, stream);
  }

  std::mt19937 random_;
  std::atomic<int>* wrong_;
  std::vector<std::unique_ptr<CountingStream>> streams_;
};

TEST(Stress, OrderHoldsWhateverThreadsDo) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&wrong, t] {
      ASSERT_CUDA(cudaSetDevice(static_cast<int>(t % 2)));
      for (unsigned round = 0; round < 5; ++round) {
        Player player(100 * t + round, &wrong);
        for (int i = 0; i < 200; ++i) player.step();
        player.finish();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  cudaGetLastError();
}

// Threads of one process as ranks: a kernel of each meets the kernels of all others, as collectives do.
TEST(Stress, KernelsOfManyThreadsMeet) {
  constexpr int kRanks = 12;
  constexpr int kRounds = 30;
  std::atomic<int> arrived{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      ASSERT_CUDA(cudaSetDevice(rank % 8));
      StreamOwner stream;
      for (int round = 1; round <= kRounds; ++round) {
        enqueue(stream, [&arrived, round] {
          ++arrived;
          vgpuAboutToBlock();
          while (arrived < round * kRanks) std::this_thread::yield();
        });
        if ((rank + round) % 3 == 0) continue;
        ASSERT_CUDA(cudaStreamSynchronize(stream));
      }
      ASSERT_CUDA(cudaStreamSynchronize(stream));
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(arrived, kRanks * kRounds);
}

}  // namespace
}  // namespace nitinol::vgpu::test
