// The flight recorder: what ranks dump while one of them is missing, and what the merging tool says of it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "nccl.h"
#include "nitinol.h"
#include "observe.h"

namespace nitinol::testing {
namespace {

/// When the device has come to so many collectives.
void dump_once_begun(ncclComm_t comm, int number, const std::string& path) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (true) {
    EXPECT_CALL(nitinolCommDump(comm, path.c_str()));
    std::ifstream file(path);
    const auto dump = nlohmann::json::parse(file);
    if (dump["begun"] == number) return;
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("it never begins: " + dump.dump(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
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
              dump_once_begun(comm, self.rank == 1 ? 1 : 2, path(self.rank));
              EXPECT_CALL(ncclAllReduce(other, other, 1, ncclFloat, ncclSum, self.comm, nullptr));  // all have dumped
              EXPECT_CALL(cudaStreamSynchronize(nullptr));
              EXPECT_CALL(ncclCommAbort(comm));
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              EXPECT_CALL(cudaFree(data));
              EXPECT_CALL(cudaFree(other));
              if (nitinolCommDump(self.comm, nullptr) != ncclInvalidArgument) throw std::runtime_error("NULL");
              if (nitinolCommDump(self.comm, "/nowhere/at/all") != ncclSystemError) throw std::runtime_error("nowhere");
            }));
  const std::string said =
      run_command("python3 " NITINOL_TRACE_TOOL " " + path(0) + " " + path(1) + " " + path(2)).second;
  EXPECT_EQ(said,
            "Ranks 0, 2 wait in AllReduce number 2 (count 6, type float32, op sum) for rank 1, which is at AllReduce "
            "number 1 "
            "(count 5, type float32, op sum).\n");
  for (int rank = 0; rank < 3; ++rank) unlink(path(rank).c_str());
  rmdir(folder);
}

/// The events of one kind that a dump has of a collective.
std::vector<nlohmann::json> events_of(const nlohmann::json& dump, const std::string& kind, int number) {
  std::vector<nlohmann::json> found;
  for (const auto& event : dump["traceEvents"]) {
    if (event["ph"] == kind && event["args"]["number"] == number) found.push_back(event);
  }
  return found;
}

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

TEST(Dump, HasPlansAndTimes) {
#if !defined(NITINOL_VGPU)
  GTEST_SKIP() << "the executor for GPUs does not tell how far it has come";
#endif
  char folder[] = "/tmp/nitinol-dump-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  EXPECT_EQ("", run_ranks({1, 1}, [&](Rank& self) {
              const std::string path = std::string(folder) + "/" + std::to_string(self.rank) + ".json";
              float* data = nullptr;
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
              for (size_t count = 1; count <= 3; ++count) {
                EXPECT_CALL(ncclAllReduce(data, data, count, ncclFloat, ncclSum, self.comm, self.stream));
              }
              EXPECT_CALL(cudaStreamSynchronize(self.stream));
              EXPECT_CALL(nitinolCommDump(self.comm, path.c_str()));
              std::ifstream file(path);
              const auto dump = nlohmann::json::parse(file);
              double last = 0;
              for (int number = 1; number <= 3; ++number) {
                const auto issued = events_of(dump, "i", number);
                const auto ran = events_of(dump, "X", number);
                require(issued.size() == 1 && ran.size() == 1, "each is told once as issued and once as it ran");
                const auto& about = issued[0]["args"];
                require(about["algorithm"] == "OneShot" && about["protocol"] == "Simple" && about["channels"] == 1 &&
                            about["chunk"] > 0,
                        "the plan");
                require(about["state"] == "ended" && ran[0]["name"] == issued[0]["name"], "the name");
                require(about["started"] == ran[0]["ts"] && about["finished"] >= about["started"], "the times");
                require(ran[0]["ts"] >= last, "the order");
                last = ran[0]["ts"].get<double>() + ran[0]["dur"].get<double>() - 1;  // as they are rounded
              }
              const std::string text_path = path + ".txt";
              EXPECT_CALL(nitinolCommDump(self.comm, text_path.c_str()));
              std::ifstream lines(text_path);
              std::string first;
              std::getline(lines, first);
              require(first.rfind("Rank " + std::to_string(self.rank) + " of 2", 0) == 0, "the text");
              unlink(text_path.c_str());
              EXPECT_CALL(cudaFree(data));
            }));
  const std::string merged = std::string(folder) + "/merged";
  const std::string said = run_command("python3 " NITINOL_TRACE_TOOL " -o " + merged + " " + folder).second;
  EXPECT_EQ(said, "All ranks that were dumped have finished what they issued (3 collectives).\n");
  std::ifstream file(merged);
  EXPECT_EQ(nlohmann::json::parse(file)["traceEvents"].size(), 12U);  // of two ranks: three issued, three that ran
  for (const char* name : {"/0.json", "/1.json", "/merged"}) unlink((std::string(folder) + name).c_str());
  rmdir(folder);
}

}  // namespace
}  // namespace nitinol::testing
