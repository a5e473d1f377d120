// Ranks of which one calls something else, and what all of them are to hear then.
#pragma once

#include <chrono>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "nccl.h"

namespace nitinol::testing {

inline constexpr int kOdd = 2;  // the rank that does something else

using Step = std::function<ncclResult_t(Rank& self, float* data)>;

inline ncclResult_t all_reduce(Rank& self, float* data, size_t count, ncclRedOp_t op = ncclSum) {
  return ncclAllReduce(data, data, count, ncclFloat, op, self.comm, self.stream);
}

struct Mismatch {
  const char* name;
  Step usual;
  Step odd;
  /// What every rank hears, each of the same rank: of one that is not the odd one, and of that. "N" stands for the
  /// former, the odd rank is rank 2. Where ranks live is left out.
  std::vector<const char*> words;
};

/// Whether the sentence has the words, with the number of some rank for N.
inline bool tells(const std::string& sentence, std::string words) {
  const size_t any = words.find("rank N");
  if (any == std::string::npos) return sentence.find(words) != std::string::npos;
  for (const char rank : {'0', '1', '3'}) {
    words[any + 5] = rank;
    if (sentence.find(words) != std::string::npos) return true;
  }
  return false;
}

/// By hand: regular expressions of several threads are a data race in the C++ library, as ThreadSanitizer sees it.
inline std::string without_places(std::string sentence) {
  for (size_t begin; (begin = sentence.find(" (host ")) != std::string::npos;) {
    sentence.erase(begin, sentence.find(')', begin) - begin + 1);
  }
  return sentence;
}

inline void must_hear(const Mismatch& mismatch, ncclComm_t comm) {
  const std::string sentence = ncclGetLastError(comm);
  for (const char* word : mismatch.words) {
    if (!tells(without_places(sentence), word)) {
      throw std::runtime_error(std::string(mismatch.name) + ": '" + sentence + "' lacks '" + word + "'");
    }
  }
}

inline void differ(const Mismatch& mismatch, Rank& self, float* data) {
  Rank mine = self;
  EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &mine.comm, nullptr));
  for (int i = 0; i < 2; ++i) EXPECT_CALL(all_reduce(mine, data, 10));
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  const ncclResult_t called = (self.rank == kOdd ? mismatch.odd : mismatch.usual)(mine, data);
  if (called != ncclSuccess && called != ncclInvalidUsage)
    throw std::runtime_error(std::string(mismatch.name) + " called: " + std::to_string(called));
  ncclResult_t state = ncclSuccess;
  const auto start = std::chrono::steady_clock::now();
  const auto deadline = start + std::chrono::seconds(30);  // for slow machines; it takes less than one
  while (state == ncclSuccess && std::chrono::steady_clock::now() < deadline) {
    EXPECT_CALL(ncclCommGetAsyncError(mine.comm, &state));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (state != ncclInvalidUsage) throw std::runtime_error(std::string(mismatch.name) + ": " + std::to_string(state));
  const std::chrono::duration<double, std::milli> heard_after = std::chrono::steady_clock::now() - start;
  std::printf("%s: rank %d heard of it after %.0f ms\n", mismatch.name, self.rank, heard_after.count());
  must_hear(mismatch, mine.comm);
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  EXPECT_CALL(ncclCommAbort(mine.comm));
}

/// All in one set of processes: starting up GPUs takes long.
inline std::string run(const std::vector<int>& processes, const std::vector<Mismatch>& all) {
  return run_ranks(processes, [&](Rank& self) {
    float* data = nullptr;
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 20'000'000));
    for (const Mismatch& mismatch : all) differ(mismatch, self, data);
    EXPECT_CALL(all_reduce(self, data, 10));  // the parent is as good as ever
    EXPECT_CALL(cudaStreamSynchronize(self.stream));
    EXPECT_CALL(cudaFree(data));
  });
}

inline ncclResult_t leave(Rank& r, float*) { return ncclCommFinalize(r.comm); }

}  // namespace nitinol::testing
