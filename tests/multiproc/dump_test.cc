// The flight recorder: what ranks dump while one of them is missing, and what the merging tool says of it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "cluster.h"
#include "nccl.h"
#include "nitinol.h"

namespace nitinol::testing {
namespace {

std::string output_of(const std::string& command) {
  std::string text;
  FILE* const pipe = popen(command.c_str(), "r");
  std::array<char, 512> line{};
  while (fgets(line.data(), line.size(), pipe) != nullptr) text += line.data();
  pclose(pipe);
  return text;
}

TEST(Dump, MergedSaysWhoWaitsForWhom) {
  char folder[] = "/tmp/nitinol-dump-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const auto path = [&](int rank) { return std::string(folder) + "/" + std::to_string(rank) + ".json"; };
  EXPECT_EQ("", run_ranks({1, 1, 1}, [&](Rank& self) {
              ncclComm_t comm = nullptr;
              EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
              float* data = nullptr;
              float* other = nullptr;  // the operation that waits may still read its buffer
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&other), 4096));
              EXPECT_CALL(ncclAllReduce(data, data, 5, ncclFloat, ncclSum, comm, self.stream));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              if (self.rank != 1) EXPECT_CALL(ncclAllReduce(data, data, 6, ncclFloat, ncclSum, comm, self.stream));
              // Until it runs: what follows is about what the device does.
              std::this_thread::sleep_for(std::chrono::milliseconds(200));
              EXPECT_CALL(nitinolCommDump(comm, path(self.rank).c_str()));
              EXPECT_CALL(ncclAllReduce(other, other, 1, ncclFloat, ncclSum, self.comm, nullptr));  // all have dumped
              EXPECT_CALL(cudaStreamSynchronize(nullptr));
              EXPECT_CALL(ncclCommAbort(comm));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              EXPECT_CALL(cudaFree(data));
              EXPECT_CALL(cudaFree(other));
              if (nitinolCommDump(self.comm, nullptr) != ncclInvalidArgument) throw std::runtime_error("NULL");
              if (nitinolCommDump(self.comm, "/nowhere/at/all") != ncclSystemError) throw std::runtime_error("nowhere");
            }));
  const std::string said = output_of("python3 " NITINOL_TRACE_TOOL " " + path(0) + " " + path(1) + " " + path(2));
  EXPECT_EQ(said,
            "Ranks 0, 2 wait in AllReduce number 2 (count 6, type float32, op sum) for rank 1, which is at AllReduce "
            "number 1 "
            "(count 5, type float32, op sum).\n");
  for (int rank = 0; rank < 3; ++rank) unlink(path(rank).c_str());
  rmdir(folder);
}

}  // namespace
}  // namespace nitinol::testing
