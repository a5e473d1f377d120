// The executor of GPUs: turns a launch's operations into kernels over memory that all ranks' GPUs reach.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "algorithm/parts.h"
#include "algorithm/table.h"
#include "device/check.h"
#include "device/guards.h"
#include "executor/cuda/call_watch.h"
#include "executor/cuda/domain.h"
#include "executor/cuda/hardware_queues.h"
#include "executor/cuda/kernel_choice.h"
#include "executor/cuda/kernel_launcher.h"
#include "executor/cuda/kernel_shapes.h"
#include "executor/cuda/launch.h"
#include "executor/cuda/launch_names.h"
#include "executor/cuda/loaded_kernels.h"
#include "executor/cuda/message_launcher.h"
#include "executor/cuda/topology.h"
#include "executor/cuda/ways.h"
#include "executor/executor.h"

namespace nitinol::cuda {

namespace {

int most_ranks_on_a_gpu(const std::vector<Peer>& peers) {
  std::map<std::array<char, 16>, int> count;
  int most = 1;
  for (const Peer& peer : peers) most = std::max(most, ++count[peer.device_id]);
  return most;
}

bool all_have(const std::vector<Peer>& peers, Reach bit) {
  return std::all_of(peers.begin(), peers.end(), [bit](const Peer& peer) { return (peer.reach & bit) != 0; });
}

Machine machine_of(const ExecutorSetup& setup) {
  Machine machine;
  machine.ranks = static_cast<int>(setup.peers.size());
  machine.ranks_per_gpu = most_ranks_on_a_gpu(setup.peers);
  machine.multiprocessors = setup.peers[0].multiprocessors;
  machine.bulk_bytes = setup.peers[0].bulk_bytes;
  for (const Peer& peer : setup.peers) {
    machine.multiprocessors = std::min(machine.multiprocessors, peer.multiprocessors);
    machine.bulk_bytes = std::min<size_t>(machine.bulk_bytes, peer.bulk_bytes);
  }
  machine.lines_stay_whole = reaches_peers(setup) && all_have(setup.peers, kKeepsLinesWhole);
  machine.has_clusters = std::all_of(setup.peers.begin(), setup.peers.end(), [&](const Peer& peer) {
    return asked_clusters(setup, peer, machine.ranks_per_gpu > 1) < 0;
  });
  machine.in_host_memory = !reaches_peers(setup);
  machine.max_channels = setup.max_channels;
  machine.buffer_bytes = setup.buffer_bytes;
  return machine;
}

/// The plan's protocol, but for one rank alone, which has kernels for one.
Protocol protocol_of(const CollectiveWork& work, int ranks) {
  return ranks == 1 ? Protocol::kSimple : work.plan.protocol;
}

}  // namespace

class CudaExecutor : public Executor {
 public:
  explicit CudaExecutor(ExecutorSetup setup)
      : device_(setup.peers[static_cast<size_t>(setup.rank)].device),
        rank_(setup.rank),
        ranks_(static_cast<int>(setup.peers.size())),
        machine_(machine_of(setup)),
        linked_(!are_perhaps_behind_pcie(setup.peers)),
        sizes_(sizes_for(machine_)),
        kernels_(device_, ranks_, sizes_),
        launcher_(setup, sizes_, kernels_) {
    if (ranks_ > kMaxRanks) {
      fail(ncclInvalidUsage, "{} ranks in one domain of GPUs that reach each other: at most {} are possible", ranks_,
           kMaxRanks);
    }
    check_queues(setup);
    const DeviceGuard on(device_);
    const RelaxedCaptureGuard relaxed;
    const std::chrono::milliseconds timeout = setup.timeout;
    domain_ = std::make_shared<Domain>(std::move(setup), sizes_.layouts);
    watch_ = std::make_unique<CallWatch>(domain_);
    watch_->set_timeout(timeout);
    messages_ = std::make_unique<MessageLauncher>(rank_, sizes_, *domain_, *watch_, launcher_);
    if (ranks_ > 1) sizes_.ranks_share_gpus ? kernels_.load_all() : kernels_.load_usual();
  }

  ~CudaExecutor() override {
    stop_reports();
    domain_->close();
  }

  Limits limits() const override { return sizes_.limits; }

  TopologyModel topology(Protocol protocol) const override { return topology_of(machine_, linked_, protocol); }

  std::string try_peer_access() override {
    const DeviceGuard on(device_);
    const RelaxedCaptureGuard relaxed;
    try {
      domain_->reach_and_probe(Queue::kLL);
    } catch (const NotReached& found) {
      return found.what();
    }
    return "";
  }

  bool meet() override { return watch_->meet(); }

  void connect() override {
    const DeviceGuard on(device_);
    const RelaxedCaptureGuard relaxed;
    for (const Queue queue : queues_of(sizes_)) reach_for_use(*domain_, queue, sizes_.ranks_share_gpus);
  }

  bool is_ready_for(const Launch& launch) override {
    const auto collective_is = [this](const CollectiveWork& work) {
      return has_no_kernel(work) || (domain_->reached(queue_for(work)) && kernels_.has(kernel_for(work)));
    };
    return std::all_of(launch.collectives.begin(), launch.collectives.end(), collective_is) &&
           messages_->is_ready_for(launch.messages);
  }

  void prepare(const Launch& launch, cudaStream_t stream) override {
    const DeviceGuard on(device_);
    watch_->prepare();
    if (is_ready_for(launch)) return;
    const RelaxedCaptureGuard relaxed;
    const auto busy = watch_->announce(launch, stream);
    for (const CollectiveWork& work : launch.collectives) {
      if (has_no_kernel(work)) continue;
      reach_for_use(*domain_, queue_for(work), sizes_.ranks_share_gpus);
      kernels_.load(kernel_for(work), work.plan.joined ? joined_shared_bytes(work.what, ranks_) : 0);
    }
    messages_->prepare(launch.messages);
  }

  void note(const Launch& launch, cudaStream_t stream, std::span<const unsigned long long> ids,
            bool captured) override {
    watch_->prepare();
    watch_->note(launch, stream, ids, captured);
    captured_ = captured;
  }

  void launch(const Launch& launch, cudaStream_t stream) override {
    const DeviceGuard on(device_);
    std::optional<KernelLauncher::Turn> turn;
    if (has_kernels(launch)) turn.emplace(launcher_, stream, captured_);
    if (!captured_) watch_->begin_launch(stream);
    launch_collectives(launch.collectives, stream);
    if (!launch.messages.empty()) messages_->launch(launch.messages, stream);
    if (turn) turn->done();
    if (!captured_) watch_->end_launch(stream);
  }

  void abort() override { watch_->abort(); }
  void announce(const CollectiveWork* next) override { watch_->note_waiting_to_call(next); }
  void wait_on_host(HostCall call, std::span<const int> ranks) override { watch_->wait_on_host(call, ranks); }
  DoingsOfPeer doings_of(int rank) const override { return watch_->doings_of(rank); }
  std::optional<std::string> difference_in_the_end() const override { return watch_->difference_in_the_end(); }

  bool follows_empty_collectives() const override { return true; }
  void set_timeout(std::chrono::milliseconds timeout) override { watch_->set_timeout(timeout); }
  std::optional<Progress> progress() const override { return watch_->progress(); }
  std::vector<int> awaited() override { return watch_->awaited(); }
  Passed passed() const override { return watch_->passed(); }
  void leave() override { watch_->leave(); }
  bool is_needed() const override { return watch_->is_needed(); }
  void stop_reports() override { watch_->stop(); }

  std::shared_ptr<void> memory_of_kernels() const override { return domain_; }

 private:
  size_t elements_per_channel(const CollectiveWork& work, const QueueLayout& layout) const {
    const size_t grain = sizes_.limits.grain(work.type);
    const auto channels = static_cast<size_t>(channels_of(work, layout));
    const size_t grains = (work.count + grain - 1) / grain;
    return (grains + channels - 1) / channels * grain;
  }
  /// By which queue set it goes if it is brief (brief_connections.h). All ranks say the same.
  std::optional<Queue> brief_queue_for(const CollectiveWork& work) const {
    if (steps_if_brief(work) == 0) return std::nullopt;
    const size_t blocks = work.plan.algorithm == Algorithm::kTwoShot ? static_cast<size_t>(ranks_) : 1;
    const size_t bytes = work.count * bytes_of(work.type);
    for (const Queue queue : kBriefQueues) {
      const size_t most = blocks * sizes_.brief_bytes[static_cast<size_t>(queue)];
      if (most == 0 || protocol_of_brief(queue) != work.plan.protocol) continue;
      const int channels = channels_of(work, sizes_.layouts[static_cast<size_t>(queue)]);
      if (bytes <= most * static_cast<size_t>(channels)) return queue;
    }
    return std::nullopt;
  }
  const void* kernel_for(const CollectiveWork& work) const { return kernel_of(work, queue_for(work), ranks_); }

  bool goes_along_line(const CollectiveWork& work) const {
    return algorithm::goes_along_line(work.what, work.plan.algorithm, ranks_, work.root, work.any_order());
  }
  Queue queue_for(const CollectiveWork& work) const {
    if (const std::optional<Queue> brief = brief_queue_for(work)) return *brief;
    if (work.plan.joined) return Queue::kJoined;
    if (work.plan.small) return goes_along_line(work) ? Queue::kLine : Queue::kMesh;
    if (work.plan.apart && reduces(work.what)) return Queue::kSums;
    const Protocol protocol = protocol_of(work, ranks_);
    return protocol == Protocol::kLL ? queue_of_ll(sizes_, work, ranks_) : queue_of(protocol);
  }

  /// Collectives of nothing are only compared; with one rank they are copies, unless there is a scalar.
  bool has_no_kernel(const CollectiveWork& work) const {
    return work.count == 0 || (ranks_ == 1 && work.reduction.scalar == Reduction::Scalar::kNone);
  }

  bool has_kernels(const Launch& launch) const {
    const auto has_none = [this](const CollectiveWork& work) { return has_no_kernel(work); };
    return ranks_ > 1 || !std::all_of(launch.collectives.begin(), launch.collectives.end(), has_none);
  }

  void launch_alone(CollectiveWork work, cudaStream_t stream) {
    constexpr size_t kBytesPerChannel = 64 << 10;
    const size_t bytes = work.count * bytes_of(work.type);
    if (!has_no_kernel(work)) {
      const auto most = static_cast<size_t>(sizes_.limits.simple_channels);
      work.plan.channels = static_cast<int>(std::min(bytes / kBytesPerChannel + 1, most));
      launch_run(kernel_for(work), queue_for(work), &work, 1, stream);
    } else if (bytes > 0 && work.input != work.output) {
      cuda_check(cudaMemcpyAsync(work.output, work.input, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    }
  }

  void launch_collectives(const std::vector<CollectiveWork>& all, cudaStream_t stream) {
    if (ranks_ == 1) {
      for (const CollectiveWork& work : all) launch_alone(work, stream);
      return;
    }
    size_t first = 0;
    while (first < all.size()) {
      if (all[first].count == 0) {  // was only to be compared
        ++first;
        continue;
      }
      const Queue queue = queue_for(all[first]);
      const void* kernel = kernel_of(all[first], queue, ranks_);
      const size_t most = most_works(all[first], queue);
      const auto is_alike = [&](const CollectiveWork& other) {
        return other.count > 0 && queue_for(other) == queue && kernel_of(other, queue, ranks_) == kernel;
      };
      size_t end = first + 1;
      while (end < all.size() && end - first < most && may_follow(all[first]) && is_alike(all[end])) {
        ++end;
      }
      launch_run(kernel, queue, all.data() + first, end - first, stream);
      first = end;
    }
  }

  size_t most_works(const CollectiveWork& work, Queue queue) const {
    if (!is_brief(queue)) return kMaxWorks;
    return domain_->layout(queue).slots / 2 / steps_if_brief(work);  // BriefConnections says why
  }
  /// Whether another operation may follow in the same launch. With copies in parts it may not: what a part forwards of
  /// a broadcast goes by connections that another part uses in an all-gather. Reductions use them alike.
  bool may_follow(const CollectiveWork& first) const { return !first.plan.apart || reduces(first.what); }

  /// Operations that share a kernel and a queue set.
  void launch_run(const void* kernel, Queue queue, const CollectiveWork* works, size_t count, cudaStream_t stream) {
    CollectiveParameters parameters;
    parameters.queue = domain_->view(queue);
    int channels = 1;
    size_t most_bytes = 0;  // of one transfer
    size_t bytes = 0;
    for (size_t i = 0; i < count; ++i) {
      if (works[i].count == 0) continue;
      Work& work = parameters.work[parameters.works++];
      work = translate(works[i], queue);
      channels = std::max(channels, channels_of(works[i], parameters.queue.layout));
      size_t elements = std::min<size_t>(work.chunk, work.per_channel);
      const auto n = static_cast<size_t>(ranks_);
      if (work.algorithm == Algorithm::kTwoShot) elements = std::min<size_t>(elements, (work.per_channel + n - 1) / n);
      const bool has_blocks = works[i].what != Collective::kAllReduce || work.algorithm == Algorithm::kTwoShot;
      if (is_brief(queue) && has_blocks) elements *= n - 1;  // warps take all at once
      most_bytes = std::max(most_bytes, elements * bytes_of(works[i].type));
      bytes += work.count * bytes_of(works[i].type);
    }
    if (parameters.works == 0) return;
    if (watch_->wants_names(captured_)) parameters.name = watch_->name(collectives_of({works, count}), captured_);
    parameters.channels = channels;
    const Plan& plan = works[0].plan;
    LaunchShape shape{.ctas = channels, .threads = threads_for(queue, most_bytes, kMaxWorkers)};
    if (plan.joined) {
      parameters.movers = movers_of(works[0].what, ranks_);
      parameters.piece = piece_of(works[0].what);
      shape.threads = kSmallThreads + parameters.movers * 32;
      shape.shared_bytes = joined_shared_bytes(works[0].what, ranks_);
    } else if (plan.apart) {
      shape.ctas = channels * algorithm::parts_of(algorithm::division_of(reduces(works[0].what)), ranks_);
      parameters.by_channel = launcher_.has_part_of_gpu();
      shape.threads = kSmallThreads;
    } else if (plan.small) {
      const int per_cta = sizes_.limits.small(goes_along_line(works[0])).per_cta;
      shape.rows = channels % per_cta == 0 ? per_cta : 1;
      shape.ctas = channels / shape.rows;
      shape.threads = threads_for(queue, most_bytes, kFewWorkers);
    }
    shape.ctas_of_cluster = launcher_.ctas_of_cluster(shape.ctas, bytes);
    launcher_.run(kernel, shape, parameters, stream);
  }

  int channels_of(const CollectiveWork& work, const QueueLayout& layout) const {
    const Limits& limits = sizes_.limits;
    const int most = work.plan.joined  ? limits.joined.channels
                     : work.plan.apart ? limits.apart(work.what).channels
                     : work.plan.small ? limits.small(goes_along_line(work)).channels
                                       : layout.channels;
    return std::clamp(work.plan.channels, 1, most);
  }

  static int threads_for(Queue queue, size_t bytes, size_t most_workers) {
    const WireShape shape = shape_of(queue);
    const size_t per_warp = shape.bytes * 32 / shape.threads;
    const size_t clerk = is_counted(queue) ? 1 : 0;
    const size_t workers = std::clamp<size_t>((bytes + per_warp - 1) / per_warp, 1, most_workers);
    return static_cast<int>(workers + clerk) * 32;
  }

  Work translate(const CollectiveWork& from, Queue queue) const {
    const QueueLayout& layout = sizes_.layouts[static_cast<size_t>(queue)];
    const size_t size = bytes_of(from.type);
    const size_t slot = payload_of(queue, layout.slot_bytes) / 128 * 128 / size;
    Work work;
    work.input = static_cast<const char*>(from.input);
    work.output = static_cast<char*>(from.output);
    work.count = from.count;
    work.per_channel = elements_per_channel(from, layout);
    work.chunk = static_cast<uint32_t>(from.plan.chunk == 0 || from.plan.chunk > slot ? slot : from.plan.chunk);
    if (from.plan.algorithm == Algorithm::kTwoShot && queue == Queue::kLL128) {
      const size_t of_one = sizes_.two_shot_chunk_of_one_round;
      const bool is_one = work.per_channel * size <= static_cast<size_t>(ranks_) * of_one;
      work.chunk =
          std::min(work.chunk, static_cast<uint32_t>((is_one ? of_one : sizes_.two_shot_chunk) / size / 16 * 16));
    }
    work.root = static_cast<int16_t>(from.root);
    work.what = from.what;
    work.algorithm = from.plan.algorithm;
    work.mark = Signature::of(from, 0).tag() << 8;
    work.combine = from.reduction.combine;
    work.average = from.reduction.average;
    work.is_unsigned = is_unsigned(from.type);
    work.any_order = from.any_order();
    work.scalar = from.reduction.scalar;
    work.immediate = from.reduction.scalar == Reduction::Scalar::kDevice
                         ? reinterpret_cast<uint64_t>(from.reduction.pointer)
                         : from.reduction.immediate;
    return work;
  }

  const int device_;
  const int rank_;
  const int ranks_;
  const Machine machine_;
  const bool linked_;
  const Sizes sizes_;
  bool captured_ = false;  ///< whether what is launched next is
  std::shared_ptr<Domain> domain_;
  LoadedKernels kernels_;
  KernelLauncher launcher_;
  std::unique_ptr<CallWatch> watch_;
  std::unique_ptr<MessageLauncher> messages_;
};

}  // namespace nitinol::cuda

namespace nitinol {

std::unique_ptr<Executor> make_executor(ExecutorSetup setup) {
  return std::make_unique<cuda::CudaExecutor>(std::move(setup));
}

}  // namespace nitinol
