// Ranks with a pair of buffers each, which run one collective and compare every byte with what it must give.
#pragma once

#include <algorithm>
#include <string>

#include "algorithm/table.h"
#include "executor/cuda/kernel_set.h"
#include "expected_values.h"
#include "gpu_ranks.h"
#include "gpus.h"

namespace nitinol::gpu_testing {

inline constexpr size_t kBufferBytes = size_t{48} << 20;
inline constexpr size_t kGuardBytes = 64;
inline constexpr unsigned char kPoison = 0xcd;

struct Case {
  CollectiveWork work;
  size_t misaligned = 0;  ///< elements by which buffers are moved from an aligned address
  bool in_place = false;
};

inline std::string describe(const Case& test, int ranks) {
  const CollectiveWork& w = test.work;
  return std::string(name_of(w.what)) + " " + name_of(w.plan.algorithm) + " " + name_of(w.plan.protocol) +
         (w.plan.apart    ? " apart"
          : w.plan.small  ? " small"
          : w.plan.joined ? " joined"
                          : "") +
         " ranks " + std::to_string(ranks) + " type " + std::to_string(static_cast<int>(w.type)) + " op " +
         std::to_string(static_cast<int>(w.reduction.combine)) + " count " + std::to_string(w.count) + " root " +
         std::to_string(w.root) + " channels " + std::to_string(w.plan.channels) + " chunk " +
         std::to_string(w.plan.chunk) + " shift " + std::to_string(test.misaligned) +
         (test.in_place ? " in place" : "");
}

inline bool built(DataType type, Combine combine) {
  return cuda::find_reduce_kernels(type, cuda::combiner_for(combine)) != nullptr;
}

/// Whether that has kernels for the work's way of doing it.
inline bool built(const CollectiveWork& work, DataType type, Combine combine, int ranks) {
  if (!built(type, combine)) return false;
  const bool sums = combine == Combine::kSum;
  if (!sums && (work.plan.apart || work.plan.joined)) return false;
  if (work.plan.joined && !algorithm::suits_joined_parts(work.what, work.plan.algorithm, type)) return false;
  return !work.plan.small || algorithm::suits_small_ctas(work.what, work.plan.algorithm, type, ranks, sums);
}

/// Whether the executor offers small CTAs for it, whichever rank is the root.
inline bool has_small_ctas(const CollectiveWork& work, const Limits& limits, int ranks) {
  const auto offers = [&](int root) {
    return limits.small(algorithm::goes_along_line(work.what, work.plan.algorithm, ranks, root, false)).channels > 0;
  };
  return offers(0) && offers(1);
}

/// All rows of the table of algorithms with all protocols the executor offers.
template <class Visit>
void for_each_algorithm(int ranks, const Limits& limits, Visit&& visit) {
  algorithm::Table::for_each([&](auto entry) {
    for (int protocol = 0; protocol < kProtocols; ++protocol) {
      if (limits.slot_bytes[static_cast<size_t>(protocol)] == 0) continue;
      CollectiveWork work;
      work.what = decltype(entry)::row.what;
      work.plan.algorithm = decltype(entry)::row.algorithm;
      work.plan.protocol = static_cast<Protocol>(protocol);
      visit(work);
      if (work.plan.protocol != Protocol::kSimple) continue;
      const DataType type = reduces(work.what) ? DataType::kFloat32 : DataType::kUint8;
      work.plan.small = algorithm::suits_small_ctas(work.what, work.plan.algorithm, type, ranks, true) &&
                        has_small_ctas(work, limits, ranks);
      if (work.plan.small) visit(work);
      work.plan.small = false;
      work.plan.apart = algorithm::suits_parts(work.what, work.plan.algorithm) && limits.apart(work.what).channels > 0;
      if (work.plan.apart) visit(work);
      work.plan.apart = false;
      work.plan.joined =
          limits.joined.channels > 0 && algorithm::suits_joined_parts(work.what, work.plan.algorithm, type);
      if (work.plan.joined) visit(work);
    }
  });
}

/// Ranks with a pair of buffers each.
class Cluster {
 public:
  explicit Cluster(int ranks, const Settings& settings = {}) : ranks_(ranks, gpus(), settings) {
    for (int rank = 0; rank < ranks; ++rank) {
      inputs_.emplace_back(ranks_.device(rank), kBufferBytes);
      outputs_.emplace_back(ranks_.device(rank), kBufferBytes);
    }
  }
  Ranks& ranks() { return ranks_; }
  char* input(int rank) { return inputs_[static_cast<size_t>(rank)].get(); }
  char* output(int rank) { return outputs_[static_cast<size_t>(rank)].get(); }

  /// Fills buffers, fits each rank's work with its addresses.
  std::vector<Launch> set_up(const Case& test, bool exact) {
    const CollectiveWork& work = test.work;
    const size_t block = work.count * bytes_of(work.type);
    const size_t shift = test.misaligned * bytes_of(work.type);
    const int n = ranks_.size();
    std::vector<Launch> launches;
    host_inputs_.clear();
    for (int rank = 0; rank < n; ++rank) {
      const bool is_root = rank == work.root;
      Bytes data = random_elements(work.type, input_blocks(work.what, n, is_root) * work.count, exact, random_);
      const size_t out_bytes = output_blocks(work.what, n, is_root) * block;
      char* out = output(rank) + kGuardBytes + shift;
      char* in = input(rank) + shift;
      const auto me = static_cast<size_t>(rank);
      if (test.in_place && !(work.what == Collective::kReduce && !is_root)) {
        if (work.what == Collective::kReduceScatter) {
          in = output(rank) + kGuardBytes + shift;
          out = in + me * block;
        } else {
          in = work.what == Collective::kAllGather ? out + me * block : out;
        }
      }
      const cudaStream_t stream = ranks_.stream(rank);
      const DeviceGuard on(ranks_.device(rank));
      const size_t poisoned = std::max(out_bytes, data.size()) + 2 * kGuardBytes + shift;
      cuda_check(cudaMemsetAsync(output(rank), kPoison, poisoned, stream), "cudaMemsetAsync");
      cuda_check(cudaMemcpyAsync(in, data.data(), data.size(), cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
      cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
      CollectiveWork mine = work;
      mine.input = in;
      mine.output = out;
      launches.push_back(Launch{{mine}, {}});
      host_inputs_.push_back(std::move(data));
    }
    return launches;
  }

  /// "" if all ranks' outputs are as expected and nothing around them was touched.
  std::string check(const Case& test, const std::vector<Launch>& launches) {
    Bytes expected;
    for (int rank = 0; rank < ranks_.size(); ++rank) {
      const CollectiveWork& work = launches[static_cast<size_t>(rank)].collectives[0];
      const bool same_for_all = work.what == Collective::kAllReduce || work.what == Collective::kAllGather;
      if (rank == 0 || !same_for_all) expected = expected_output(work, rank, host_inputs_);
      const std::string wrong = compare(test, work, rank, expected, false);
      if (!wrong.empty()) return wrong;
    }
    return "";
  }
  /// "" if what the rank's operation has written, if not all of it, is as expected.
  std::string check_unfinished(const Case& test, const std::vector<Launch>& launches, int rank) {
    const CollectiveWork& work = launches[static_cast<size_t>(rank)].collectives[0];
    return compare(test, work, rank, expected_output(work, rank, host_inputs_), true);
  }

  std::string run(const Case& test) {
    const CollectiveWork& work = test.work;
    const bool canonical = algorithm::canonical(work.what, work.plan.algorithm, work.type, work.root, ranks_.size());
    const std::vector<Launch> launches = set_up(test, !canonical && !work.any_order());
    ranks_.prepare(launches);
    ranks_.launch(launches);
    ranks_.synchronize();
    return check(test, launches);
  }

 private:
  static std::string compare(const Case& test, const CollectiveWork& work, int rank, const Bytes& expected,
                             bool unfinished) {
    const bool guarded = !(test.in_place && work.what == Collective::kReduceScatter);
    const size_t guard = guarded ? kGuardBytes : 0;
    Bytes got(expected.size() + 2 * guard);
    cuda_check(cudaMemcpy(got.data(), static_cast<char*>(work.output) - guard, got.size(), cudaMemcpyDeviceToHost),
               "cudaMemcpy");
    for (size_t i = 0; i < got.size(); ++i) {
      const bool inside = i >= guard && i < guard + expected.size();
      const unsigned char want = inside ? expected[i - guard] : kPoison;
      if (got[i] != want && !(unfinished && got[i] == kPoison)) {
        return "rank " + std::to_string(rank) + " byte " +
               std::to_string(static_cast<long>(i) - static_cast<long>(guard)) + " of " +
               std::to_string(expected.size()) + ": " + std::to_string(got[i]) + ", expected " + std::to_string(want);
      }
    }
    return "";
  }

  Ranks ranks_;
  std::vector<Buffer> inputs_;
  std::vector<Buffer> outputs_;
  std::vector<Bytes> host_inputs_;
  std::mt19937 random_{12345};
};

}  // namespace nitinol::gpu_testing
