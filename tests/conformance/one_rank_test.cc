// Communicators of one rank: what they do are copies, bit for bit, but where a scalar is applied.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "captured.h"
#include "cluster.h"
#include "device_memory.h"
#include "nccl.h"

namespace nitinol::testing {
namespace {

using Words = std::vector<uint32_t>;

/// One rank with what it sends, and place for what it receives.
class OneRank : public ::testing::Test {
 public:
  OneRank() {
    EXPECT_CALL(ncclCommInitAll(&comm_, 1, nullptr));
    EXPECT_CALL(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&sent_), kBytes));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&received_), kBytes));
  }
  ~OneRank() override {
    cudaFree(received_);
    cudaFree(sent_);
    cudaStreamDestroy(stream_);
    ncclCommDestroy(comm_);
  }

 protected:
  static constexpr size_t kCount = 3'000'001;
  static constexpr size_t kBytes = kCount * sizeof(uint32_t);

  static void put(uint32_t* to, const Words& words) { EXPECT_CALL(copy_to_device(to, words.data(), kBytes)); }
  Words get(const uint32_t* from) const {
    Words words(kCount);
    EXPECT_CALL(cudaMemcpyAsync(words.data(), from, kBytes, cudaMemcpyDeviceToHost, stream_));
    EXPECT_CALL(cudaStreamSynchronize(stream_));
    return words;
  }

  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  uint32_t* sent_ = nullptr;
  uint32_t* received_ = nullptr;
};

/// Of floats: among them NaNs of all kinds, infinities and numbers too small to be normal.
Words any_bits(size_t count) {
  std::mt19937 random(7);
  Words words(count);
  for (uint32_t& word : words) word = static_cast<uint32_t>(random());
  words[0] = 0x7f800001;  // a NaN that signals
  words[1] = 0xffc12345;
  words[2] = 0x7c7cfcfc;  // infinities of 8 bits
  return words;
}

struct NamedCall {
  std::string name;
  std::function<ncclResult_t(const void* from, void* to, size_t words, ncclComm_t, cudaStream_t)> make;
};

std::vector<NamedCall> calls() {
  std::vector<NamedCall> all;
  for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
    all.push_back({"all-reduce of float by " + std::to_string(op), [op](auto from, auto to, auto n, auto c, auto s) {
                     return ncclAllReduce(from, to, n, ncclFloat, op, c, s);
                   }});
    all.push_back({"reduce of e5m2 by " + std::to_string(op), [op](auto from, auto to, auto n, auto c, auto s) {
                     return ncclReduce(from, to, 4 * n, ncclFloat8e5m2, op, 0, c, s);
                   }});
  }
  all.push_back({"reduce-scatter", [](auto from, auto to, auto n, auto c, auto s) {
                   return ncclReduceScatter(from, to, n, ncclFloat, ncclAvg, c, s);
                 }});
  all.push_back({"all-gather", [](auto from, auto to, auto n, auto c, auto s) {
                   return ncclAllGather(from, to, n, ncclFloat, c, s);
                 }});
  all.push_back({"broadcast", [](auto from, auto to, auto n, auto c, auto s) {
                   return ncclBroadcast(from, to, n, ncclFloat, 0, c, s);
                 }});
  all.push_back({"all-to-all", [](auto from, auto to, auto n, auto c, auto s) {
                   return ncclAlltoAll(from, to, n, ncclFloat, c, s);
                 }});
  all.push_back({"gather", [](auto from, auto to, auto n, auto c, auto s) {
                   return ncclGather(from, to, n, ncclFloat, 0, c, s);
                 }});
  all.push_back({"scatter", [](auto from, auto to, auto n, auto c, auto s) {
                   return ncclScatter(from, to, n, ncclFloat, 0, c, s);
                 }});
  return all;
}

TEST_F(OneRank, CopiesBits) {
  const Words sent = any_bits(kCount);
  put(sent_, sent);
  for (const NamedCall& call : calls()) {
    put(received_, Words(kCount, 0x5a5a5a5a));
    EXPECT_CALL(call.make(sent_, received_, kCount - 1, comm_, stream_));
    Words wanted = sent;
    wanted.back() = 0x5a5a5a5a;
    EXPECT_TRUE(get(received_) == wanted) << call.name;
    EXPECT_CALL(call.make(received_, received_, kCount - 1, comm_, stream_));
    EXPECT_TRUE(get(received_) == wanted) << call.name << " in place";
  }
}

TEST_F(OneRank, CopiesBitsInGraphs) {
  const Words sent = any_bits(kCount);
  put(sent_, sent);
  for (const NamedCall& call : calls()) {
    const cudaGraphExec_t graph =
        captured(stream_, [&] { EXPECT_CALL(call.make(sent_, received_, kCount, comm_, stream_)); });
    put(received_, Words(kCount, 0x5a5a5a5a));
    EXPECT_CALL(cudaGraphLaunch(graph, stream_));
    EXPECT_TRUE(get(received_) == sent) << call.name;
    EXPECT_CALL(cudaGraphExecDestroy(graph));
  }
}

TEST_F(OneRank, AppliesAScalar) {
  int32_t three = 3;
  ncclRedOp_t triple{};
  EXPECT_CALL(ncclRedOpCreatePreMulSum(&triple, &three, ncclInt32, ncclScalarHostImmediate, comm_));
  const Words sent = any_bits(kCount);
  Words wanted = sent;
  for (uint32_t& word : wanted) word *= 3;
  for (const bool in_place : {false, true}) {
    put(sent_, sent);
    put(received_, Words(kCount, 0x5a5a5a5a));
    uint32_t* const to = in_place ? sent_ : received_;
    EXPECT_CALL(ncclAllReduce(sent_, to, kCount, ncclInt32, triple, comm_, stream_));
    EXPECT_TRUE(get(to) == wanted) << in_place;
  }
  EXPECT_CALL(ncclRedOpDestroy(triple, comm_));
}

}  // namespace
}  // namespace nitinol::testing
