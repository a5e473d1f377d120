// Graphs that outlive their communicator, where something goes wrong with them.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "captured.h"
#include "cluster.h"
#include "nccl.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

constexpr int kCount = 1000;

/// One of two ranks with an all-reduce of its data in a graph.
class Scene {
 public:
  Scene(int rank, const ncclUniqueId& id) {
    use_device_of(rank);
    EXPECT_CALL(ncclCommInitRank(&comm_, 2, id, rank));
    EXPECT_CALL(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data_), kCount * sizeof(int)));
    EXPECT_CALL(cudaMemsetAsync(data_, 0, kCount * sizeof(int), stream_));
    graph_ = captured(stream_,
                      [this] { EXPECT_CALL(ncclAllReduce(data_, data_, kCount, ncclInt, ncclSum, comm_, stream_)); });
    launch();
    synchronize();
  }
  ~Scene() {
    cudaGraphExecDestroy(graph_);
    cudaFree(data_);
    cudaStreamDestroy(stream_);
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  void launch() const { EXPECT_CALL(cudaGraphLaunch(graph_, stream_)); }
  void synchronize() const { EXPECT_CALL(cudaStreamSynchronize(stream_)); }
  void destroy() const { EXPECT_CALL(ncclCommDestroy(comm_)); }

 private:
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  int* data_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
};

TEST(EndedGraphs, ThatWaitForADeadProcessEndAndSaySo) {
  const SharedCount destroyed;
  EXPECT_EQ("process 1 ended by signal 9\n", run_processes(2, [&](int rank, const ncclUniqueId& id) {
              const Scene scene(rank, id);
              scene.destroy();
              destroyed.meet(2);
              if (rank == 1) raise(SIGKILL);
              scene.launch();
              scene.synchronize();
              const std::string sentence = ncclGetLastError(nullptr);
              expect_that(sentence.find("the process of rank 1 (host ") != std::string::npos, sentence);
              expect_that(sentence.find("is dead; its communicator has ended") != std::string::npos, sentence);
            }));
}

TEST(EndedGraphs, ThatWaitForALateRankEndWithTheLimitOfTimeAndSaySo) {
  setenv("NITINOL_TIMEOUT", "2", 1);
  const SharedCount destroyed;
  const SharedCount told;
  EXPECT_EQ("", run_processes(2, [&](int rank, const ncclUniqueId& id) {
              const Scene scene(rank, id);
              scene.destroy();
              destroyed.meet(2);
              if (rank == 1) return told.wait_for(1);
              scene.launch();
              scene.synchronize();
              const std::string sentence = ncclGetLastError(nullptr);
              told.add();
              expect_that(sentence.find("rank 1 (host ") != std::string::npos, sentence);
              expect_that(sentence.find("; its communicator has ended") != std::string::npos, sentence);
            }));
  unsetenv("NITINOL_TIMEOUT");
}

/// What rank 0's graph has sent then is for rank 1's, behind its end of the communicator.
TEST(EndedGraphs, OfARankThatIsThroughHoldUpNobodyWhoEndsTheCommunicatorLater) {
  setenv("NITINOL_INIT_TIMEOUT", "60", 1);
  constexpr std::chrono::seconds kInTime{30};
  const SharedCount launched;
  EXPECT_EQ("", run_processes(2, [&](int rank, const ncclUniqueId& id) {
              const Scene scene(rank, id);
              if (rank == 1) launched.wait_for(1);
              const auto begin = std::chrono::steady_clock::now();
              scene.destroy();
              expect_that(std::chrono::steady_clock::now() - begin < kInTime, "it has waited for what nobody does");
              scene.launch();
              std::this_thread::sleep_for(std::chrono::milliseconds(200));  // most likely it has sent by now
              launched.add();
              scene.synchronize();
            }));
  unsetenv("NITINOL_INIT_TIMEOUT");
}

}  // namespace
}  // namespace nitinol::testing
