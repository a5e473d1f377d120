// One of three ranks goes, in one of the ways there are, and the others stay.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "captured.h"
#include "cluster.h"
#include "must_work.h"
#include "nccl.h"
#include "shared_count.h"

namespace nitinol::testing {

inline constexpr int kProcesses = 3;
inline constexpr int kLeaver = 1;
inline constexpr int kCount = 1000;

inline void exits(ncclComm_t) { exit(0); }
inline void exits_at_once(ncclComm_t) { _exit(0); }
inline void dies(ncclComm_t) { raise(SIGKILL); }
inline void aborts(ncclComm_t comm) { EXPECT_CALL(ncclCommAbort(comm)); }

struct WayToGo {
  std::string name;
  void (*go)(ncclComm_t);
  std::string words;
  std::string outcome{};  ///< of its process
};
inline std::ostream& operator<<(std::ostream& out, const WayToGo& way) { return out << way.name; }

/// A rank that stays when another one has gone.
class Stayer {
 public:
  explicit Stayer(ncclComm_t comm) : comm_(comm) {
    EXPECT_CALL(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data_), 2 * kCount * sizeof(int)));
  }
  ~Stayer() {
    cudaFree(data_);
    cudaStreamDestroy(stream_);
  }
  Stayer(const Stayer&) = delete;
  Stayer& operator=(const Stayer&) = delete;

  ncclResult_t all_reduce() const { return ncclAllReduce(data_, data_, kCount, ncclInt, ncclSum, comm_, stream_); }
  void synchronize() const { EXPECT_CALL(cudaStreamSynchronize(stream_)); }
  /// What is called later, so that all that it needs is reached. In a group where a thread has several ranks.
  void call_all(int rank) const {
    EXPECT_CALL(ncclGroupStart());
    EXPECT_CALL(all_reduce());
    EXPECT_CALL(ncclBroadcast(data_, data_, kCount, ncclInt, kLeaver, comm_, stream_));
    for (int peer = 0; peer < kProcesses; ++peer) {
      if (peer == rank) continue;
      EXPECT_CALL(ncclSend(data_, kCount, ncclInt, peer, comm_, stream_));
      EXPECT_CALL(ncclRecv(data_ + kCount, kCount, ncclInt, peer, comm_, stream_));
    }
    EXPECT_CALL(ncclGroupEnd());
  }
  ncclResult_t try_to_send(int peer) const { return ncclSend(data_, kCount, ncclInt, peer, comm_, stream_); }
  void send(int value, int peer) const {
    fill(value);
    EXPECT_CALL(try_to_send(peer));
    synchronize();
  }
  void receive(int value, int peer) const {
    fill(-1);
    EXPECT_CALL(ncclRecv(data_, kCount, ncclInt, peer, comm_, stream_));
    must_have(value);
  }
  void receive_in_vain(int peer) const {
    EXPECT_CALL(ncclRecv(data_, kCount, ncclInt, peer, comm_, stream_));
    synchronize();
  }
  /// From the leaver, which has that value.
  void broadcast(int value) const {
    fill(value);
    EXPECT_CALL(ncclBroadcast(data_, data_, kCount, ncclInt, kLeaver, comm_, stream_));
    synchronize();
  }
  void take_broadcast(int value) const {
    fill(-1);
    EXPECT_CALL(ncclBroadcast(data_, data_, kCount, ncclInt, kLeaver, comm_, stream_));
    must_have(value);
  }

  /// To the root, which has the sum then.
  void reduce(int value, int root) const {
    fill(value);
    EXPECT_CALL(ncclReduce(data_, data_, kCount, ncclInt, ncclSum, root, comm_, stream_));
    synchronize();
  }
  void must_have(int value) const {
    std::vector<int> values(kCount, -1);
    EXPECT_CALL(cudaMemcpyAsync(values.data(), data_, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream_));
    synchronize();
    expect_that(state_of(comm_) == ncclSuccess, "it has failed");
    for (const int found : values)
      expect_that(found == value, std::to_string(found) + " and not " + std::to_string(value));
  }

  cudaGraphExec_t capture() const {
    return captured(stream_, [this] { EXPECT_CALL(all_reduce()); });
  }
  void launch(cudaGraphExec_t executable) const { EXPECT_CALL(cudaGraphLaunch(executable, stream_)); }

  ncclComm_t comm() const { return comm_; }
  int rank() const {
    int rank = 0;
    EXPECT_CALL(ncclCommUserRank(comm_, &rank));
    return rank;
  }

 private:
  void fill(int value) const {
    const std::vector<int> values(kCount, value);
    EXPECT_CALL(cudaMemcpyAsync(data_, values.data(), kCount * sizeof(int), cudaMemcpyHostToDevice, stream_));
    synchronize();
  }

  ncclComm_t comm_;
  cudaStream_t stream_ = nullptr;
  int* data_ = nullptr;
};

/// For longer than it takes to hear of one that has gone, and to look once more.
inline void stay_idle() { std::this_thread::sleep_for(std::chrono::seconds(1)); }

class Gone : public ::testing::TestWithParam<WayToGo> {
 public:
  /// All ranks call something, unless the communicator is to be `fresh`; then one goes, and the others live on.
  void run(const std::function<void(Stayer&)>& live_on, bool fresh = false) const {
    run({[](Stayer&) {}, live_on}, fresh);
  }
  struct Parts {
    std::function<void(Stayer&)> of_leaver;  ///< before it goes, and before the others
    std::function<void(Stayer&)> of_others;
  };
  void run(const Parts& parts, bool fresh = false) const {
    const SharedCount through;
    EXPECT_EQ(GetParam().outcome, run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
                ncclComm_t comm = nullptr;
                use_device_of(process);
                EXPECT_CALL(ncclCommInitRank(&comm, kProcesses, id, process));
                Stayer stayer(comm);
                if (!fresh) stayer.call_all(process);
                stayer.synchronize();
                if (process == kLeaver) parts.of_leaver(stayer);
                through.meet(kProcesses);
                if (process == kLeaver) return GetParam().go(comm);
                parts.of_others(stayer);
              }));
  }
  void end_the_next_operation() const {
    run([this](Stayer& stayer) {
      stay_idle();
      EXPECT_CALL(stayer.all_reduce());
      stayer.synchronize();
      must_fail(stayer);
      expect_that(stayer.all_reduce() == ncclRemoteError, "a later call");
      EXPECT_CALL(ncclCommAbort(stayer.comm()));
    });
  }
  void end_a_later_graph() const {
    run([this](Stayer& stayer) {
      const cudaGraphExec_t graph = stayer.capture();
      stay_idle();
      expect_that(state_of(stayer.comm()) == ncclSuccess, "it has failed");
      stayer.launch(graph);
      stayer.synchronize();
      must_fail(stayer);
      EXPECT_CALL(cudaGraphExecDestroy(graph));
      EXPECT_CALL(ncclCommAbort(stayer.comm()));
    });
  }
  void must_fail(const Stayer& stayer) const {
    expect_that(wait_for_failure(stayer.comm()) == ncclRemoteError, "the state");
    must_tell_of_the_leaver(ncclGetLastError(stayer.comm()));
  }
  void must_tell_of_the_leaver(const std::string& sentence) const {
    expect_that(sentence.find("rank 1 (host ") != std::string::npos, sentence);
    expect_that(sentence.find(GetParam().words) != std::string::npos, sentence);
  }
};

/// For all tests of a suite that is one of Gone's.
inline auto every_way_to_go() {
  return ::testing::Values(WayToGo{"exit", exits, "exited without ncclCommDestroy or ncclCommAbort"},
                           WayToGo{"abort", aborts, "aborted its communicator"},
                           WayToGo{"exit_at_once", exits_at_once, "exited or closed its connection"},
                           WayToGo{"kill", dies, "exited or closed its connection", "process 1 ended by signal 9\n"});
}
inline std::string name_of_way(const ::testing::TestParamInfo<WayToGo>& tested) { return tested.param.name; }

}  // namespace nitinol::testing
