#include "executor/cuda/domain.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "device/check.h"
#include "device/guards.h"
#include "device/stream.h"
#include "executor/cuda/left_graphs.h"
#include "executor/cuda/probe.h"

namespace nitinol::cuda {

namespace {

constexpr size_t kSignalWords = sizeof(Signals) / sizeof(uint32_t);
constexpr size_t kAnswersEnd = (kSignalWords + kMaxRanks) * sizeof(uint32_t);
/// Where notes of runs begin, of which each is written at once.
constexpr size_t kRunsAt = (kAnswersEnd + alignof(RunNotes) - 1) / alignof(RunNotes) * alignof(RunNotes);

bool notes_runs(const ExecutorSetup& setup) { return setup.check && setup.peers.size() > 1; }

size_t host_words_for(const ExecutorSetup& setup) {
  const int ranks = static_cast<int>(setup.peers.size());
  const size_t lines = notes_runs(setup) ? static_cast<size_t>(RunLines::count(ranks)) : 0;
  return (kRunsAt + lines * sizeof(RunNotes)) / sizeof(uint32_t);
}

constexpr uint64_t kBoardName = 0x6375646162000000ULL;
constexpr int kBoardMaker = 0;  ///< the rank that makes the call board

uint64_t offer_name(Queue queue) { return 0x6375646100000000ULL + static_cast<uint64_t>(queue); }

bool all_in_one_process(const std::vector<Peer>& peers) {
  return std::all_of(peers.begin(), peers.end(), [&](const Peer& peer) { return peer.process == peers[0].process; });
}

ArenaName name_of_rank(const ExecutorSetup& setup, int rank) { return {setup.identity, rank}; }

std::vector<int> devices_of_this_process(const ExecutorSetup& setup) {
  const Peer& me = setup.peers[static_cast<size_t>(setup.rank)];
  std::vector<int> devices;
  for (const Peer& peer : setup.peers) {
    if (peer.process == me.process) devices.push_back(peer.device);
  }
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  return devices;
}

}  // namespace

NotReached::NotReached(int rank, int peer)
    : Error(ncclSystemError,
            formatted("rank {} writes into the memory of rank {} but does not find there what it wrote, although the "
                      "driver says that their GPUs reach each other: likely an IOMMU or PCIe access control (ACS) "
                      "stands between them. NCCL_P2P_DISABLE=1 goes through host memory instead",
                      rank, peer)) {}

HostWords::HostWords(size_t count) {
  void* memory = nullptr;
  cuda_check(cudaHostAlloc(&memory, count * sizeof(uint32_t), cudaHostAllocPortable | cudaHostAllocMapped),
             "cudaHostAlloc");
  std::memset(memory, 0, count * sizeof(uint32_t));
  words_ = static_cast<uint32_t*>(memory);
}

HostWords::~HostWords() { static_cast<void>(cudaFreeHost(words_)); }

bool reaches_peers(const ExecutorSetup& setup) { return setup.peer_access && reach_each_other(setup.peers); }

Domain::Domain(ExecutorSetup setup, const Layouts& layouts)
    : setup_(std::move(setup)),
      layouts_(layouts),
      device_(setup_.peers[static_cast<size_t>(setup_.rank)].device),
      words_(host_words_for(setup_)) {
  arena_ = std::make_shared<Arena>(place(), device_, devices_of_this_process(setup_), layouts_);
  if (setup_.rank == kBoardMaker) make_board();
  register_arena(name_of_rank(setup_, setup_.rank), arena_);
  for (int index = 0; setup_.handles != nullptr && index < kQueues; ++index) {
    const auto queue = static_cast<Queue>(index);
    setup_.handles->offer_on_demand(offer_name(queue), [arena = arena_, device = device_, queue] {
      settle_on(device);
      return arena->region(queue)->share();
    });
  }
}

void Domain::make_board() {
  const bool shareable = setup_.handles != nullptr && !all_in_one_process(setup_.peers);
  auto board =
      std::make_shared<const CallBoard>(SharedMemory::create(CallBoard::bytes_for(ranks()), shareable), ranks());
  if (shareable) setup_.handles->offer(kBoardName, [board] { return board->share(); });
  arena_->keep_board(std::move(board));
}

const CallBoard* Domain::reach_board() {
  if (board_ != nullptr) return board_.get();
  const std::vector<Peer>& peers = setup_.peers;
  if (peers[kBoardMaker].process == peers[static_cast<size_t>(setup_.rank)].process) {
    board_ = find_arena(name_of_rank(setup_, kBoardMaker))->board();
  } else {
    const MemoryHandle handle = setup_.handles->fetch(kBoardMaker, kBoardName);
    board_ = std::make_shared<const CallBoard>(SharedMemory::map(handle, CallBoard::bytes_for(ranks())), ranks());
  }
  return board_.get();
}

void Domain::close() {
  if (!open_) return;
  open_ = false;
  for (int queue = 0; setup_.handles != nullptr && queue < kQueues; ++queue) {
    setup_.handles->withdraw(offer_name(static_cast<Queue>(queue)));
  }
  if (setup_.handles != nullptr) setup_.handles->withdraw(kBoardName);
  setup_.handles = nullptr;
  setup_.failed = nullptr;
  unregister_arena(name_of_rank(setup_, setup_.rank));
}

Domain::~Domain() {
  left_graphs_.reset();
  close();
}

void Domain::look_after_graphs(std::chrono::milliseconds timeout) {
  left_graphs_ = std::make_unique<LeftGraphs>(*this, timeout);
}

void Domain::reach(Queue queue) { map_all(queue, false); }

void Domain::reach_and_probe(Queue queue) { map_all(queue, true); }

void Domain::map_all(Queue queue, bool probes) {
  const auto index = static_cast<size_t>(queue);
  if (views_[index] != nullptr) return;
  auto view = std::make_unique<QueueView>();
  view->layout = layouts_[index];
  view->rank = setup_.rank;
  view->signals = &signals();
  for (int rank = 0; rank < ranks(); ++rank) {
    if (std::shared_ptr<p2p::Region> region = region_unless_gone(rank, queue)) {
      view->region[rank] = region->address();
      regions_.push_back(std::move(region));
    }
  }
  stand_in_for_gone(*view);
  view->counters = counters_of(queue);
  view->notes = runs_of(queue);
  if (probes) check_reached(*view);
  tell_kernels_of_counters(index, *view);
  views_[index] = std::move(view);
}

/// Kernels that abort mark them, but only those that they know of by then.
void Domain::tell_kernels_of_counters(size_t queue, const QueueView& view) {
  volatile Signals::Table& table = signals().tables[queue];
  table.channels = view.layout.channels;
  table.standing = view.layout.standing(view.counters);
  std::atomic_thread_fence(std::memory_order_release);
  table.counters = view.counters;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // As for whoever waits for a peer's memory: what has stopped the communicator is what its caller is told.
  if (signals().aborted != 0) fail(ncclRemoteError, "rank {}: the communicator was stopped meanwhile", setup_.rank);
}

std::shared_ptr<p2p::Region> Domain::region_unless_gone(int rank, Queue queue) {
  try {
    return region_of(rank, queue);
  } catch (const Error& found) {
    const bool is_asked = found.code() == ncclRemoteError && setup_.handles != nullptr;
    if (!is_asked || !setup_.handles->turns_out_gone(rank)) throw;
    missed_[{queue, rank}] = found.what();
    return nullptr;
  }
}

/// What a rank that is gone has sent lies in this rank's memory, and what others do among themselves needs no more of
/// it. Who waits for more from it is told so. Nobody reads what stands in for its memory, so that is one for all.
void Domain::stand_in_for_gone(QueueView& view) {
  std::shared_ptr<p2p::Region> stand_in;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (view.region[rank] != nullptr) continue;
    if (!stand_in) stand_in = p2p::allocate(place(), device_, view.layout.bytes(), {device_});
    view.region[rank] = stand_in->address();
  }
  if (stand_in) regions_.push_back(std::move(stand_in));
}

void Domain::must_not_miss(Queue queue, int rank) const {
  const auto missed = missed_.find({queue, rank});
  if (missed != missed_.end()) fail(ncclRemoteError, "{}", missed->second);
}

std::shared_ptr<p2p::Region> Domain::region_of(int rank, Queue queue) {
  if (rank == setup_.rank) return arena_->region(queue);
  const Peer& peer = setup_.peers[static_cast<size_t>(rank)];
  if (peer.process == setup_.peers[static_cast<size_t>(setup_.rank)].process) {
    return find_arena(name_of_rank(setup_, rank))->region(queue);
  }
  return p2p::map(place(), device_, setup_.handles->fetch(rank, offer_name(queue)));
}

/// The rank's own counters lie in the memory of its GPU: from host memory each would take a microsecond to come.
char* Domain::counters_of(Queue queue) {
  if (place() == p2p::Place::kDevice) {
    return arena_->region(queue)->address() + layouts_[static_cast<size_t>(queue)].state_at;
  }
  size_t before = 0;
  size_t all = 0;
  for (int index = 0; index < kQueues; ++index) {
    if (index == static_cast<int>(queue)) before = all;
    all += layouts_[static_cast<size_t>(index)].counter_bytes();
  }
  if (counters_ == nullptr) counters_ = p2p::allocate(p2p::Place::kDevice, device_, all, {device_});
  return counters_->address() + before;
}

void Domain::check_reached(const QueueView& view) {
  // Nothing is allocated or freed here: that may wait for kernels, of which some wait for this rank.
  uint32_t* answers = words_.get() + kSignalWords;
  std::memset(answers, 0, kMaxRanks * sizeof(uint32_t));
  const Stream stream = Stream::create_urgent();
  QueueView queue = view;
  void* arguments[] = {&queue, &answers};
  cuda_check(cudaLaunchKernel(probe_kernel(), dim3(1), dim3(kMaxRanks), arguments, 0, stream.get()),
             "launch of the probe of peers' memory");
  cuda_check(cudaStreamSynchronize(stream.get()), "probe of peers' memory");
  for (int rank = 0; rank < ranks(); ++rank) {
    if (static_cast<volatile uint32_t*>(answers)[rank] == 1) continue;
    throw NotReached(setup_.rank, rank);
  }
}

RunNotes* Domain::runs() const {
  return notes_runs(setup_) ? reinterpret_cast<RunNotes*>(words_.get() + kRunsAt / sizeof(uint32_t)) : nullptr;
}

/// Where data has tags there are none.
RunNotes* Domain::runs_of(Queue queue) const {
  RunNotes* const all = runs();
  if (all == nullptr) return nullptr;
  switch (queue) {
    case Queue::kSimple: return all + RunLines::kSimple;
    case Queue::kSums: return all + RunLines::kSums;
    case Queue::kMesh: return all + RunLines::kMesh;
    case Queue::kLine: return all + RunLines::kLine;
    case Queue::kJoined: return all + RunLines::kJoined;
    case Queue::kMessageSimple: return all + RunLines::kCollectives;
    case Queue::kLL:
    case Queue::kLL128:
    case Queue::kMessageLL:
    case Queue::kMessageLL128:
    case Queue::kBriefLL:
    case Queue::kBriefLL128:
    case Queue::kLongBrief:
    case Queue::kLL16: return nullptr;
  }
  return nullptr;
}

size_t Domain::room_for_messages() const {
  size_t most = 0;
  for (const Queue queue : {Queue::kMessageLL, Queue::kMessageLL128, Queue::kMessageSimple}) {
    const QueueLayout& one = layout(queue);
    most = std::max(most, size_t{one.slots} * one.slot_bytes * static_cast<size_t>(one.channels));
  }
  return most;
}

const QueueView& Domain::view(Queue queue) const {
  const auto& view = views_[static_cast<size_t>(queue)];
  if (view == nullptr) fail(ncclInternalError, "queue set {} was not prepared", static_cast<int>(queue));
  return *view;
}

void reach_for_use(Domain& domain, Queue queue, bool ranks_share_gpus) {
  const bool probes = !ranks_share_gpus && domain.ranks() > 1;
  probes ? domain.reach_and_probe(queue) : domain.reach(queue);
}

}  // namespace nitinol::cuda
