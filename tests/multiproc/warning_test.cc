// Operations that make no progress, where nothing ends them, and calls that wait for other ranks: the log tells once
// which ranks have not come, and what they do instead.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "cluster.h"
#include "nccl.h"
#include "nitinol.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

class Warning : public ::testing::Test {
 protected:
  Warning() {
    setenv("NCCL_DEBUG", "WARN", 1);
    setenv("NCCL_DEBUG_FILE", folder_.file("%p").c_str(), 1);
    setenv("NITINOL_WARN_AFTER", "1", 1);
  }
  ~Warning() override {
    for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NITINOL_WARN_AFTER"}) unsetenv(name);
  }

  /// Of this process.
  std::string log() const {
    std::ifstream file(folder_.file(std::to_string(getpid())));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Once the log has so many that begin so.
  std::string await_warnings(const std::string& begin, int count) const {
    std::string text;
    while (warnings(begin, text) < count) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      text = log();
    }
    return text;
  }
  /// Has others know when the log has one that begins so.
  std::thread tell(const SharedCount& warned, const std::string& begin) const {
    return std::thread([this, &warned, begin] {
      await_warnings(begin, 1);
      warned.add();
    });
  }
  static int warnings(const std::string& begin, const std::string& text) {
    int count = 0;
    for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) ++count;
    return count;
  }

 private:
  TemporaryFolder folder_;
};

/// What one of two ranks calls with.
struct Scene {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* data = nullptr;

  Scene(int rank, const ncclUniqueId& id) {
    use_device_of(rank);
    EXPECT_CALL(cudaStreamCreate(&stream));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
    EXPECT_CALL(ncclCommInitRank(&comm, 2, id, rank));
    all_reduce(7);
    wait();
  }
  void all_reduce(size_t count) const {
    EXPECT_CALL(ncclAllReduce(data, data, count, ncclFloat, ncclSum, comm, stream));
  }
  void wait() const { EXPECT_CALL(cudaStreamSynchronize(stream)); }
  void end() const {
    EXPECT_CALL(ncclCommDestroy(comm));
    EXPECT_CALL(cudaFree(data));
    EXPECT_CALL(cudaStreamDestroy(stream));
  }
};

void must_have(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts) expect_that(text.find(part) != std::string::npos, "'" + text + "' lacks " + part);
}

constexpr const char* kSecondStalls =
    "rank 0: AllReduce number 2 (count 11, type float32, op sum) makes no progress for ";
constexpr const char* kMessagesStall = "rank 0: sends and receives make no progress for ";

TEST_F(Warning, TellsOnceOfACollectiveToWhichARankDoesNotCome) {
  const SharedCount warned;
  EXPECT_EQ("", run_processes(2, [&](int rank, const ncclUniqueId& id) {
              const Scene s(rank, id);
              if (rank == 1) warned.wait_for(1);
              s.all_reduce(11);
              if (rank == 0) {
                must_have(await_warnings(kSecondStalls, 1),
                          {" ms (NITINOL_TIMEOUT ends such waits); not arrived: rank 1 (host ", "process is alive",
                           "idle, its last collective was AllReduce number 1 (count 7, type float32, op sum)"});
                std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                expect_that(warnings(kSecondStalls, log()) == 1, "it was told again");
                warned.add();
              }
              s.wait();
              expect_that(state_of(s.comm) == ncclSuccess, "it has failed");
              s.end();
            }));
}

TEST_F(Warning, TellsOfEachWaitThatIsLong) {
  const SharedCount warned;
  EXPECT_EQ("", run_processes(2, [&](int rank, const ncclUniqueId& id) {
              const Scene s(rank, id);
              for (int wait = 1; wait <= 2; ++wait) {
                if (rank == 1) {
                  warned.wait_for(wait);
                  EXPECT_CALL(ncclSend(s.data, 5, ncclFloat, 0, s.comm, s.stream));
                } else {
                  EXPECT_CALL(ncclRecv(s.data, 5, ncclFloat, 1, s.comm, s.stream));
                  must_have(await_warnings(kMessagesStall, wait),
                            {"waiting for: Recv number ", " from rank 1 (count 5, type float32), rank 1 (host "});
                  warned.add();
                }
                s.wait();
              }
              s.end();
            }));
}

/// So that it would have been told again of what rank 0 waits for.
void come_late() { std::this_thread::sleep_for(std::chrono::milliseconds(1500)); }

TEST_F(Warning, TellsOnceOfARankThatIsLateToJoin) {
  const std::string missing =
      "still waiting (NITINOL_INIT_TIMEOUT ends such waits): rank 1 (of 2) did not arrive within 1 s: check that all ";
  const SharedCount warned;
  EXPECT_EQ("", run_processes(2, [&](int rank, const ncclUniqueId& id) {
              std::thread watcher;
              if (rank == 0) watcher = tell(warned, missing);
              warned.wait_for(rank);
              if (rank == 1) come_late();
              const Scene s(rank, id);
              if (rank == 0) watcher.join();
              expect_that(warnings(missing, log()) == 1 - rank, log());
              s.end();
            }));
}

/// In the log of a process that has no root itself.
TEST_F(Warning, TellsOnceOfARootThatWaitsForOthers) {
  const std::string silence = "still waiting (NITINOL_INIT_TIMEOUT ends such waits): the root of the unique id at ";
  const SharedCount warned;
  EXPECT_EQ("", run_processes(2, [&](int rank, const ncclUniqueId& id) {
              std::thread watcher;
              if (rank == 1) watcher = tell(warned, silence);
              warned.wait_for(1 - rank);
              if (rank == 0) come_late();
              const Scene s(rank, id);
              if (rank == 1) {
                watcher.join();
                must_have(log(), {" in pid ",
                                  " has not answered within 1 s; it does when all ranks have come, and its process "
                                  "tells in its log which have not; its process is alive"});
              }
              expect_that(warnings(silence, log()) == rank, log());
              s.end();
            }));
}

TEST_F(Warning, TellsOnceOfARankThatIsLateToSplit) {
  const SharedCount warned;
  EXPECT_EQ("", run_processes(2, [&](int rank, const ncclUniqueId& id) {
              const Scene s(rank, id);
              ncclComm_t half = nullptr;
              std::thread watcher;
              if (rank == 0) watcher = tell(warned, ") in ncclCommSplit");
              warned.wait_for(rank);
              if (rank == 1) come_late();
              EXPECT_CALL(ncclCommSplit(s.comm, 0, rank, &half, nullptr));
              if (rank == 0) {
                watcher.join();
                must_have(log(), {"still waiting (NITINOL_INIT_TIMEOUT ends such waits): rank 0 waited ",
                                  " ms for rank 1 (host ", "does every rank make the same calls?"});
                expect_that(warnings(") in ncclCommSplit", log()) == 1, "it was told again");
              }
              expect_place(half, rank, 2);
              EXPECT_CALL(ncclCommDestroy(half));
              s.end();
            }));
}

TEST_F(Warning, TellsOnceOfARankThatIsLateToFinalize) {
  const SharedCount warned;
  EXPECT_EQ("", run_processes(2, [&](int rank, const ncclUniqueId& id) {
              const Scene s(rank, id);
              std::thread watcher;
              EXPECT_CALL(nitinolCommSetTimeout(s.comm, 100));  // else rank 0 goes alone
              if (rank == 0) watcher = tell(warned, ") in ncclCommFinalize");
              warned.wait_for(rank);
              if (rank == 1) come_late();
              EXPECT_CALL(ncclCommFinalize(s.comm));
              if (rank == 0) {
                watcher.join();
                must_have(log(),
                          {"still waiting (NITINOL_TIMEOUT ends such waits): rank 0 waited ", " ms for rank 1 (host "});
                expect_that(warnings(") in ncclCommFinalize", log()) == 1, "it was told again");
              }
              s.end();
            }));
}

class WarningOfShrink : public Warning {
 protected:
  /// Of three ranks the last is left out, and `late` comes once the other's log has the warning, with all parts, once.
  void tell_once_of(int late, const std::string& warning, std::initializer_list<const char*> parts) const {
    const SharedCount warned;
    EXPECT_EQ("", run_ranks({1, 1, 1}, [&](Rank& self) {
                if (self.rank == 2) return;
                const bool waits = self.rank != late;
                ncclComm_t rest = nullptr;
                std::thread watcher;
                if (waits) watcher = tell(warned, warning);
                warned.wait_for(waits ? 0 : 1);
                if (!waits) come_late();
                int gone = 2;
                EXPECT_CALL(ncclCommShrink(self.comm, &gone, 1, &rest, nullptr, NCCL_SHRINK_DEFAULT));
                if (waits) {
                  watcher.join();
                  must_have(log(), parts);
                }
                expect_that(warnings(warning, log()) == (waits ? 1 : 0), log());
                expect_place(rest, self.rank, 2);
                EXPECT_CALL(ncclCommDestroy(rest));
              }));
  }
};

/// In the log of the new rank 0's process, where the ranks meet.
TEST_F(WarningOfShrink, TellsOnceOfARankThatIsLate) {
  tell_once_of(1, " of the old communicator (of 2) did not arrive within 1 s: check that all ranks make ",
               {"still waiting (NITINOL_INIT_TIMEOUT ends such waits): rank 1 (host "});
}

/// That is the new rank 0, where the others would meet.
TEST_F(WarningOfShrink, TellsOnceOfANewRank0ThatIsLate) {
  tell_once_of(0, "still trying (NCCL_SOCKET_RETRY_CNT or NITINOL_INIT_TIMEOUT ends it): ",
               {"cannot connect to rank 0 (host ", ") of the old communicator, where the ranks meet, at ",
                ": it has not made this call, or has given up ("});
}

/// Rank 1 waits for rank 0 in the second one, for as long as that waits in the first.
TEST_F(Warning, TellsOfCommunicatorsThatAreDestroyedInOppositeOrder) {
  EXPECT_EQ("", run_processes(2, [&](int rank, const ncclUniqueId& id) {
              const Scene s(rank, id);
              ncclComm_t second = nullptr;
              EXPECT_CALL(ncclCommSplit(s.comm, 0, rank, &second, nullptr));
              EXPECT_CALL(nitinolCommSetTimeout(second, 100));  // else rank 1 goes alone
              if (rank == 1) EXPECT_CALL(ncclCommDestroy(second));
              if (rank == 0) EXPECT_CALL(nitinolCommSetTimeout(s.comm, 3));
              s.end();
              if (rank == 1) return;
              const std::string text = log();
              must_have(text, {" ms for rank 1 (host ", ") in ncclCommFinalize or ncclCommDestroy"});
              const char* const warning = "still waiting (NITINOL_TIMEOUT ends such waits): rank 0 waited ";
              expect_that(warnings(warning, text) == 1, text);
              expect_that(warnings(" NCCL WARN rank 0: rank 0 waited ", text) == 1, "it does not say that it gave up");
              EXPECT_CALL(ncclCommDestroy(second));
            }));
}

TEST_F(Warning, TellsOfARankThatHasDiedThoughNothingNeedsIt) {
  EXPECT_EQ("process 1 ended by signal 9\n", run_processes(2, [&](int rank, const ncclUniqueId& id) {
              const Scene s(rank, id);
              if (rank == 1) raise(SIGKILL);
              const std::string warning = " exited or closed its connection; nothing here waits for it";
              must_have(await_warnings(warning, 1), {"NCCL WARN rank 0: rank 1 (host "});
              expect_that(state_of(s.comm) == ncclSuccess, "it has failed");
              EXPECT_CALL(ncclCommAbort(s.comm));
            }));
}

TEST_F(Warning, TellsOnceOfARankOfTheSameProcessThatIsLateToFinalize) {
  const std::string missing = "still waiting (NITINOL_TIMEOUT ends such waits): rank 0 waited 1000 ms for rank 1 (";
  EXPECT_EQ("", run_processes(1, [&](int, const ncclUniqueId&) {
              const std::vector<ncclComm_t> comms = make_non_blocking(2);
              for (const ncclComm_t comm : comms) EXPECT_CALL(nitinolCommSetTimeout(comm, 100));  // else it goes alone
              static_cast<void>(ncclCommFinalize(comms[0]));
              must_have(await_warnings(missing, 1), {") in ncclCommFinalize, in its own process: does every rank "});
              come_late();
              static_cast<void>(ncclCommFinalize(comms[1]));
              for (const ncclComm_t comm : comms) {
                EXPECT_CALL(settled(ncclInProgress, comm));
                EXPECT_CALL(ncclCommDestroy(comm));
              }
              expect_that(warnings("still waiting", log()) == 1, log());
            }));
}

TEST_F(Warning, IsNotGivenOfRanksThatAreLateIfNobodyWantsIt) {
  setenv("NITINOL_WARN_AFTER", "0", 1);
  EXPECT_EQ("", run_processes(2, [&](int rank, const ncclUniqueId& id) {
              if (rank == 1) come_late();
              const Scene s(rank, id);
              ncclComm_t half = nullptr;
              if (rank == 1) come_late();
              EXPECT_CALL(ncclCommSplit(s.comm, 0, rank, &half, nullptr));
              EXPECT_CALL(ncclCommDestroy(half));
              if (rank == 1) come_late();
              s.end();
              expect_that(warnings("still waiting", log()) == 0, log());
            }));
}

TEST_F(Warning, IsNotGivenIfNobodyWantsIt) {
  setenv("NITINOL_WARN_AFTER", "0", 1);
  const SharedCount waited;
  EXPECT_EQ("", run_processes(2, [&](int rank, const ncclUniqueId& id) {
              const Scene s(rank, id);
              if (rank == 1) waited.wait_for(1);
              s.all_reduce(11);
              if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
              waited.add();
              s.wait();
              s.end();
              expect_that(warnings("makes no progress", log()) == 0, log());
            }));
}

}  // namespace
}  // namespace nitinol::testing
