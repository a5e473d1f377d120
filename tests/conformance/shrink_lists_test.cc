// Ranks that shrink a communicator with different lists of excluded ranks: all who call are told, with both lists.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "must_work.h"
#include "nccl.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

using List = std::vector<int>;
/// By rank; an empty one: it does not call.
using Lists = std::vector<List>;

using Run = std::function<std::string(const std::vector<int>& ranks_in_process)>;

/// As threads of one process, and as processes.
void add_ways(std::vector<std::function<std::string()>>& all, int ranks, const Run& run) {
  for (const auto& processes : {std::vector<int>{ranks}, std::vector<int>(static_cast<size_t>(ranks), 1)}) {
    all.emplace_back([run, processes] {
      const std::string wrong = run(processes);
      return wrong.empty() ? "" : std::to_string(processes.size()) + " processes: " + wrong;
    });
  }
}

/// All ways at the same time: ranks wait most of it.
std::string run_all_ways(int ranks, const Run& run) {
  std::vector<std::function<std::string()>> all;
  add_ways(all, ranks, run);
  return run_at_once(all);
}

ncclResult_t shrink(ncclComm_t comm, List excluded, ncclComm_t* child, int flags = NCCL_SHRINK_DEFAULT) {
  return ncclCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()), child, nullptr, flags);
}

std::string text_of(const List& list) {
  std::string text;
  for (const int rank : list) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

bool has(const std::string& sentence, const std::string& part) { return sentence.find(part) != std::string::npos; }

/// "rank 1 (host ..., pid ..., device ...) excludes 2, 3"
bool tells_list(const std::string& sentence, int rank, const List& list) {
  const std::string name = "rank " + std::to_string(rank) + " (host ";
  for (size_t at = sentence.find(name); at != std::string::npos; at = sentence.find(name, at + 1)) {
    const size_t end = sentence.find(')', at);
    if (end == std::string::npos) return false;
    const std::string inside = sentence.substr(at, end - at);
    if (!has(inside, ", pid ") || !has(inside, ", device ")) continue;
    std::string rest = sentence.substr(end + 1);
    const std::string wanted = " excludes " + text_of(list);
    if (rest.compare(0, wanted.size(), wanted) != 0) continue;
    rest.erase(0, wanted.size());
    if (rest.empty() || !has(", 0123456789", rest.substr(0, 1)) || has(rest.substr(0, 6), ", but ") ||
        has(rest.substr(0, 6), ", and ")) {
      return true;
    }
  }
  return false;
}

/// The sentence has the list of this rank, by whatever rank has it too, and one that is another.
void must_tell(const std::string& sentence, const Lists& lists, int self) {
  bool mine = false;
  bool another = false;
  for (size_t rank = 0; rank < lists.size(); ++rank) {
    if (lists[rank].empty() || !tells_list(sentence, static_cast<int>(rank), lists[rank])) continue;
    (lists[rank] == lists[static_cast<size_t>(self)] ? mine : another) = true;
  }
  expect_that(mine && another, "the sentence does not tell: " + sentence);
}

void must_be_told(ncclComm_t comm, const Lists& lists, int rank, int flags = NCCL_SHRINK_DEFAULT) {
  ncclComm_t child = nullptr;
  const ncclResult_t result = shrink(comm, lists[static_cast<size_t>(rank)], &child, flags);
  const std::string sentence = ncclGetLastError(comm);  // that of the process may be another thread's by now
  expect_that(result == ncclInvalidUsage, "code " + std::to_string(result) + ": " + sentence);
  expect_that(child == nullptr, "there is a child");
  must_tell(sentence, lists, rank);
}

void must_shrink(ncclComm_t comm, int rank, const List& excluded, int ranks, int flags = NCCL_SHRINK_DEFAULT) {
  ncclComm_t child = nullptr;
  EXPECT_CALL(shrink(comm, excluded, &child, flags));
  int place = rank;
  for (const int gone : excluded) place -= gone < rank ? 1 : 0;
  expect_place(child, place, ranks - static_cast<int>(excluded.size()));
  EXPECT_CALL(ncclCommDestroy(child));
}

struct Case {
  Lists lists;
  List right;
  int flags;
};

/// All who call are told; afterwards those whom `right` leaves shrink with that list.
std::string tell_all(const Case& c, const std::vector<int>& processes) {
  const int ranks = static_cast<int>(c.lists.size());
  const SharedCount told;
  return run_ranks(processes, [&](Rank& self) {
    ncclComm_t comm = nullptr;
    EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
    if (!c.lists[static_cast<size_t>(self.rank)].empty()) must_be_told(comm, c.lists, self.rank, c.flags);
    told.meet(ranks);
    const bool stays = std::find(c.right.begin(), c.right.end(), self.rank) == c.right.end();
    for (int round = 0; stays && round < 2; ++round) must_shrink(comm, self.rank, c.right, ranks, c.flags);
    told.meet(2 * ranks);
    EXPECT_CALL(ncclCommAbort(comm));
  });
}

std::string tell_all(const std::vector<Case>& cases) {
  std::vector<std::function<std::string()>> all;
  for (const Case& c : cases) {
    add_ways(all, static_cast<int>(c.lists.size()),
             [&c](const std::vector<int>& processes) { return tell_all(c, processes); });
  }
  return run_at_once(all);
}

TEST(ShrinkLists, OfRanksThatMeetAtTheSameRankAreToldIfTheyDiffer) {
  EXPECT_EQ("", tell_all({{{{3}, {2, 3}, {3}, {}}, {3}, NCCL_SHRINK_DEFAULT},
                          {{{3}, {2, 3}, {3}, {}}, {2, 3}, NCCL_SHRINK_ABORT},
                          {{{1}, {}, {1, 3}, {1}, {1}}, {1, 4}, NCCL_SHRINK_ABORT}}));
}

TEST(ShrinkLists, OfRanksThatMeetElsewhereAreToldIfTheyDiffer) {
  std::vector<Case> cases = {{{{2}, {0}, {}}, {2}, NCCL_SHRINK_ABORT}};
  for (const int flags : {NCCL_SHRINK_DEFAULT, NCCL_SHRINK_ABORT}) {
    cases.push_back({{{1}, {2}, {0}}, {0}, flags});  // each waits for one that leaves it out: a circle of three
    cases.push_back({{{3}, {0}, {0, 3}, {1, 2}}, {3}, flags});
  }
  EXPECT_EQ("", tell_all(cases));
}

TEST(ShrinkLists, OfARankThatOthersLeaveOutAreToldIfItWaitsForThem) {
  EXPECT_EQ("", tell_all({{{{2}, {2, 3}, {3}, {}}, {3}, NCCL_SHRINK_DEFAULT},
                          {{{2}, {2, 3}, {3}, {}}, {2, 3}, NCCL_SHRINK_ABORT}}));
}

TEST(ShrinkLists, AreToldToARankThatComesLate) {
  const Lists lists = {{3}, {2, 3}, {3}, {}};
  EXPECT_EQ("", run_all_ways(4, [&](const std::vector<int>& processes) {
              const SharedCount told;
              const SharedCount all;
              return run_ranks(processes, [&](Rank& self) {
                if (self.rank == 2) told.wait_for(2);
                if (self.rank != 3) must_be_told(self.comm, lists, self.rank);
                told.add();
                all.meet(4);
                if (self.rank != 3) must_shrink(self.comm, self.rank, {3}, 4);
              });
            }));
}

TEST(ShrinkLists, AreToldToARankThatWaitsForOnesThatHaveShrunkWithoutItAndLeft) {
  EXPECT_EQ("", run_all_ways(4, [&](const std::vector<int>& processes) {
              const SharedCount left;
              return run_ranks(processes, [&](Rank& self) {
                ncclComm_t comm = nullptr;
                EXPECT_CALL(ncclCommSplit(self.comm, 0, self.rank, &comm, nullptr));
                ncclComm_t child = nullptr;
                if (self.rank < 2) {
                  EXPECT_CALL(shrink(comm, {2, 3}, &child, NCCL_SHRINK_ABORT));
                  EXPECT_CALL(ncclCommAbort(comm));
                  left.add();
                  left.wait_for(3);
                  EXPECT_CALL(ncclCommDestroy(child));
                  return;
                }
                if (self.rank == 2) {
                  const ncclResult_t result = shrink(comm, {3}, &child, NCCL_SHRINK_ABORT);
                  const std::string sentence = ncclGetLastError(comm);
                  left.add();
                  expect_that(result == ncclInvalidUsage, sentence);
                  expect_that(has(sentence, "has left the communicator after a call that excluded 2, 3"), sentence);
                  expect_that(has(sentence, ") excludes 3, but rank 0 (host "), sentence);
                }
                EXPECT_CALL(ncclCommAbort(comm));
              });
            }));
}

// They may call again, with it: so it waits, and hears of their list in the end.
TEST(ShrinkLists, OfRanksThatHaveLeftOutAnotherAreInTheSentenceOfItsTimeout) {
  const ShortInitTimeout soon;
  EXPECT_EQ("", run_all_ways(4, [&](const std::vector<int>& processes) {
              const SharedCount done;
              return run_ranks(processes, [&](Rank& self) {
                if (self.rank < 2) must_shrink(self.comm, self.rank, {2, 3}, 4);
                if (self.rank == 2) {
                  ncclComm_t child = nullptr;
                  done.wait_for(2);
                  const ncclResult_t result = shrink(self.comm, {3}, &child);
                  const std::string sentence = ncclGetLastError(self.comm);
                  expect_that(result == ncclSystemError, sentence);
                  expect_that(has(sentence, "which this rank waits for, has left it out"), sentence);
                  expect_that(tells_list(sentence, 0, {2, 3}), sentence);
                  expect_that(!has(sentence, "NCCL_SOCKET_IFNAME"), sentence);
                }
                done.meet(4);
              });
            }));
}

// Rank 2 has no part in the first call and waits in the second for rank 0, which is still in the first.
TEST(ShrinkLists, MayDifferFromCallToCallOfRanksThatTakePartInOneOnly) {
  EXPECT_EQ("", run_all_ways(3, [&](const std::vector<int>& processes) {
              return run_ranks(processes, [](Rank& self) {
                if (self.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                if (self.rank != 2) must_shrink(self.comm, self.rank, {2}, 3);
                if (self.rank != 1) must_shrink(self.comm, self.rank, {1}, 3);
                if (self.rank != 0) must_shrink(self.comm, self.rank, {0}, 3);
              });
            }));
}

TEST(ShrinkLists, ThatAreRightWaitForRanksThatComeLate) {
  EXPECT_EQ("", run_all_ways(4, [&](const std::vector<int>& processes) {
              return run_ranks(processes, [](Rank& self) {
                if (self.rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1200));
                if (self.rank != 3) must_shrink(self.comm, self.rank, {3}, 4);
                if (self.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1200));
                if (self.rank != 3) must_shrink(self.comm, self.rank, {3}, 4);
              });
            }));
}

TEST(ShrinkLists, OfAGroupAreToldToItsThread) {
  const Lists lists = {{3}, {3}, {1, 3}, {}};
  EXPECT_EQ("", run_processes(1, [&](int, const ncclUniqueId&) {
              ncclComm_t comms[4];
              ncclComm_t children[4] = {};
              make_communicators(comms, 4);
              EXPECT_CALL(ncclGroupStart());
              for (const size_t i : {0, 1, 2}) EXPECT_CALL(shrink(comms[i], lists[i], &children[i]));
              const ncclResult_t result = ncclGroupEnd();
              const std::string sentence = ncclGetLastError(nullptr);
              expect_that(result == ncclInvalidUsage, sentence);
              expect_that(has(sentence, " excludes 3, but rank 2 (host ") || has(sentence, " excludes 1, 3, but rank "),
                          sentence);
              for (const size_t i : {0, 1, 2}) must_tell(ncclGetLastError(comms[i]), lists, static_cast<int>(i));
              EXPECT_CALL(ncclGroupStart());
              for (const size_t i : {0, 1, 2}) EXPECT_CALL(shrink(comms[i], {3}, &children[i]));
              EXPECT_CALL(ncclGroupEnd());
              for (const size_t i : {0, 1, 2}) EXPECT_CALL(ncclCommDestroy(children[i]));
              for (ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

std::string tell_by_the_state(int flags) {
  return run_processes(1, [&](int, const ncclUniqueId&) {
    const auto comms = make_non_blocking(4);
    ncclComm_t children[3] = {};
    const auto begin = [&](size_t rank, const List& list) {
      const ncclResult_t begun = shrink(comms[rank], list, &children[rank], flags);
      expect_that(begun == ncclInProgress, "it does not go on in the background");
    };
    const auto end = [&](size_t rank, ncclResult_t wanted) {
      expect_that(settled(ncclInProgress, children[rank]) == wanted, "the child's state");
      static_cast<void>(settled(ncclInProgress, comms[rank]));
    };
    for (const size_t rank : {0, 1, 2}) begin(rank, rank == 2 ? List{1, 3} : List{3});
    for (const size_t rank : {0, 1, 2}) {
      end(rank, ncclInvalidUsage);
      must_tell(ncclGetLastError(children[rank]), {{3}, {3}, {1, 3}}, static_cast<int>(rank));
      EXPECT_CALL(ncclCommAbort(children[rank]));
    }
    if (flags == NCCL_SHRINK_ABORT) {  // what has been stopped does not fail any more
      for (const size_t rank : {0, 1, 2}) begin(rank, {3});
      for (const size_t rank : {0, 1, 2}) end(rank, ncclSuccess);
      for (const ncclComm_t child : children) EXPECT_CALL(ncclCommAbort(child));
    }
    for (const ncclComm_t comm : comms) EXPECT_CALL(ncclCommAbort(comm));
  });
}

TEST(ShrinkLists, OfCommunicatorsThatDoNotBlockAreToldByTheState) {
  EXPECT_EQ("", run_at_once({[] { return tell_by_the_state(NCCL_SHRINK_DEFAULT); },
                             [] { return tell_by_the_state(NCCL_SHRINK_ABORT); }}));
}

/// Rank 3 dies or is stopped; of the others, who stop their operations, each leaves out its list.
std::string after_a_loss(int signal, const Lists& lists, const List& right) {
  const SharedCount told;
  const SharedCount joined;
  const SharedCount done;
  return run_processes(4, [&](int process, const ncclUniqueId& id) {
    ncclComm_t comm = nullptr;
    EXPECT_CALL(ncclCommInitRank(&comm, 4, id, process));
    joined.meet(4);
    if (process == 3 && signal == SIGSTOP && fork() == 0) {  // who lets it go in the end
      const pid_t stopped = getppid();
      done.wait_for(3);
      kill(stopped, SIGKILL);
      _exit(0);
    }
    if (process == 3) raise(signal);
    if (signal == SIGKILL) expect_that(wait_in_vain(comm) == ncclRemoteError, "the death is not noticed");
    if (!lists.empty()) must_be_told(comm, lists, process, NCCL_SHRINK_ABORT);
    told.meet(3);
    must_shrink(comm, process, right, 4, NCCL_SHRINK_ABORT);
    done.meet(3);
    EXPECT_CALL(ncclCommAbort(comm));
  });
}

TEST(ShrinkLists, AfterADeathAreToldAndAnAgreementHelps) {
  EXPECT_EQ("process 3 ended by signal 9\nprocess 3 ended by signal 9\n",
            run_at_once({[] {
                           return after_a_loss(SIGKILL, {{3}, {2, 3}, {3}, {}}, {3});
                         },
                         [] {
                           return after_a_loss(SIGKILL, {{3}, {0, 3}, {3}, {}}, {3});
                         }}));
}

TEST(ShrinkLists, WithARankThatIsStoppedAreTold) {
  EXPECT_EQ("process 3 ended by signal 9\n", after_a_loss(SIGSTOP, {{3}, {3}, {1}, {}}, {3}));
}

}  // namespace
}  // namespace nitinol::testing
