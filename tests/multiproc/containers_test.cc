// Processes of one host that do not see each other's numbers, as in containers that share network and host name.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <thread>

#include "cluster.h"
#include "container.h"
#include "ints.h"
#include "nccl.h"
#include "scarcity.h"

namespace nitinol::testing {
namespace {

/// Runs `body` in a process that sees no others. Throws if it goes wrong.
void in_a_container(const std::function<void()>& body) {
  const std::optional<int> status = status_in_a_container([&] {
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the container: %s\n", error.what());
      _exit(1);
    }
  });
  expect_that(status == 0, "the process in the container failed");
}

/// Rank 1 waits a while for rank 0 to shrink, too.
void shrink_beside_one_in_a_container(int rank, const ncclUniqueId& id) {
  ncclComm_t comm = nullptr;
  use_device_of(rank);
  EXPECT_CALL(ncclCommInitRank(&comm, 3, id, rank));
  const Ints data(10, rank + 1);
  EXPECT_CALL(ncclAllReduce(data.data(), data.data(), 10, ncclInt, ncclSum, comm, nullptr));
  EXPECT_CALL(cudaStreamSynchronize(nullptr));
  data.must_be(6, "the sum");
  if (rank != 2) {
    ncclComm_t smaller = nullptr;
    int excluded = 2;
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(700));
    EXPECT_CALL(ncclCommShrink(comm, &excluded, 1, &smaller, nullptr, NCCL_SHRINK_DEFAULT));
    expect_place(smaller, rank, 2);
    EXPECT_CALL(ncclCommDestroy(smaller));
  }
  EXPECT_CALL(ncclCommDestroy(comm));
}

TEST(Containers, WhoseProcessesDoNotSeeEachOtherDoNotTakeThemForDeadWhenTheyShrink) {
  if (kAddressSanitizer) GTEST_SKIP() << "its look for leaks needs a process that this one can see";
  if (!there_are_containers()) GTEST_SKIP() << "this system lets us have no processes of our own";
  EXPECT_EQ("", run_processes(3, [](int process, const ncclUniqueId& id) {
              const auto run = [&] { shrink_beside_one_in_a_container(process, id); };
              if (process == 1) {
                in_a_container(run);
              } else {
                run();
              }
            }));
}

}  // namespace
}  // namespace nitinol::testing
