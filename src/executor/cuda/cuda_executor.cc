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
#include "executor/cuda/beside.h"
#include "executor/cuda/call_watch.h"
#include "executor/cuda/clusters.h"
#include "executor/cuda/domain.h"
#include "executor/cuda/green_context.h"
#include "executor/cuda/hardware_queues.h"
#include "executor/cuda/kernel_choice.h"
#include "executor/cuda/kernel_shapes.h"
#include "executor/cuda/launch.h"
#include "executor/cuda/launch_names.h"
#include "executor/cuda/loaded_kernels.h"
#include "executor/cuda/message_plan.h"
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

/// For the launches of one of the ranks, as ctas_of_cluster() takes it. Ranks that share a GPU would have to wait for
/// room in one place for all of a cluster, while they keep it from each other.
int asked_clusters(const ExecutorSetup& setup, const Peer& rank, bool ranks_share_gpus) {
  return rank.compute_capability < kHasClusters || ranks_share_gpus ? 0 : setup.cluster_ctas;
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

/// None for ranks that share a GPU, which are launched one after the other and wait for each other, and for one that
/// waits for nobody.
LaunchOrder::Options launch_order_of(const ExecutorSetup& setup, const Sizes& sizes) {
  const Peer& me = setup.peers[static_cast<size_t>(setup.rank)];
  const bool keeps_order = setup.peers.size() > 1 && !sizes.ranks_share_gpus;
  return {.device = me.device,
          .few = kCtasOfNccl,
          .room = me.multiprocessors,
          .ordering = keeps_order ? setup.launch_ordering : LaunchOrdering::kNone,
          .races_fail = setup.launch_races_fail};
}

bool can_launch_ahead(const ExecutorSetup& setup) {
  const Peer& me = setup.peers[static_cast<size_t>(setup.rank)];
  return setup.launch_ahead && me.compute_capability >= kCanWaitForEarlierKernels;
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
        ctas_ahead_(can_launch_ahead(setup) ? sizes_.ctas_ahead : 0),
        asked_clusters_(asked_clusters(setup, setup.peers[static_cast<size_t>(rank_)], sizes_.ranks_share_gpus)),
        turns_(device_),
        order_(launch_order_of(setup, sizes_)),
        kernels_(device_, ranks_, sizes_.ranks_share_gpus, ways_of(sizes_)) {
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

  bool is_ready_for(const Launch& launch) override {
    const auto collective_is = [this](const CollectiveWork& work) {
      return work.count == 0 || (domain_->reached(queue_for(work)) && kernels_.has(kernel_for(work)));
    };
    const auto message_is = [this](const MessageWork& work) {  // its kernels are loaded
      return work.bytes == 0 || work.peer == rank_ || domain_->reached(queue_for(work));
    };
    return std::all_of(launch.collectives.begin(), launch.collectives.end(), collective_is) &&
           std::all_of(launch.messages.begin(), launch.messages.end(), message_is) &&
           (beside_ || !has_several_protocols(launch));
  }

  void prepare(const Launch& launch, cudaStream_t stream) override {
    const DeviceGuard on(device_);
    watch_->prepare();
    if (is_ready_for(launch)) return;
    const RelaxedCaptureGuard relaxed;
    const auto busy = watch_->announce(launch, stream);
    for (const CollectiveWork& work : launch.collectives) {
      if (work.count == 0) continue;
      reach_for_use(queue_for(work));
      kernels_.load(kernel_for(work), work.plan.joined ? joined_shared_bytes(work.what, ranks_) : 0);
    }
    for (const MessageWork& work : launch.messages) {
      if (work.bytes == 0 || work.peer == rank_) continue;
      reach_for_use(queue_for(work));
    }
    if (has_several_protocols(launch) && !beside_) beside_ = make_beside();
  }

  void note(const Launch& launch, cudaStream_t stream, std::span<const unsigned long long> ids,
            bool captured) override {
    watch_->prepare();
    watch_->note(launch, stream, ids, captured);
    captured_ = captured;
  }

  void launch(const Launch& launch, cudaStream_t stream) override {
    const DeviceGuard on(device_);
    if (ranks_ == 1) prepare(launch, stream);  // waits for nobody
    const LaunchTurns::Turn turn(turns_);
    LaunchOrder::Turn order(order_);
    has_part_of_gpu_ = is_of_green_context(stream);
    if (!captured_) watch_->begin_launch(stream);
    launch_collectives(launch.collectives, stream);
    if (!launch.messages.empty()) launch_messages(launch.messages, stream);
    order.done();
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
  Passed passed() const override { return watch_->passed(); }
  void leave() override { watch_->leave(); }
  void stop_reports() override { watch_->stop(); }

  std::shared_ptr<void> memory_of_kernels() const override { return domain_; }

 private:
  std::unique_ptr<Beside> make_beside() const {
    PrimaryContext own;
    own.push_in_any_case(device_);
    auto beside = std::make_unique<Beside>();
    own.pop();
    return beside;
  }

  /// Where ranks share GPUs, others' kernels may run that wait for this rank: nothing is probed then.
  void reach_for_use(Queue queue) { sizes_.ranks_share_gpus ? domain_->reach(queue) : domain_->reach_and_probe(queue); }

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
  Queue queue_for(const MessageWork& work) const { return message_queue_of(message_protocol(sizes_, work.bytes)); }
  bool has_several_protocols(const Launch& launch) const {
    std::optional<Queue> first;
    return std::any_of(launch.messages.begin(), launch.messages.end(), [&](const MessageWork& work) {
      if (work.bytes == 0 || work.peer == rank_) return false;
      if (!first) first = queue_for(work);
      return *first != queue_for(work);
    });
  }

  void launch_collectives(const std::vector<CollectiveWork>& all, cudaStream_t stream) {
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
      parameters.by_channel = has_part_of_gpu_;
      shape.threads = kSmallThreads;
    } else if (plan.small) {
      const int per_cta = sizes_.limits.small(goes_along_line(works[0])).per_cta;
      shape.rows = channels % per_cta == 0 ? per_cta : 1;
      shape.ctas = channels / shape.rows;
      shape.threads = threads_for(queue, most_bytes, kFewWorkers);
    }
    shape.ctas_of_cluster = cluster_of(shape.ctas, bytes);
    run(kernel, shape, parameters, stream);
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

  void launch_messages(const std::vector<MessageWork>& all, cudaStream_t stream) {
    for (const SelfMessage& one : pair_self_messages(all, rank_)) {
      if (one.bytes == 0 || one.from == one.to) continue;
      cuda_check(cudaMemcpyAsync(one.to, one.from, one.bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
    }
    // A peer may send one by one, in any order, what this rank takes in one group: no protocol is to wait for another.
    // If not all CTAs can be resident at once, it is more important that those of one launch are; and where one does
    // wait for another, that all ranks begin with the same.
    MessagePlan plan = plan_messages(all, rank_, sizes_);
    if (has_part_of_gpu_) put_partners_together(plan, rank_, ranks_);
    const bool together = may_run_together(plan, sizes_) && may_fork(stream);
    const cudaStream_t beside = together ? beside_->fork(stream) : stream;
    const std::optional<Role> shared = together ? std::optional(role_of(plan)) : std::nullopt;
    launch_batches(plan, Protocol::kLL, shared, stream);
    launch_batches(plan, Protocol::kLL128, shared, stream);
    launch_batches(plan, Protocol::kSimple, shared, beside);
    if (together) beside_->join(stream, beside);
  }

  /// Graphs put branches into queues that all graphs of a process share on a GPU: those of several ranks would stand in
  /// line behind each other.
  bool may_fork(cudaStream_t stream) const {
    const bool shares_queues = sizes_.ranks_share_gpus && capture_id(stream) != 0;
    return !shares_queues && beside_->is_free_for(stream);
  }

  /// As what a kernel of messages is launched.
  struct Role {
    CallName name = CallNames::kUnknown;
    uint32_t beside = 0;  ///< as in MessageParameters
  };
  /// Of each of a plan's launches that run beside each other: what a rank waits for may be in any. If there are several
  /// by one protocol, it is not known which of those waits, and they have no name.
  Role role_of(const MessagePlan& plan) {
    const uint32_t protocols = protocols_of(plan);
    if (protocols == 0) return {};
    return {watch_->wants_names(captured_) ? watch_->name(messages_of(plan), captured_) : CallNames::kUnknown,
            protocols};
  }
  Role role_of(const MessageBatch& batch) {
    return {watch_->wants_names(captured_) ? watch_->name(messages_of(batch), captured_) : CallNames::kUnknown};
  }

  /// `shared`: of all of the plan's launches, if those of several protocols run beside each other.
  void launch_batches(const MessagePlan& plan, Protocol protocol, const std::optional<Role>& shared,
                      cudaStream_t stream) {
    const auto which = static_cast<size_t>(protocol);
    if (plan[which].empty()) return;
    const QueueView& view = domain_->view(message_queue_of(protocol));
    const MessageGrain& grain = sizes_.message_grain[which];
    for (const MessageBatch& batch : plan[which]) {
      const Role role = shared ? *shared : role_of(batch);
      if (fits_into<FewMessages>(batch)) {
        launch_batch<FewMessages>(view, batch, grain, role, message_kernel_of(batch, 0, protocol), stream);
      } else if (fits_into<MoreMessages>(batch)) {
        launch_batch<MoreMessages>(view, batch, grain, role, message_kernel_of(batch, 1, protocol), stream);
      } else {
        launch_batch<ManyMessages>(view, batch, grain, role, message_kernel_of(batch, 2, protocol), stream);
      }
    }
  }

  template <class Parameters>
  static bool fits_into(const MessageBatch& batch) {
    return batch.lanes.size() <= Parameters::kMaxLanes && batch.messages.size() <= Parameters::kMaxMessages;
  }
  template <class Parameters>
  void launch_batch(const QueueView& view, const MessageBatch& batch, const MessageGrain& grain, const Role& role,
                    const void* kernel, cudaStream_t stream) {
    Parameters parameters;
    parameters.queue = view;
    parameters.name = role.name;
    parameters.beside = role.beside;
    parameters.lanes = static_cast<int>(batch.lanes.size());
    parameters.grain = grain;
    std::copy(batch.lanes.begin(), batch.lanes.end(), parameters.lane);
    std::copy(batch.messages.begin(), batch.messages.end(), parameters.message);
    run(kernel, {.ctas = parameters.lanes, .threads = sizes_.message_threads}, parameters, stream);
  }

  /// So many multiprocessors hold the CTAs. Clusters of large kernels may find half of them in the wrong places.
  static int places_of(const LaunchShape& shape) {
    if (shape.ctas_of_cluster > 1 && shape.ctas > kCtasOfNccl) return 2 * shape.ctas;
    return shape.threads * shape.rows <= kMaxMessageThreads ? (shape.ctas + 1) / 2 : shape.ctas;
  }

  /// Green contexts may have no room for a cluster anywhere: of 4 CTAs there was none where multiprocessors were
  /// divided without regard to that.
  int cluster_of(int ctas, size_t bytes) const {
    if (has_part_of_gpu_) return 1;
    return kernels_.compiled_for(kHasClusters) ? ctas_of_cluster(asked_clusters_, ctas, bytes) : 1;
  }

  /// What of the shape depends on the stream and the GPU is added.
  template <class Parameters>
  void run(const void* kernel, LaunchShape shape, Parameters& parameters, cudaStream_t stream) {
    parameters.next_may_begin = kernels_.compiled_for(kCanWaitForEarlierKernels) && shape.ctas <= ctas_ahead_;
    // Eager launches have events between them: none begins before the one before it has ended.
    if constexpr (requires { parameters.rehearses; }) parameters.rehearses = parameters.next_may_begin && captured_;
    if (shape.shared_bytes == 0) {
      shape.shared_bytes = static_cast<size_t>(shape.rows) * shared_bytes(ranks_, shape.threads / 32);
    }
    shape.begun =
        order_.next(stream, places_of(shape), has_part_of_gpu_ ? LaunchOrder::Room::kPart : LaunchOrder::Room::kGpu);
    shape.may_begin_early = parameters.next_may_begin;
    cuda::launch(kernels_.handle_of(kernel), shape, &parameters, stream);
  }

  const int device_;
  const int rank_;
  const int ranks_;
  const Machine machine_;
  const bool linked_;
  const Sizes sizes_;
  const int ctas_ahead_;          ///< as in Sizes; 0 if the GPU's kernels cannot wait for those before them
  const int asked_clusters_;      ///< as ctas_of_cluster() takes it
  bool captured_ = false;         ///< whether what is launched next is
  bool has_part_of_gpu_ = false;  ///< whether what is being launched is in a green context
  LaunchTurns turns_;
  LaunchOrder order_;
  std::shared_ptr<Domain> domain_;
  LoadedKernels kernels_;
  std::unique_ptr<Beside> beside_;  ///< once a group had messages of several protocols
  std::unique_ptr<CallWatch> watch_;
};

}  // namespace nitinol::cuda

namespace nitinol {

std::unique_ptr<Executor> make_executor(ExecutorSetup setup) {
  return std::make_unique<cuda::CudaExecutor>(std::move(setup));
}

}  // namespace nitinol
