// SIGKILL at random moments of init, operation and destroy: every survivor gets an error that names the dead rank, in
// time, leaks nothing, and can go on with a new communicator.
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "cluster.h"
#include "nccl.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

constexpr int kProcesses = 4;
constexpr int kCount = 3000;

/// What of this process could leak.
struct Holdings {
  int descriptors = 0;
  std::string names;
  int mappings = 0;  // of memory shared by descriptors
  bool within(const Holdings& other) const { return descriptors <= other.descriptors && mappings <= other.mappings; }
};

/// What a socket is connected to, as far as that tells whose it is.
std::string describe_socket(int fd) {
  sockaddr_in own{};
  sockaddr_in peer{};
  socklen_t own_size = sizeof(own);
  socklen_t peer_size = sizeof(peer);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0) return "";
  const bool connected = getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0;
  if (own.sin_family != AF_INET) return "(family " + std::to_string(own.sin_family) + ")";
  return "(port " + std::to_string(ntohs(own.sin_port)) +
         (connected ? " to " + std::to_string(ntohs(peer.sin_port)) : " alone") + ")";
}

Holdings holdings() {
  Holdings held;
  DIR* const directory = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(directory)) {
    ++held.descriptors;
    char target[256] = {};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    if (readlink(path.c_str(), target, sizeof(target) - 1) > 0) {
      held.names += std::string(" ") + target + describe_socket(std::atoi(entry->d_name));
    }
  }
  closedir(directory);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) held.mappings += line.find("memfd:nitinol (") != std::string::npos;
  return held;
}

/// Connections are closed by a service thread up to some seconds after their communicator has gone: the least that is
/// seen in a while.
Holdings settled_holdings(std::chrono::milliseconds patience, const Holdings& enough) {
  Holdings least = holdings();
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!least.within(enough) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Holdings now = holdings();
    if (now.descriptors < least.descriptors) {
      least.descriptors = now.descriptors;
      least.names = now.names;
    }
    least.mappings = std::min(least.mappings, now.mappings);
  }
  return least;
}

/// Makes a communicator of one rank, uses it and destroys it.
void use_a_communicator_alone() {
  ncclComm_t comm = nullptr;
  ncclUniqueId id;
  EXPECT_CALL(ncclGetUniqueId(&id));
  EXPECT_CALL(ncclCommInitRank(&comm, 1, id, 0));
  int* data = nullptr;
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), sizeof(int)));
  EXPECT_CALL(ncclAllReduce(data, data, 1, ncclInt, ncclSum, comm, nullptr));
  EXPECT_CALL(cudaDeviceSynchronize());
  EXPECT_CALL(cudaFree(data));
  EXPECT_CALL(ncclCommDestroy(comm));
}

void die_after(std::chrono::microseconds delay) {
  std::thread([delay] {
    std::this_thread::sleep_for(delay);
    raise(SIGKILL);
  }).detach();
}

/// Runs all-reduces until the communicator has failed (or `most` are done); returns its state.
ncclResult_t reduce_until_failure(ncclComm_t comm, int most) {
  int* data = nullptr;
  EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), sizeof(int) * kCount));
  ncclResult_t state = ncclSuccess;
  for (int i = 0; i < most && state == ncclSuccess; ++i) {
    if (ncclAllReduce(data, data, kCount, ncclInt, ncclSum, comm, nullptr) == ncclSuccess) {
      EXPECT_CALL(cudaDeviceSynchronize());
    }
    EXPECT_CALL(ncclCommGetAsyncError(comm, &state));
  }
  EXPECT_CALL(cudaFree(data));
  return state;
}

void must_name(int rank, const char* moment) {
  const std::string sentence = ncclGetLastError(nullptr);
  const std::string number = std::to_string(rank);
  const std::string name = "rank " + number;
  if (sentence.find(name) != std::string::npos || sentence.find("ranks " + number) != std::string::npos) return;
  throw std::runtime_error(std::string(moment) + ": '" + sentence + "' does not name " + name);
}

enum class Moment { kInit, kOperation, kDestroy };

struct Death {
  Moment moment = Moment::kInit;
  int victim = 0;
  std::chrono::microseconds delay{};  ///< after the moment
};

/// What one process does; the victim dies on the way, if not while they join then once all have.
void live_through(const Death& death, int process, const ncclUniqueId& id, const SharedCount& joined) {
  const auto& [moment, victim, delay] = death;
  const bool dies = process == victim;
  ncclComm_t comm = nullptr;
  if (dies && moment == Moment::kInit) die_after(delay);
  const ncclResult_t result = ncclCommInitRank(&comm, kProcesses, id, process);
  if (moment != Moment::kInit) {
    joined.meet(kProcesses);
  }
  if (dies && moment == Moment::kOperation) die_after(delay);
  if (result != ncclSuccess) {
    if (moment != Moment::kInit || comm != nullptr) throw std::runtime_error("could not join");
    // Process 0 hosts the rendezvous: its loss is told by its address.
    if (victim != 0) must_name(victim, "init");
    return;
  }
  const ncclResult_t state = reduce_until_failure(comm, moment == Moment::kDestroy ? 20 : 1'000'000);
  if (state != ncclSuccess && state != ncclRemoteError) throw std::runtime_error("state " + std::to_string(state));
  if (moment != Moment::kDestroy) {
    if (state == ncclSuccess) throw std::runtime_error("the loss was not noticed");
    must_name(victim, "operation");
  }
  if (dies) die_after(delay);
  EXPECT_CALL(state == ncclSuccess ? ncclCommDestroy(comm) : ncclCommAbort(comm));
  while (dies) pause();
}

/// Counts a survivor when it is through, however it went. Process 0 stays until all are: it hosts the rendezvous, so
/// that late ranks hear of the failure.
class Survivor {
 public:
  Survivor(int process, SharedCount& done) : process_(process), done_(done) {}
  ~Survivor() {
    done_.add();
    if (process_ == 0) done_.wait_for(kProcesses - 1);
  }
  Survivor(const Survivor&) = delete;
  Survivor& operator=(const Survivor&) = delete;

 private:
  int process_;
  SharedCount& done_;
};

std::string run_with_a_death(const Death& death) {
  const SharedCount joined;
  SharedCount survivors_done;
  return run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
    use_a_communicator_alone();
    const Holdings before = settled_holdings(std::chrono::milliseconds(50), {});
    {
      const Survivor survivor(process, survivors_done);
      live_through(death, process, id, joined);
    }
    use_a_communicator_alone();
    const Holdings after = settled_holdings(std::chrono::seconds(20), before);
    if (after.within(before)) return;
    throw std::runtime_error("descriptors " + std::to_string(before.descriptors) + " -> " +
                             std::to_string(after.descriptors) + ", arenas mapped " + std::to_string(before.mappings) +
                             " -> " + std::to_string(after.mappings) + "; before:" + before.names +
                             "; after:" + after.names);
  });
}

void run_deaths(Moment moment, int rounds, int most_microseconds) {
  setenv("NITINOL_INIT_TIMEOUT", moment == Moment::kInit ? "3" : "15", 1);
  setenv("NCCL_SOCKET_RETRY_CNT", "3", 1);
  setenv("NCCL_SOCKET_RETRY_SLEEP_MSEC", "10", 1);
  std::mt19937 random(7);
  for (int round = 0; round < rounds; ++round) {
    const int victim = round % kProcesses;
    const std::chrono::microseconds delay(std::uniform_int_distribution(0, most_microseconds)(random));
    const auto begin = std::chrono::steady_clock::now();
    const std::string text = run_with_a_death({moment, victim, delay});
    EXPECT_EQ(text, "process " + std::to_string(victim) + " ended by signal 9\n")
        << "round " << round << ", death after " << delay.count() << " us";
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60)) << "round " << round;
  }
}

TEST(Kill, DuringInit) { run_deaths(Moment::kInit, 34, 4000); }
TEST(Kill, DuringOperations) { run_deaths(Moment::kOperation, 34, 20'000); }
TEST(Kill, DuringDestroy) { run_deaths(Moment::kDestroy, 34, 400); }

}  // namespace
}  // namespace nitinol::testing
