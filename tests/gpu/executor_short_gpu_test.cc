// Short operations of the CUDA executor, brief and rooted ones: many of them behind each other, where ranks are late.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "cluster.h"

namespace nitinol::gpu_testing {

namespace {

class ShortOverRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ShortOverRanks, testing::Values(2, 3, 4, 8), testing::PrintToStringParamName());

/// Short operations with buffers of their own, of which some launches have several.
class ShortOperations {
 public:
  ShortOperations(Cluster& cluster, int launches, std::mt19937& random) : cluster_(cluster), random_(random) {
    const int n = cluster.ranks().size();
    for (int i = 0; i < launches; ++i) {
      launches_.emplace_back(static_cast<size_t>(n));
      const int works = random() % 3 == 0 ? 1 + static_cast<int>(random() % 9) : 1;
      const CollectiveWork first = any_work(n);
      for (int w = 0; w < works; ++w) {
        const bool alike = random() % 4 != 0;  // such share a kernel
        CollectiveWork work = any_work(n);
        if (alike) {
          work.what = first.what;
          work.type = first.type;
        }
        add(work, i);
      }
    }
  }

  void launch(int rank) {
    for (const std::vector<Launch>& each : launches_) {
      cluster_.ranks().executor(rank).launch(each[static_cast<size_t>(rank)], cluster_.ranks().stream(rank));
    }
  }
  void prepare() {
    for (const std::vector<Launch>& each : launches_) cluster_.ranks().prepare(each);
  }

  void check() {
    for (size_t i = 0; i < works_.size(); ++i) {
      for (int rank = 0; rank < cluster_.ranks().size(); ++rank) {
        const CollectiveWork& work = works_[i][static_cast<size_t>(rank)];
        const Bytes want = expected_output(work, rank, inputs_[i]);
        Bytes got(want.size());
        cuda_check(cudaMemcpy(got.data(), work.output, got.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
        ASSERT_EQ(got == want, true) << name_of(work.what) << ", number " << i << " with " << work.count
                                     << " elements, root " << work.root << ", rank " << rank;
      }
    }
  }

 private:
  CollectiveWork any_work(int ranks) {
    static constexpr std::array kKinds = {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                          Collective::kBroadcast, Collective::kReduce,    Collective::kAllToAll,
                                          Collective::kGather,    Collective::kScatter};
    CollectiveWork work;
    work.what = kKinds[random_() % kKinds.size()];
    work.type = reduces(work.what) ? DataType::kFloat32 : DataType::kUint8;
    work.count = 1 + random_() % (random_() % 2 == 0 ? 40 : 3000);
    work.root = static_cast<int>(random_() % static_cast<unsigned>(ranks));
    work.plan.protocol = Protocol::kLL;
    work.plan.channels = 1 + static_cast<int>(random_() % 4);
    return work;
  }

  void add(const CollectiveWork& work, int launch) {
    const int n = cluster_.ranks().size();
    std::vector<CollectiveWork> of_ranks;
    std::vector<Bytes> inputs;
    const size_t shift = random_() % 3 == 0 ? random_() % 8 * bytes_of(work.type) : 0;
    for (int rank = 0; rank < n; ++rank) {
      inputs.push_back(
          random_elements(work.type, input_blocks(work.what, n, rank == work.root) * work.count, false, random_));
      CollectiveWork mine = work;
      mine.input = cluster_.input(rank) + place_ + shift;
      mine.output = cluster_.output(rank) + place_ + shift;
      cuda_check(copy_to_device(cluster_.input(rank) + place_ + shift, inputs.back().data(), inputs.back().size()),
                 "cudaMemcpy");
      launches_[static_cast<size_t>(launch)][static_cast<size_t>(rank)].collectives.push_back(mine);
      of_ranks.push_back(mine);
    }
    place_ += (work.count * bytes_of(work.type) * static_cast<size_t>(n) + shift + 127) / 128 * 128;
    ASSERT_LT(place_, kBufferBytes);
    works_.push_back(std::move(of_ranks));
    inputs_.push_back(std::move(inputs));
  }

  Cluster& cluster_;
  std::mt19937& random_;
  std::vector<std::vector<Launch>> launches_;
  std::vector<std::vector<CollectiveWork>> works_;
  std::vector<std::vector<Bytes>> inputs_;
  size_t place_ = 0;
};

TEST_P(ShortOverRanks, AnyNumberOfThemMayBeBehindEachOtherWhileARankIsLate) {
  REQUIRE_GPU();
  const int n = GetParam();
  Cluster cluster(n);
  std::mt19937 random(2026);
  for (int late = 0; late < n; ++late) {
    ShortOperations operations(cluster, 120, random);
    if (HasFatalFailure()) return;
    operations.prepare();
    for (int rank = 0; rank < n; ++rank) {
      if (rank != late) operations.launch(rank);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    operations.launch(late);
    cluster.ranks().synchronize();
    operations.check();
    if (HasFatalFailure()) return;
  }
}

TEST_P(ShortOverRanks, RootsThatOnlySendWaitForRoom) {
  REQUIRE_GPU();
  const int n = GetParam();
  Cluster cluster(n);
  for (const Collective what : {Collective::kBroadcast, Collective::kScatter}) {
    Case test;
    test.work.what = what;
    test.work.type = DataType::kUint8;
    test.work.count = 1000;
    test.work.plan.protocol = Protocol::kLL;
    std::vector<Launch> launches = cluster.set_up(test, false);
    cluster.ranks().prepare(launches);
    for (int i = 0; i < 50; ++i) cluster.ranks().executor(0).launch(launches[0], cluster.ranks().stream(0));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(cudaStreamQuery(cluster.ranks().stream(0)), cudaErrorNotReady) << "what it sent was not taken yet";
    for (int rank = 1; rank < n; ++rank) {
      for (int i = 0; i < 50; ++i) {
        cluster.ranks().executor(rank).launch(launches[static_cast<size_t>(rank)], cluster.ranks().stream(rank));
      }
    }
    cluster.ranks().synchronize();
    EXPECT_EQ(cluster.check(test, launches), "");
  }
}

}  // namespace

}  // namespace nitinol::gpu_testing
