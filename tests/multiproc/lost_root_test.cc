// A process that made one of the unique ids of a communicator ends while that is being created: every rank that is left
// is told which process, soon, wherever it waits. And no rank is told so while all processes live, however late one is.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "nccl.h"
#include "shared.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostIds = 8;
// Both far above what it takes, and below NITINOL_INIT_TIMEOUT.
constexpr std::chrono::seconds kInTime{25};
constexpr const char* kInitTimeout = "45";

enum class Moment {
  kBeforeAll,        // nobody has turned to it yet
  kWhileAllWait,     // all others wait
  kWhileItsOwnWait,  // all others of its id wait; those of other ids come later
};
enum class End { kKilled, kExits };

struct Loss {
  int ranks = 4;            // processes from 0; one above them is no rank
  std::vector<int> makers;  // of each id
  int victim = 0;
  Moment moment = Moment::kBeforeAll;
  End end = End::kKilled;
  bool blocking = true;
  int absent = -1;  // a rank that never comes, else the communicator might be made before

  int processes() const { return std::max(ranks, *std::max_element(makers.begin(), makers.end()) + 1); }
  /// Whether the process is a rank of an id that the victim has made.
  bool is_served_by_victim(int rank) const {
    const int ids = static_cast<int>(makers.size());
    const int size = ranks / ids;
    const int larger = ranks % ids;
    const int block = rank < larger * (size + 1) ? rank / (size + 1) : larger + (rank - larger * (size + 1)) / size;
    return makers[static_cast<size_t>(block)] == victim;
  }
};

/// What the processes of a test know of each other.
struct Board {
  std::array<ncclUniqueId, kMostIds> ids;
  pid_t victim;
};

using SharedBoard = Shared<Board>;

/// Its parent, the test, does not look after it before all have ended.
void wait_for_end_of(pid_t process) {
  while (true) {
    std::string line;
    std::getline(std::ifstream("/proc/" + std::to_string(process) + "/stat"), line);
    if (line.empty() || line.find(") Z ") != std::string::npos) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

ncclResult_t join(const Loss& loss, int rank, Board& board) {
  use_device_of(rank);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = loss.blocking ? 1 : 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t called = ncclCommInitRankScalable(&comm, loss.ranks, rank, static_cast<int>(loss.makers.size()),
                                                       board.ids.data(), &config);
  const ncclResult_t result = settled(called, comm);
  if (result != ncclSuccess && comm != nullptr) EXPECT_CALL(ncclCommAbort(comm));
  return result;
}

void end_in_time(const Loss& loss, const SharedCount& begun) {
  int others = 0;
  for (int process = 0; process < loss.ranks; ++process) {
    const bool waits = loss.moment == Moment::kWhileAllWait || loss.is_served_by_victim(process);
    if (process != loss.victim && process != loss.absent && waits) ++others;
  }
  if (loss.moment != Moment::kBeforeAll) {
    begun.wait_for(others);
    // Some are on their way and some are there: all of it is to go well.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  if (loss.end == End::kKilled) raise(SIGKILL);
  _exit(0);
}

void survive(const Loss& loss, int process, Board& board, const SharedCount& begun) {
  if (process >= loss.ranks || process == loss.absent) return;
  const bool waits_for_end = loss.moment == Moment::kBeforeAll ||
                             (loss.moment == Moment::kWhileItsOwnWait && !loss.is_served_by_victim(process));
  if (waits_for_end) wait_for_end_of(board.victim);
  begun.add();
  const auto begin = Clock::now();
  const ncclResult_t result = join(loss, process, board);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
  const std::string sentence = ncclGetLastError(nullptr);
  expect_that(result == ncclRemoteError, "another code, " + std::to_string(result));
  expect_that(sentence.find("pid " + std::to_string(board.victim)) != std::string::npos,
              "the error does not name pid " + std::to_string(board.victim));
  expect_that(took < kInTime, "it took " + std::to_string(took.count()) + " ms");
}

std::string run(const Loss& loss) {
  setenv("NITINOL_INIT_TIMEOUT", kInitTimeout, 1);
  const SharedBoard board;
  const SharedCount made;
  const SharedCount begun;
  const SharedCount heard;
  return run_processes(loss.processes(), [&](int process, const ncclUniqueId&) {
    if (process == loss.victim) board->victim = getpid();
    for (size_t i = 0; i < loss.makers.size(); ++i) {
      if (loss.makers[i] == process) EXPECT_CALL(ncclGetUniqueId(&board->ids[i]));
    }
    made.meet(loss.processes());
    if (process == loss.victim) end_in_time(loss, begun);
    try {
      survive(loss, process, *board, begun);
    } catch (const std::exception&) {
      heard.add();
      throw;
    }
    heard.meet(loss.processes() - 1);  // the other roots stay
  });
}

void all_are_told(const Loss& loss) {
  const std::string expected =
      loss.end == End::kKilled ? "process " + std::to_string(loss.victim) + " ended by signal 9\n" : "";
  EXPECT_EQ(expected, run(loss));
}

constexpr std::array<Moment, 3> kMoments{Moment::kBeforeAll, Moment::kWhileAllWait, Moment::kWhileItsOwnWait};

TEST(LostRoot, OfAnotherIdIsToldToAllThoughItsOwnRankIsGoneWithIt) {
  for (const Moment moment : kMoments) {
    all_are_told({.ranks = 4, .makers = {0, 2}, .victim = 2, .moment = moment});
    all_are_told({.ranks = 2, .makers = {0, 1}, .victim = 1, .moment = moment});  // and nobody else is of that id
  }
}

TEST(LostRoot, OfTheFirstIdIsToldToTheRanksOfAllOthers) {
  for (const Moment moment : kMoments) {
    all_are_told({.ranks = 4, .makers = {0, 2}, .victim = 0, .moment = moment});
    all_are_told({.ranks = 3, .makers = {0, 1, 2}, .victim = 0, .moment = moment});
  }
}

TEST(LostRoot, InAProcessThatIsNoRankIsToldToAll) {
  for (const Moment moment : kMoments) {
    all_are_told({.ranks = 4, .makers = {0, 4}, .victim = 4, .moment = moment, .absent = 1});
    all_are_told({.ranks = 4, .makers = {4, 2}, .victim = 4, .moment = moment, .absent = 3});
    all_are_told({.ranks = 4, .makers = {0, 4}, .victim = 4, .moment = moment, .end = End::kExits, .absent = 0});
  }
}

TEST(LostRoot, InAProcessThatIsARankOfAnotherIdIsToldToAll) {
  for (const Moment moment : kMoments) all_are_told({.ranks = 4, .makers = {0, 1}, .victim = 1, .moment = moment});
}

TEST(LostRoot, OfTheOnlyIdIsToldToAll) {
  for (const Moment moment : {Moment::kBeforeAll, Moment::kWhileAllWait}) {
    all_are_told({.ranks = 3, .makers = {0}, .victim = 0, .moment = moment});
    all_are_told({.ranks = 3, .makers = {3}, .victim = 3, .moment = moment, .end = End::kExits, .absent = 2});
  }
}

TEST(LostRoot, FarFromRankZeroIsToldToRanksThatHaveNothingToDoWithIt) {
  all_are_told({.ranks = 7, .makers = {0, 1, 2, 3, 4, 5, 6}, .victim = 5});  // below rank 1
  all_are_told({.ranks = 7, .makers = {0, 1, 2, 3, 4, 5, 6}, .victim = 1, .moment = Moment::kWhileAllWait});
}

TEST(LostRoot, IsToldToRanksThatDoNotBlock) {
  for (const Moment moment : kMoments) {
    all_are_told({.ranks = 4, .makers = {0, 2}, .victim = 2, .moment = moment, .blocking = false});
    all_are_told({.ranks = 4, .makers = {0, 2}, .victim = 0, .moment = moment, .blocking = false});
  }
}

/// Makes a communicator with an id of each of `makers`; one process comes much later than the others.
std::string run_with_a_late_one(const std::vector<int>& makers, int ranks, int late) {
  const Loss nobody{.ranks = ranks, .makers = makers, .victim = -1};
  const SharedBoard board;
  const SharedCount made;
  const SharedCount joined;
  return run_processes(nobody.processes(), [&](int process, const ncclUniqueId&) {
    for (size_t i = 0; i < makers.size(); ++i) {
      if (makers[i] == process) EXPECT_CALL(ncclGetUniqueId(&board->ids[i]));
    }
    made.meet(nobody.processes());
    if (process == late) std::this_thread::sleep_for(std::chrono::seconds(3));
    if (process < ranks) expect_that(join(nobody, process, *board) == ncclSuccess, "could not join");
    joined.meet(nobody.processes());
  });
}

TEST(LostRoot, IsNotSeenInAProcessThatComesLate) {
  EXPECT_EQ("", run_with_a_late_one({0, 2}, 4, 2));
  EXPECT_EQ("", run_with_a_late_one({0, 1, 2}, 3, 0));
  EXPECT_EQ("", run_with_a_late_one({4, 4}, 4, 3));
}

TEST(LostRoot, IsNotSeenAtAnAddressWhereTheRootComesLate) {
  const std::string port = std::to_string(20000 + getpid() % 12000);
  setenv("NCCL_COMM_ID", ("127.0.0.1:" + port).c_str(), 1);
  const std::string wrong = run_with_a_late_one({0}, 3, 0);
  unsetenv("NCCL_COMM_ID");
  EXPECT_EQ("", wrong);
}

/// A process that is no rank makes the second id, and ends as soon as the ranks of that one have joined.
TEST(LostRoot, IsNotSeenWhereItHasServedItsRanks) {
  constexpr int kRanks = 4;
  const Loss nobody{.ranks = kRanks, .makers = {0, kRanks}, .victim = -1};
  for (int round = 0; round < 10; ++round) {
    const SharedBoard board;
    const SharedCount made;
    const SharedCount served;
    EXPECT_EQ("", run_processes(kRanks + 1, [&](int process, const ncclUniqueId& id) {
                if (process == 0) board->ids[0] = id;
                if (process == kRanks) EXPECT_CALL(ncclGetUniqueId(&board->ids[1]));
                made.meet(kRanks + 1);
                if (process == kRanks) return served.wait_for(2);
                expect_that(join(nobody, process, *board) == ncclSuccess, "could not join");
                if (process >= 2) served.add();
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
              }));
  }
}

}  // namespace
}  // namespace nitinol::testing
