// Calls in every stage of a communicator's life in which they are refused, with the codes of the contract; and groups
// of communicators that do not block. What is allowed is tested where it is the subject.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "nccl.h"
#include "nitinol.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

struct Scene {
  ncclComm_t comm = nullptr;
  float* data = nullptr;
};

struct NamedCall {
  const char* name;
  std::function<ncclResult_t(const Scene&)> make;
};

ncclResult_t shrink(const Scene& s, int flags) {
  ncclComm_t child = nullptr;
  int excluded = 1;
  return ncclCommShrink(s.comm, &excluded, 1, &child, nullptr, flags);
}

const std::vector<NamedCall>& calls() {
  static const std::vector<NamedCall> all = {
      {"count",
       [](const Scene& s) {
         int n = 0;
         return ncclCommCount(s.comm, &n);
       }},
      {"all-reduce",
       [](const Scene& s) { return ncclAllReduce(s.data, s.data, 5, ncclFloat, ncclSum, s.comm, nullptr); }},
      {"register",
       [](const Scene& s) {
         void* handle = nullptr;
         return ncclCommRegister(s.comm, s.data, 64, &handle);
       }},
      {"operator",
       [](const Scene& s) {
         float two = 2;
         ncclRedOp_t op{};
         return ncclRedOpCreatePreMulSum(&op, &two, ncclFloat, ncclScalarHostImmediate, s.comm);
       }},
      {"split",
       [](const Scene& s) {
         ncclComm_t child = nullptr;
         return ncclCommSplit(s.comm, 0, 0, &child, nullptr);
       }},
      {"shrink", [](const Scene& s) { return shrink(s, NCCL_SHRINK_DEFAULT); }},
      {"shrink with abort", [](const Scene& s) { return shrink(s, NCCL_SHRINK_ABORT); }},
      {"revoke", [](const Scene& s) { return ncclCommRevoke(s.comm, NCCL_REVOKE_DEFAULT); }},
      {"finalize", [](const Scene& s) { return ncclCommFinalize(s.comm); }},
  };
  return all;
}

/// A letter for each call, in their order: s the state, u invalid usage, a invalid argument, n success without effect,
/// y allowed, which is not tried.
void must_refuse(const Scene& s, const std::string& letters, ncclResult_t state) {
  for (size_t i = 0; i < letters.size(); ++i) {
    if (letters[i] == 'y') continue;
    const ncclResult_t wanted = letters[i] == 's'   ? state
                                : letters[i] == 'u' ? ncclInvalidUsage
                                : letters[i] == 'a' ? ncclInvalidArgument
                                                    : ncclSuccess;
    const ncclResult_t got = calls()[i].make(s);
    if (got == wanted) continue;
    throw std::runtime_error(std::string(calls()[i].name) + ": " + std::to_string(got) + ", not " +
                             std::to_string(wanted) + " (" + ncclGetLastError(nullptr) + ")");
  }
  ncclResult_t now = ncclSuccess;
  EXPECT_CALL(ncclCommGetAsyncError(s.comm, &now));
  if (now != state) throw std::runtime_error("the state is " + std::to_string(now) + ", not " + std::to_string(state));
}

ncclConfig_t not_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

ncclResult_t wait_while(ncclComm_t comm, ncclResult_t state) {
  ncclResult_t now = state;
  while (now == state) {
    EXPECT_CALL(ncclCommGetAsyncError(comm, &now));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return now;
}

Scene join(int process, const ncclUniqueId& id, bool blocking) {
  Scene s;
  ncclConfig_t config = not_blocking();
  config.blocking = blocking ? 1 : 0;
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&s.data), 4096));
  const ncclResult_t begun = ncclCommInitRankConfig(&s.comm, 2, id, process, &config);
  if (begun != ncclInProgress) EXPECT_CALL(begun);
  const ncclResult_t state = wait_while(s.comm, ncclInProgress);
  EXPECT_CALL(state);
  return s;
}

/// Rank 0 brings its communicator into a stage and tries the calls; rank 1 waits until that has been aborted.
std::string in_stage(bool blocking, const std::function<void(Scene& s)>& enter, const char* letters,
                     ncclResult_t state) {
  const SharedCount joined;
  const SharedCount through;
  return run_processes(2, [&](int process, const ncclUniqueId& id) {
    Scene s = join(process, id, blocking);
    joined.meet(2);
    if (process == 0) {
      enter(s);
      must_refuse(s, letters, state);
    } else {
      through.wait_for(1);
    }
    EXPECT_CALL(ncclCommAbort(s.comm));
    through.add();
  });
}

void must_be_in_progress(ncclResult_t result) {
  if (result != ncclInProgress) throw std::runtime_error("not in progress: " + std::to_string(result));
}

TEST(Edges, WhileInitialising) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              Scene s;
              ncclConfig_t config = not_blocking();
              EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&s.data), 4096));
              must_be_in_progress(ncclCommInitRankConfig(&s.comm, 2, id, 0, &config));
              must_refuse(s, "ssaaaaaaa", ncclInProgress);
              EXPECT_CALL(ncclCommAbort(s.comm));
            }));
}

/// Rank 1 never comes.
TEST(Edges, AfterAnInitThatFailed) {
  setenv("NITINOL_INIT_TIMEOUT", "1", 1);
  const std::string wrong = run_processes(1, [](int, const ncclUniqueId& id) {
    Scene s;
    ncclConfig_t config = not_blocking();
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&s.data), 4096));
    must_be_in_progress(ncclCommInitRankConfig(&s.comm, 2, id, 0, &config));
    const ncclResult_t failure = wait_while(s.comm, ncclInProgress);
    if (failure == ncclSuccess) throw std::runtime_error("a communicator of two ranks with one");
    must_refuse(s, "sssssssss", failure);
    EXPECT_CALL(ncclCommAbort(s.comm));
  });
  unsetenv("NITINOL_INIT_TIMEOUT");
  EXPECT_EQ("", wrong);
}

TEST(Edges, WhileBusyWithASplit) {
  EXPECT_EQ("", in_stage(
                    false,
                    [](Scene& s) {
                      ncclComm_t child = nullptr;
                      must_be_in_progress(ncclCommSplit(s.comm, NCCL_SPLIT_NOCOLOR, 0, &child, nullptr));
                    },
                    "yaaaaayya", ncclInProgress));
}

/// Rank 1 never makes the call with which rank 0's is to be compared.
TEST(Edges, WhileBusyWithACollective) {
  setenv("NITINOL_CHECK", "strict", 1);
  const std::string wrong = in_stage(
      false,
      [](Scene& s) { must_be_in_progress(ncclAllReduce(s.data, s.data, 5, ncclFloat, ncclSum, s.comm, nullptr)); },
      "yaaaaayya", ncclInProgress);
  unsetenv("NITINOL_CHECK");
  EXPECT_EQ("", wrong);
}

TEST(Edges, AfterAFailure) {
  const SharedCount joined;
  EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) {
              Scene s = join(process, id, true);
              if (process == 0) {  // what rank 1 never calls
                EXPECT_CALL(settled(ncclAllReduce(s.data, s.data, 5, ncclFloat, ncclSum, s.comm, nullptr), s.comm));
              }
              joined.meet(2);
              if (process == 0 && wait_while(s.comm, ncclSuccess) == ncclRemoteError) {
                must_refuse(s, "ssssssyys", ncclRemoteError);
              }
              EXPECT_CALL(ncclCommAbort(s.comm));
            }));
}

/// A stream holds a collective back meanwhile.
TEST(Edges, WhileRevoking) {
  EXPECT_EQ("", run_processes(2, [](int process, const ncclUniqueId& id) {
              Scene s = join(process, id, false);
              std::atomic<bool> open{false};
              // So that rank 0 needs nothing more of rank 1, which may be gone when it calls again.
              EXPECT_CALL(settled(ncclAllReduce(s.data, s.data, 5, ncclFloat, ncclSum, s.comm, nullptr), s.comm));
              EXPECT_CALL(cudaStreamSynchronize(nullptr));
              if (process == 0) {
                const auto wait = [](void* gate) { static_cast<std::atomic<bool>*>(gate)->wait(false); };
                EXPECT_CALL(cudaLaunchHostFunc(nullptr, wait, &open));
                EXPECT_CALL(ncclAllReduce(s.data, s.data, 5, ncclFloat, ncclSum, s.comm, nullptr));
              }
              must_be_in_progress(ncclCommRevoke(s.comm, NCCL_REVOKE_DEFAULT));
              if (process == 0) must_refuse(s, "yuuuaaynu", ncclInProgress);
              open = true;
              open.notify_all();
              const ncclResult_t state = wait_while(s.comm, ncclInProgress);
              EXPECT_CALL(state);
              EXPECT_CALL(ncclCommDestroy(s.comm));
            }));
}

TEST(Edges, AfterRevoking) {
  EXPECT_EQ("", run_processes(2, [](int process, const ncclUniqueId& id) {
              Scene s = join(process, id, true);
              EXPECT_CALL(ncclCommRevoke(s.comm, NCCL_REVOKE_DEFAULT));
              must_refuse(s, "yuuuyyynu", ncclSuccess);
              EXPECT_CALL(ncclCommDestroy(s.comm));
            }));
}

TEST(Edges, WhileFinalising) {
  EXPECT_EQ("", in_stage(
                    false,
                    [](Scene& s) {
                      EXPECT_CALL(nitinolCommSetTimeout(s.comm, kLongTime));
                      must_be_in_progress(ncclCommFinalize(s.comm));
                      // The flush, which comes first, counts as being busy.
                      do {
                        std::this_thread::yield();
                        if (ncclCommFinalize(s.comm) == ncclSuccess) throw std::runtime_error("finalized twice");
                      } while (std::strstr(ncclGetLastError(s.comm), "has been finalized") == nullptr);
                    },
                    "yaaaaaaaa", ncclInProgress));
}

TEST(Edges, AfterFinalizing) {
  for (const bool blocking : {true, false}) {
    EXPECT_EQ("", run_processes(2, [&](int process, const ncclUniqueId& id) {
                Scene s = join(process, id, blocking);
                const ncclResult_t begun = ncclCommFinalize(s.comm);
                if (begun != ncclInProgress) EXPECT_CALL(begun);
                const ncclResult_t state = wait_while(s.comm, ncclInProgress);
                EXPECT_CALL(state);
                must_refuse(s, "yaaaaaaaa", ncclSuccess);
                EXPECT_CALL(ncclCommDestroy(s.comm));
              }));
  }
}

TEST(Edges, OfDestroyedOnes) {
  EXPECT_EQ("", run_processes(2, [](int process, const ncclUniqueId& id) {
              Scene s = join(process, id, true);
              EXPECT_CALL(ncclCommDestroy(s.comm));
              for (const NamedCall& call : calls()) {
                if (call.make(s) != ncclInvalidArgument) throw std::runtime_error(call.name);
              }
              ncclResult_t state = ncclSuccess;
              if (ncclCommGetAsyncError(s.comm, &state) != ncclInvalidArgument) throw std::runtime_error("state");
              if (ncclCommDestroy(s.comm) != ncclInvalidArgument) throw std::runtime_error("destroyed twice");
              if (ncclCommAbort(s.comm) != ncclInvalidArgument) throw std::runtime_error("aborted after");
            }));
}

TEST(Edges, ANonBlockingFinalizeWaitsForTheOtherRanksOfTheProcess) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              ncclComm_t comms[2] = {};
              ncclConfig_t config = not_blocking();
              for (int i = 0; i < 2; ++i) {
                use_device_of(i);
                must_be_in_progress(ncclCommInitRankConfig(&comms[i], 2, id, i, &config));
              }
              for (ncclComm_t comm : comms) EXPECT_CALL(wait_while(comm, ncclInProgress));
              for (ncclComm_t comm : comms) EXPECT_CALL(nitinolCommSetTimeout(comm, kLongTime));
              must_be_in_progress(ncclCommFinalize(comms[0]));
              for (int i = 0; i < 20; ++i) {
                ncclResult_t state = ncclSuccess;
                EXPECT_CALL(ncclCommGetAsyncError(comms[0], &state));
                must_be_in_progress(state);
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
              }
              must_be_in_progress(ncclCommFinalize(comms[1]));
              for (ncclComm_t comm : comms) EXPECT_CALL(wait_while(comm, ncclInProgress));
              for (ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

TEST(Edges, ANonBlockingFinalizeNamesTheRankOfTheProcessThatDoesNotCome) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId&) {
              const std::vector<ncclComm_t> comms = make_non_blocking(3);
              for (ncclComm_t comm : comms) EXPECT_CALL(nitinolCommSetTimeout(comm, 1));
              for (size_t i : {2, 0}) must_be_in_progress(ncclCommFinalize(comms[i]));
              for (size_t i : {0, 1, 2}) {
                const ncclComm_t comm = comms[i];
                const ncclResult_t state = wait_while(comm, i == 1 ? ncclSuccess : ncclInProgress);
                if (state != ncclRemoteError) throw std::runtime_error("in state " + std::to_string(state));
                const std::string sentence = ncclGetLastError(comm);
                const bool names_it = sentence.find("for rank 1 (host") != std::string::npos;
                if (!names_it || sentence.find("ncclCommFinalize") == std::string::npos) {
                  throw std::runtime_error(sentence);
                }
              }
              for (ncclComm_t comm : comms) EXPECT_CALL(ncclCommDestroy(comm));
            }));
}

// Against the contract, and yet nothing hangs.
TEST(Edges, NonBlockingOnesMayBeDestroyedBeforeTheyAreFinalised) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              ncclComm_t comms[2] = {};
              ncclConfig_t config = not_blocking();
              for (int i = 0; i < 2; ++i) {
                use_device_of(i);
                must_be_in_progress(ncclCommInitRankConfig(&comms[i], 2, id, i, &config));
              }
              for (ncclComm_t comm : comms) EXPECT_CALL(wait_while(comm, ncclInProgress));
              for (ncclComm_t comm : comms) {
                must_be_in_progress(ncclCommFinalize(comm));
                EXPECT_CALL(ncclCommDestroy(comm));
              }
            }));
}

// One thread makes, splits, uses and ends two ranks that do not block, each step in a group, and polls.
TEST(Edges, GroupsOfNonBlockingCommunicatorsArePolled) {
  EXPECT_EQ("", run_processes(1, [](int, const ncclUniqueId& id) {
              ncclComm_t comms[2] = {};
              ncclComm_t children[2] = {};
              float* data[2] = {};
              cudaStream_t streams[2] = {};
              ncclConfig_t config = not_blocking();
              const auto both = [&](const std::function<ncclResult_t(int)>& call) {
                EXPECT_CALL(ncclGroupStart());
                for (int i = 0; i < 2; ++i) {
                  use_device_of(i);
                  const ncclResult_t result = call(i);
                  if (result != ncclInProgress) EXPECT_CALL(result);
                }
                const ncclResult_t ended = ncclGroupEnd();
                if (ended != ncclInProgress) EXPECT_CALL(ended);
                for (int i = 0; i < 2; ++i) {
                  const ncclResult_t state = wait_while(comms[i], ncclInProgress);
                  EXPECT_CALL(state);
                }
                return ended;
              };
              must_be_in_progress(both([&](int i) { return ncclCommInitRankConfig(&comms[i], 2, id, i, &config); }));
              must_be_in_progress(both([&](int i) { return ncclCommSplit(comms[i], 0, i, &children[i], nullptr); }));
              for (int i = 0; i < 2; ++i) {
                const ncclResult_t state = wait_while(children[i], ncclInProgress);
                EXPECT_CALL(state);
                use_device_of(i);
                EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data[i]), 4096));
                EXPECT_CALL(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
              }
              static_cast<void>(both([&](int i) {
                return ncclAllReduce(data[i], data[i], 9, ncclFloat, ncclSum, children[i], streams[i]);
              }));
              for (int i = 0; i < 2; ++i) {
                use_device_of(i);
                EXPECT_CALL(cudaDeviceSynchronize());
              }
              must_be_in_progress(both([&](int i) { return ncclCommFinalize(comms[i]); }));
              for (int i = 0; i < 2; ++i) EXPECT_CALL(ncclCommDestroy(comms[i]));
              for (int i = 0; i < 2; ++i) EXPECT_CALL(ncclCommDestroy(children[i]));
            }));
}

}  // namespace
}  // namespace nitinol::testing
