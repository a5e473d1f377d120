// Ranks of one communicator as executors of this process, for tests and timings without a communicator: rank r runs on
// GPU r % gpus.
#pragma once

#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "device/check.h"
#include "device/guards.h"
#include "executor/executor.h"
#include "green_contexts.h"

namespace nitinol::gpu_testing {

/// As ExecutorSetup has them.
struct Settings {
  bool peer_access = true;
  int cluster_ctas = -1;
  int max_channels = 0;
  unsigned multiprocessors = 0;  ///< of a rank's stream, in green contexts; 0: all
  int apart = 1;                 ///< every so many'th rank has such a stream
};

class Ranks {
 public:
  Ranks(int ranks, int gpus, const Settings& settings = {}) {
    static uint64_t serial = 0;
    ++serial;
    std::vector<Peer> peers;
    for (int rank = 0; rank < ranks; ++rank) {
      Peer peer;
      peer.rank = rank;
      peer.device = rank % gpus;
      peer.process = 1;
      cudaDeviceProp properties{};
      cuda_check(cudaGetDeviceProperties(&properties, peer.device), "cudaGetDeviceProperties");
      peer.compute_capability = 10 * properties.major + properties.minor;
      describe_gpu(peer, properties);
      std::memcpy(peer.device_id.data(), &properties.uuid, sizeof(properties.uuid));
      peers.push_back(peer);
    }
    for (int device = 0; device < gpus && settings.multiprocessors > 0; ++device) {
      const auto sharing = static_cast<unsigned>((ranks + gpus - 1) / gpus);
      contexts_.push_back(std::make_unique<GreenContexts>(device, sharing, settings.multiprocessors));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      ExecutorSetup setup;
      setup.rank = rank;
      setup.peers = peers;
      setup.identity = {serial, 42};
      setup.peer_access = settings.peer_access;
      setup.cluster_ctas = settings.cluster_ctas;
      setup.max_channels = settings.max_channels;
      if (const char* text = std::getenv("NITINOL_BENCH_CTAS")) setup.max_channels = std::atoi(text);
      if (const char* text = std::getenv("NITINOL_LAUNCH_AHEAD")) setup.launch_ahead = std::atoi(text) != 0;
      executors_.push_back(make_executor(std::move(setup)));
      devices_.push_back(rank % gpus);
      streams_.push_back(make_stream(rank, gpus, settings));
    }
    for (const auto& executor : executors_) static_cast<void>(executor->meet());
  }
  ~Ranks() {
    executors_.clear();
    for (const cudaStream_t stream : streams_) static_cast<void>(cudaStreamDestroy(stream));
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int size() const { return static_cast<int>(executors_.size()); }
  Executor& executor(int rank) { return *executors_[static_cast<size_t>(rank)]; }
  int device(int rank) const { return devices_[static_cast<size_t>(rank)]; }
  cudaStream_t stream(int rank) const { return streams_[static_cast<size_t>(rank)]; }
  Limits limits() { return executors_[0]->limits(); }

  void prepare(const std::vector<Launch>& launches) {
    for (int rank = 0; rank < size(); ++rank) executor(rank).prepare(launches[static_cast<size_t>(rank)]);
  }
  void launch(const std::vector<Launch>& launches) {
    for (int rank = 0; rank < size(); ++rank) executor(rank).launch(launches[static_cast<size_t>(rank)], stream(rank));
  }
  void synchronize() {
    for (int rank = 0; rank < size(); ++rank) cuda_check(cudaStreamSynchronize(stream(rank)), "cudaStreamSynchronize");
  }

 private:
  cudaStream_t make_stream(int rank, int gpus, const Settings& settings) const {
    if (!contexts_.empty() && rank % settings.apart == 0) {
      return contexts_[static_cast<size_t>(rank % gpus)]->make_stream(static_cast<size_t>(rank / gpus));
    }
    const DeviceGuard on(rank % gpus);
    cudaStream_t stream = nullptr;
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return stream;
  }

  std::vector<std::unique_ptr<GreenContexts>> contexts_;  // by device
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<int> devices_;
  std::vector<cudaStream_t> streams_;
};

/// Device memory of one rank.
class Buffer {
 public:
  Buffer(int device, size_t bytes) : bytes_(bytes) {
    const DeviceGuard on(device);
    cuda_check(cudaMalloc(&address_, bytes), "cudaMalloc");
  }
  ~Buffer() {
    if (address_ != nullptr) static_cast<void>(cudaFree(address_));
  }
  Buffer(Buffer&& other) noexcept : address_(std::exchange(other.address_, nullptr)), bytes_(other.bytes_) {}
  Buffer& operator=(Buffer&&) = delete;
  char* get() const { return static_cast<char*>(address_); }
  size_t bytes() const { return bytes_; }

 private:
  void* address_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace nitinol::gpu_testing
