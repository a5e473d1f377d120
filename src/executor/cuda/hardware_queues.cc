#include "executor/cuda/hardware_queues.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "device/per_device.h"

namespace nitinol::cuda {

namespace {

constexpr const char* kVariable = "CUDA_DEVICE_MAX_CONNECTIONS";
constexpr int kMostQueues = 32;
constexpr int kUsualQueues = 8;

/// Whether the driver has read its environment.
bool driver_has_started() {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  const auto count_devices = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  int count = 0;
  const bool started = count_devices != nullptr && count_devices(&count) == 0;
  ::dlclose(driver);
  return started;
}

std::atomic<bool> asked{false};  ///< and nobody has been told

/// Before the program has begun: it would take what is set now for its user's wish, and set nothing else itself.
bool is_preloaded() {
  const char* const preloaded = std::getenv("LD_PRELOAD");
  ::Dl_info self{};
  if (preloaded == nullptr || ::dladdr(&asked, &self) == 0 || self.dli_fname == nullptr) return false;
  const char* const slash = std::strrchr(self.dli_fname, '/');  // which the variable need not have
  return std::strstr(preloaded, slash == nullptr ? self.dli_fname : slash + 1) != nullptr;
}

/// Asks for all queues there are unless the user has decided, as soon as the library is loaded: the driver looks once.
int ask_for_queues() {
  if (const char* text = std::getenv(kVariable)) return std::clamp(std::atoi(text), 1, kMostQueues);
  if (driver_has_started() || is_preloaded()) return kUsualQueues;
  ::setenv(kVariable, "32", 0);
  asked = true;
  return kMostQueues;
}

/// Programs may look at the variable, and children inherit it.
void tell_of_asking() {
  if (asked.exchange(false)) log_info(Subsystem::kEnv, "{} was not set, and is {} now", kVariable, kMostQueues);
}

const int queues = ask_for_queues();

int64_t nanoseconds_now() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

}  // namespace

void check_queues(const ExecutorSetup& setup) {
  tell_of_asking();
  const Peer& me = setup.peers[static_cast<size_t>(setup.rank)];
  const auto sharing = std::count_if(setup.peers.begin(), setup.peers.end(), [&](const Peer& peer) {
    return peer.process == me.process && peer.device_id == me.device_id;
  });
  if (sharing <= queues) return;
  fail(ncclInvalidUsage,
       "rank {}: {} ranks of process {} share device {}, whose work goes through {} queues: their kernels would "
       "wait for each other for ever. {}={} in the environment before the process starts allows {} ranks",
       setup.rank, sharing, me.pid, me.device, queues, kVariable, kMostQueues, kMostQueues);
}

struct LaunchTurns::Gpu {
  std::atomic<int> communicators{0};
  std::atomic<int64_t> taken{0};  ///< since when; 0: nobody launches
};

LaunchTurns::LaunchTurns(int device, std::chrono::nanoseconds longest)
    : gpu_(per_device<Gpu>(device)), longest_(longest.count()) {
  gpu_.communicators.fetch_add(1, std::memory_order_relaxed);
}

LaunchTurns::~LaunchTurns() { gpu_.communicators.fetch_sub(1, std::memory_order_relaxed); }

LaunchTurns::Turn::Turn(LaunchTurns& turns) {
  Gpu& gpu = turns.gpu_;
  if (gpu.communicators.load(std::memory_order_relaxed) < 2) return;
  int64_t since = 0;
  while (!gpu.taken.compare_exchange_weak(since, nanoseconds_now(), std::memory_order_acquire)) {
    if (since != 0 && nanoseconds_now() - since > turns.longest_) return;
    since = 0;
    std::this_thread::yield();
  }
  taken_ = &gpu.taken;
}

LaunchTurns::Turn::~Turn() {
  if (taken_ != nullptr) taken_->store(0, std::memory_order_release);
}

}  // namespace nitinol::cuda
