// The protocol for large messages without a GPU: its kernels' code with a host thread for each thread of theirs, all
// ranks at once. Every algorithm that it serves gives exactly the expected bits, operation after operation.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "algorithm/table.h"
#include "executor/cuda/ptx.h"
#include "expected_values.h"
#if !defined(__noinline__)
#define __noinline__ __attribute__((noinline))
#endif
#include "executor/cuda/bulk.h"

namespace nitinol::gpu_testing {
namespace {

using cuda::BulkState;
using cuda::BulkWorker;
using cuda::QueueLayout;
using cuda::QueueView;

constexpr unsigned kCtas = cuda::kBulkGroups + 2;
constexpr int kSlots = 2;
constexpr uint32_t kSlotBytes = 1024;

/// What lives from one operation to the next.
class Machine {
 public:
  explicit Machine(int ranks) : layout_(cuda::make_layout(ranks, kSlots, 1, kSlotBytes)) {
    for (int rank = 0; rank < ranks; ++rank) {
      regions_.emplace_back((layout_.bytes() + 63) / 16);
      counters_.emplace_back(layout_.counter_bytes() / 16 + 1);
    }
  }
  int ranks() const { return layout_.ranks; }

  template <class Entry, DataType type>
  void run(const std::vector<cuda::Work>& works, unsigned pushers) {
    std::vector<std::thread> threads;
    std::vector<std::unique_ptr<host_threads::Cta>> barriers;
    std::vector<std::unique_ptr<BulkState>> states;
    for (int rank = 0; rank < ranks(); ++rank) {
      for (unsigned block = 0; block < kCtas; ++block) {
        barriers.push_back(std::make_unique<host_threads::Cta>());
        states.push_back(std::make_unique<BulkState>());
        for (unsigned lane = 0; lane < 32; ++lane) {
          threads.emplace_back([this, rank, block, lane, pushers, work = works[static_cast<size_t>(rank)],
                                cta = barriers.back().get(), state = states.back().get()] {
            threadIdx.x = lane;
            blockIdx.x = block;
            blockDim.x = 32;
            gridDim.x = kCtas;
            host_threads::cta = cta;
            const QueueView view = view_of(rank);
            BulkWorker<type, Combine::kSum> worker(view, pushers, *state);
            worker.begin(work);
            Entry::run(worker, Share{0, work.count, work.chunk, work.count});
            worker.finish();
          });
        }
      }
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  using Memory = std::vector<uint4>;  // aligned as vectors need it

  QueueView view_of(int rank) {
    QueueView view;
    view.layout = layout_;
    view.rank = rank;
    view.signals = &signals_;
    view.counters = reinterpret_cast<char*>(counters_[static_cast<size_t>(rank)].data());
    for (int peer = 0; peer < ranks(); ++peer) {
      view.region[peer] = reinterpret_cast<char*>(regions_[static_cast<size_t>(peer)].data());
    }
    return view;
  }

  QueueLayout layout_;
  std::vector<Memory> regions_;
  std::vector<Memory> counters_;
  cuda::Signals signals_{};
};

/// Buffers of all ranks for one operation.
struct Buffers {
  std::vector<Bytes> inputs;
  std::vector<std::vector<uint4>> sources;
  std::vector<std::vector<uint4>> targets;
};

template <class Entry, DataType type>
void check(Machine& machine, size_t count, int turn) {
  const int n = machine.ranks();
  const int root = turn % n;
  const bool odd = turn % 2 == 1;
  const size_t shift = odd ? bytes_of(type) : 0;
  const bool average = odd && reduces(Entry::row.what);
  CollectiveWork work;
  work.what = Entry::row.what;
  work.count = count;
  work.type = type;
  work.root = root;
  work.reduction.average = average;
  std::mt19937 random(static_cast<unsigned>(count));
  Buffers b;
  std::vector<cuda::Work> works;
  for (int rank = 0; rank < n; ++rank) {
    const bool is_root = rank == root;
    b.inputs.push_back(random_elements(type, input_blocks(work.what, n, is_root) * count, false, random));
    b.sources.emplace_back((b.inputs.back().size() + shift) / 16 + 2);
    b.targets.emplace_back((output_blocks(work.what, n, is_root) * count * bytes_of(type) + shift) / 16 + 2);
    char* source = reinterpret_cast<char*>(b.sources.back().data()) + shift;
    std::memcpy(source, b.inputs.back().data(), b.inputs.back().size());
    cuda::Work mine;
    mine.input = source;
    mine.output = reinterpret_cast<char*>(b.targets.back().data()) + shift;
    mine.count = count;
    mine.chunk = kSlotBytes / bytes_of(type);
    mine.root = static_cast<int16_t>(root);
    mine.what = work.what;
    mine.algorithm = Entry::row.algorithm;
    mine.average = average;
    works.push_back(mine);
  }
  // Of one kind or the other there is a single CTA, and of the other a group has two; or all groups have one.
  constexpr unsigned kPushers[] = {kCtas - 1, 1, kCtas / 2};
  machine.run<Entry, type>(works, kPushers[turn % 3]);
  for (int rank = 0; rank < n; ++rank) {
    const Bytes expected = expected_output(work, rank, b.inputs);
    const auto* got = reinterpret_cast<const unsigned char*>(works[static_cast<size_t>(rank)].output);
    ASSERT_TRUE(Bytes(got, got + expected.size()) == expected)
        << name_of(work.what) << " " << name_of(Entry::row.algorithm) << ": rank " << rank << " of " << n << ", root "
        << root << ", " << count << " elements, shift " << shift;
  }
}

template <DataType type>
void check_all(int ranks) {
  algorithm::Table::for_each([&](auto entry) {
    using Entry = decltype(entry);
    if constexpr (suits_bulk(Entry::row.what, Entry::row.algorithm)) {
      constexpr DataType moved = reduces(Entry::row.what) ? type : DataType::kUint8;
      Machine machine(ranks);
      const size_t chunk = kSlotBytes / bytes_of(moved);
      int turn = 0;
      // Next to nothing, a chunk, and more rounds than there are slots, with and without a rest.
      for (const size_t count : {size_t{7}, chunk, 3 * chunk + 5, 6 * chunk}) {
        if (ranks > 3 && count == 6 * chunk) continue;
        if (testing::Test::HasFatalFailure()) return;
        check<Entry, moved>(machine, count, ++turn);
      }
    }
  });
}

TEST(BulkOnTheHost, EveryAlgorithmGivesTheExpectedBitsBetweenTwoRanks) { check_all<DataType::kFloat32>(2); }
TEST(BulkOnTheHost, EveryAlgorithmGivesTheExpectedBitsBetweenThreeRanks) { check_all<DataType::kBfloat16>(3); }
TEST(BulkOnTheHost, EveryAlgorithmGivesTheExpectedBitsBetweenFiveRanks) { check_all<DataType::kInt8>(5); }

}  // namespace
}  // namespace nitinol::gpu_testing
