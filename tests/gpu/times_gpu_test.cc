// When operations began and ended, as the flight recorder tells it.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "communicator_ranks.h"
#include "gate.h"
#include "nitinol.h"

namespace {

using namespace nitinol::gpu_testing;

double microseconds_since_epoch() {
  return std::chrono::duration<double, std::micro>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class Times : public Ranks {
 protected:
  static void SetUpTestSuite() { setenv("NITINOL_RECORD_TIMES", "1", 1); }

  /// The operations of rank 0 that have been put into streams, oldest first.
  nlohmann::json operations() const {
    const std::string path = "/tmp/nitinol-times-" + std::to_string(getpid()) + ".json";
    EXPECT_EQ(nitinolCommDump(comms[0], path.c_str()), ncclSuccess);
    std::ifstream file(path);
    nlohmann::json found = nlohmann::json::array();
    const nlohmann::json dump = nlohmann::json::parse(file);
    for (const auto& event : dump["traceEvents"]) {
      if (event["ph"] == "i") found.push_back(event["args"]);
    }
    std::remove(path.c_str());
    return found;
  }
};

TEST_F(Times, AreThoseOfTheGpu) {
  make(2);
  if (IsSkipped()) return;
  Gate gate;
  const auto reduce = [this](size_t rank) {
    NCCL_OK(ncclAllReduce(inputs[rank], outputs[rank], 1000, ncclInt, ncclSum, comms[rank], streams[rank]));
  };
  each([&](size_t rank) {  // nothing is to be set up while one waits
    reduce(rank);
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
  });
  constexpr double kError = 5000;  // of the clocks, in microseconds
  each([&](size_t rank) {
    if (rank == 1) gate.hold(streams[rank]);
    for (int i = 0; i < 2; ++i) reduce(rank);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto waiting = operations();
  ASSERT_EQ(waiting.size(), 3U);
  EXPECT_TRUE(waiting[0].contains("finished"));
  EXPECT_TRUE(waiting[1].contains("started"));
  EXPECT_FALSE(waiting[1].contains("finished")) << "rank 1 has not begun";
  EXPECT_FALSE(waiting[2].contains("started"));
  const double opened = microseconds_since_epoch();
  gate.open();
  each([&](size_t rank) { CUDA_OK(cudaStreamSynchronize(streams[rank])); });
  const double end = microseconds_since_epoch();
  const auto ended = operations();
  ASSERT_EQ(ended.size(), 3U);
  double before = 0;
  for (const auto& operation : ended) {
    EXPECT_GE(operation["started"].get<double>() + 2, before) << "the same moment, but for rounding";
    EXPECT_GE(operation["finished"], operation["started"]);
    before = operation["finished"];
  }
  EXPECT_LT(ended[1]["started"].get<double>(), opened);
  EXPECT_GT(ended[1]["finished"].get<double>(), opened - kError);
  EXPECT_LT(before, end + kError);
}

TEST_F(Times, OfGraphsAreNotTold) {
  make(2);
  if (IsSkipped()) return;
  each([&](size_t rank) {
    cudaGraph_t graph = nullptr;
    capture_three(rank, 1000, graph);
    CUDA_OK(cudaGraphDestroy(graph));
    NCCL_OK(ncclAllReduce(inputs[rank], outputs[rank], 1000, ncclInt, ncclSum, comms[rank], streams[rank]));
    CUDA_OK(cudaStreamSynchronize(streams[rank]));
  });
  const auto told = operations();
  ASSERT_EQ(told.size(), 4U);
  for (const size_t captured : {size_t{0}, size_t{1}, size_t{2}}) EXPECT_FALSE(told[captured].contains("started"));
  EXPECT_TRUE(told[3].contains("finished"));
}

}  // namespace
