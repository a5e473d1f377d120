// Messages between all ranks of a cluster, and what has to arrive.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

#include "cluster.h"

namespace nitinol::gpu_testing {

/// Every rank sends `per_pair` messages to every rank, itself included; sizes differ by pair and number. `expected`
/// gets what has to be at each place.
inline std::vector<Launch> message_launches(Cluster& cluster, int per_pair, size_t base,
                                            std::map<char*, Bytes>& expected) {
  const int n = cluster.ranks().size();
  std::vector<Launch> launches(static_cast<size_t>(n));
  std::vector<size_t> in_at(static_cast<size_t>(n));
  std::vector<size_t> out_at(static_cast<size_t>(n));
  std::mt19937 random(99);
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to) {
      for (int k = 0; k < per_pair; ++k) {
        const size_t bytes = base * static_cast<size_t>(1 + (from + 2 * to + k) % 5) + static_cast<size_t>(k);
        const auto f = static_cast<size_t>(from);
        const auto t = static_cast<size_t>(to);
        char* source = cluster.input(from) + in_at[f];
        char* target = cluster.output(to) + out_at[t];
        in_at[f] += bytes + static_cast<size_t>(k % 3);
        out_at[t] += bytes + static_cast<size_t>(k % 2);
        Bytes data = random_elements(DataType::kUint8, bytes, false, random);
        cuda_check(copy_to_device(source, data.data(), bytes), "cudaMemcpy");
        launches[f].messages.push_back({MessageWork::Direction::kSend, to, source, bytes});
        launches[t].messages.push_back({MessageWork::Direction::kReceive, from, target, bytes});
        expected[target] = std::move(data);
      }
    }
  }
  return launches;
}

inline void expect_arrived(const std::map<char*, Bytes>& expected) {
  for (const auto& [address, data] : expected) {
    Bytes got(data.size());
    cuda_check(cudaMemcpy(got.data(), address, got.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    ASSERT_EQ(got == data, true) << data.size() << " bytes";
  }
}

/// Sends and receives them, and looks whether they have arrived.
inline void exchange(Cluster& cluster, const std::vector<Launch>& launches, const std::map<char*, Bytes>& expected) {
  cluster.ranks().prepare(launches);
  cluster.ranks().launch(launches);
  cluster.ranks().synchronize();
  expect_arrived(expected);
}

}  // namespace nitinol::gpu_testing
