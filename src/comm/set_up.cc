// How a communicator comes to be: rendezvous, what the ranks tell each other, and the executor.
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/host.h"
#include "base/log.h"
#include "base/process_state.h"
#include "base/settings.h"
#include "bootstrap/absence.h"
#include "comm/communicator.h"
#include "comm/departure.h"
#include "comm/peer_access.h"
#include "comm/strict_check.h"
#include "device/check.h"
#include "device/guards.h"
#include "diagnostics/ras/report.h"

namespace nitinol {
namespace {

/// Drawn once; a child after fork has another.
uint64_t process_number() {
  static const uint64_t drawn = [] {
    uint64_t number = 0;
    ensure_crypto();
    fill_random({reinterpret_cast<uint8_t*>(&number), sizeof(number)});
    return number;
  }();
  return of_this_process(drawn);
}

template <size_t N>
void copy_text(const std::string& from, std::array<char, N>& to) {
  std::memcpy(to.data(), from.data(), std::min(from.size(), N - 1));
}

std::string_view check_mode() {
  if (checks_strictly()) return "strict";
  return compares_calls() ? "" : "off";
}

/// What must be the same on all ranks, as they reach each other by it, and write down their calls for each other or do
/// not.
using SharedSettings = std::array<std::string, std::tuple_size_v<decltype(Peer::shared_settings)>>;

SharedSettings shared_settings() {
  return {formatted("NCCL_P2P_DISABLE or NCCL_P2P_LEVEL: {}", words_for_peers_to_reach()),
          formatted("NITINOL_P2P_TRY={}", settings().integer_if_set(Setting::kP2pTry).value_or(-1)),
          formatted("NITINOL_CHECK={}", check_mode())};
}

/// Of those that another rank has otherwise, what this one has.
std::string told_differences(const Peer& mine, const Peer& other) {
  const SharedSettings all = shared_settings();
  std::string told;
  for (size_t i = 0; i < all.size(); ++i) {
    if (mine.shared_settings[i] != other.shared_settings[i]) told += (told.empty() ? "" : " ") + all[i];
  }
  return told;
}

LaunchOrdering launch_ordering() {
  const auto implicit = settings().integer_if_set(Setting::kLaunchOrderImplicit);
  if (!implicit) return LaunchOrdering::kWhereNeeded;
  return *implicit == 1 ? LaunchOrdering::kAlways : LaunchOrdering::kNone;
}

#if defined(NITINOL_CUDA)
constexpr uint32_t kFlavour = 1;
#else
constexpr uint32_t kFlavour = 0;
#endif

/// Whether ranks of this host share GPUs while it has others, and nobody has said that they are to.
bool leaves_gpus_unused(const std::vector<Peer>& peers, int rank) {
  if (settings().integer_if_set(Setting::kMultiRankGpuEnable)) return false;
  std::set<decltype(Peer::device_id)> used;
  for (const Peer& peer : peers) {
    if (peer.host == peers[static_cast<size_t>(rank)].host) used.insert(peer.device_id);
  }
  int visible = 0;
  cuda_check(cudaGetDeviceCount(&visible), "cudaGetDeviceCount");
  return visible > static_cast<int>(used.size());
}

/// Ranks may share GPUs unless NCCL_MULTI_RANK_GPU_ENABLE says otherwise. It is seldom what was meant on real ones.
void look_for_shared_gpus(const std::vector<Peer>& peers, int rank) {
  const bool may_share = settings().flag(Setting::kMultiRankGpuEnable);
  std::map<decltype(Peer::device_id), int> ranks;
  for (const Peer& peer : peers) {
    const auto [other, is_first] = ranks.try_emplace(peer.device_id, peer.rank);
    if (is_first || (may_share && peer.rank != rank)) continue;  // each tells of itself
    const std::string sharing = formatted("ranks {} and {} use one GPU, device {} of host {}", other->second, peer.rank,
                                          peer.device, peer.host_name.data());
    if (!may_share) fail(ncclInvalidUsage, "{} (NCCL_MULTI_RANK_GPU_ENABLE=0)", sharing);
    if (leaves_gpus_unused(peers, rank)) {
      log_note(
          "{}, while others are not used: does each rank call cudaSetDevice? (NCCL_MULTI_RANK_GPU_ENABLE=1 says "
          "that it is meant so)",
          sharing);
    } else {
      log_info(Subsystem::kInit, "{}, and share its speed", sharing);
    }
  }
}

/// By which way data goes from one rank to another.
void log_path(const std::vector<Peer>& peers, int from, int to, [[maybe_unused]] bool peer_access) {
  const Peer& source = peers[static_cast<size_t>(from)];
  const Peer& sink = peers[static_cast<size_t>(to)];
  const bool same_process = source.process == sink.process;
#if defined(NITINOL_CUDA)
  const char* const path = !peer_access ? "SHM/pinned memory" : same_process ? "P2P/direct pointer" : "P2P/IPC";
#else
  const char* const path = same_process ? "P2P/direct pointer" : "SHM/memfd";
#endif
  const Subsystem subsystem = std::string_view(path).starts_with("P2P") ? Subsystem::kP2p : Subsystem::kShm;
  log_info(Subsystem::kInit | subsystem, "Channel 00/0 : {}[{}] -> {}[{}] via {}", from, source.device, to, sink.device,
           path);
}

}  // namespace

std::chrono::milliseconds warn_after() { return std::chrono::seconds(settings().integer(Setting::kWarnAfter)); }

BootstrapOptions bootstrap_options() {
  const Settings& s = settings();
  BootstrapOptions options;
  options.interfaces = s.text_if_set(Setting::kSocketIfname).value_or("");
  const std::string family = s.text_if_set(Setting::kSocketFamily).value_or("");
  if (family == "AF_INET") options.family = AF_INET;
  if (family == "AF_INET6") options.family = AF_INET6;
  options.comm_id = s.text_if_set(Setting::kCommId);
  options.retry_count = s.integer(Setting::kSocketRetryCnt);
  options.retry_sleep = std::chrono::milliseconds(s.integer(Setting::kSocketRetrySleepMsec));
  options.stagger_threshold = s.integer(Setting::kUidStaggerThreshold);
  options.stagger_rate = s.integer(Setting::kUidStaggerRate);
  options.init_timeout = std::chrono::seconds(s.integer(Setting::kInitTimeout));
  options.operation_timeout = options.init_timeout;
  options.warn_after = warn_after();
  return options;
}

void Communicator::set_up(const std::vector<UniqueId>& ids) {
  JoinArguments arguments;
  try {
    arguments.ids = ids;
    arguments.rank = rank_;
    arguments.nranks = ranks_;
    arguments.options = bootstrap_options();
    arguments.abort_flag = &aborted_;
  } catch (const std::exception& thrown) {
    report_absence(ids, rank_, thrown);
    throw;
  }
  set_up(Bootstrap::join(arguments));
}

/// The others are to hear why, not that a connection was lost.
void Communicator::tell_of_failed_set_up(Bootstrap& bootstrap, const std::exception& thrown) noexcept {
  try {
    const Error error = as_error(thrown);
    tell(bootstrap, error.code(), error.what(), aborted_.load());
  } catch (const std::exception&) {
    bootstrap.report_lack_of_memory();
  }
}

void Communicator::set_up(std::unique_ptr<Bootstrap> bootstrap) {
  std::optional<Visit> visit;
  try {
    visit.emplace(*this);
  } catch (const std::exception& thrown) {  // aborted since it has joined the others
    tell_of_failed_set_up(*bootstrap, thrown);
    throw;
  }
  bootstrap_ = std::move(bootstrap);
  identity_ = key_id(bootstrap_->secret());
  try {
    log_init("START");
    const DeviceGuard device(device_);
    const RelaxedCaptureGuard relaxed;
    meet_peers();
    timeout_ = std::chrono::seconds(settings().integer(Setting::kTimeout));
    bootstrap_->set_operation_timeout(timeout_);
    follow_failures();
  } catch (const std::exception& thrown) {
    tell_of_failed_set_up(*bootstrap_, thrown);
    throw;
  }
  phase_.store(Phase::kReady, std::memory_order_release);
  ncclResult_t busy = ncclInProgress;
  state_.compare_exchange_strong(busy, ncclSuccess, std::memory_order_acq_rel);
  log_init("COMPLETE");
}

Peer Communicator::describe() const {
  cudaDeviceProp properties{};
  cuda_check(cudaGetDeviceProperties(&properties, device_), "cudaGetDeviceProperties");
  Peer peer;
  peer.rank = rank_;
  peer.device = device_;
  peer.host = host_identity();
  peer.process = process_number();
  peer.pid = getpid();
  peer.pid_namespace = pid_namespace();
  peer.compute_capability = 10 * properties.major + properties.minor;
  describe_gpu(peer, properties);
  copy_text(host_name(), peer.host_name);
  const FdServerName server = handles_->server_name();
  std::copy(server.text.begin(), server.text.end(), peer.handle_server.begin());
  std::memcpy(peer.device_id.data(), properties.uuid.bytes, peer.device_id.size());
  peer.version = NCCL_VERSION_CODE;
  peer.flavour = kFlavour;
  const SharedSettings shared = shared_settings();
  std::transform(shared.begin(), shared.end(), peer.shared_settings.begin(),
                 [](const std::string& one) { return static_cast<uint32_t>(stable_hash(one)); });
  peer.meeting_point = bootstrap_->meeting_point();
  return peer;
}

void Communicator::check_peers(const std::vector<Peer>& peers) const {
  const Peer& mine = peers[static_cast<size_t>(rank_)];
  for (const Peer& peer : peers) {
    if (peer.version != mine.version || peer.flavour != mine.flavour) {
      fail(
          ncclInvalidUsage,
          "rank {} runs version {} (flavour {}), rank {} runs version {} (flavour {}): all ranks need the same library",
          mine.rank, mine.version, mine.flavour, peer.rank, peer.version, peer.flavour);
    }
    if (peer.shared_settings != mine.shared_settings) {
      fail(ncclInvalidUsage, "ranks {} and {} have different settings; on rank {}: {}", mine.rank, peer.rank, mine.rank,
           told_differences(mine, peer));
    }
    if (peer.host != mine.host) {
      fail(ncclInvalidUsage,
           "ranks {} ({}) and {} ({}) are on different hosts (NCCL_HOSTID, where it is set, tells them apart): "
           "communication between hosts is not built yet",
           mine.rank, mine.host_name.data(), peer.rank, peer.host_name.data());
    }
  }
}

/// Ranks whose environments or configurations say different things, as those of a trainer and of the engine that it
/// feeds, still have a communicator in common.
void Communicator::agree(std::span<const Wishes> all) {
  const Wishes agreed = agreed_wishes(all);
  const std::string differences = told_differences(wishes_, agreed);
  if (!differences.empty()) {
    log_note(
        "rank {}: not all ranks have the same settings, by which all must choose alike; here count, not as set: {}",
        rank_, differences);
  }
  wishes_ = agreed;
  rules_ = rules_of(agreed);
}

std::vector<Peer> Communicator::meet_and_agree() {
  struct Introduction {
    Peer peer;
    Wishes wishes;
  };
  std::vector<Peer> peers;
  std::vector<Wishes> wishes;
  for (Introduction& one : bootstrap_->all_gather_value(Introduction{describe(), wishes_})) {
    one.peer.rank = static_cast<int32_t>(peers.size());
    tidy(one.peer);
    peers.push_back(one.peer);
    wishes.push_back(one.wishes);
  }
  check_peers(peers);
  agree(wishes);
  return peers;
}

void Communicator::meet_peers() {
  const std::chrono::seconds longest(settings().integer(Setting::kInitTimeout));
  handles_ = std::make_unique<SocketHandleExchange>(bootstrap_->secret(), rank_, longest, &stopped_);
  const bool strict = checks_strictly() && ranks_ > 1;
  SharedMemory strict_memory;
  if (strict && rank_ == 0) strict_memory = StrictBoard::make(*handles_, ranks_);
  const std::vector<Peer> peers = meet_and_agree();
  look_for_shared_gpus(peers, rank_);
  tell_bootstrap_of(peers);
  handles_->set_peers(peers);
  handles_->ask_for_gone([this](int peer) { return bootstrap_->knows_gone(peer); });
  bootstrap_->ask_for_stopped([this] { return stopped_ranks_beside(""); });
  take_seat(peers);
  constexpr int kFewestToLeaveOutOneAndMeet = 3;
  if (ranks_ >= kFewestToLeaveOutOneAndMeet) desk();  // others may shrink before this rank does, and tell it something
  const uint64_t process = peers[static_cast<size_t>(rank_)].process;
  const auto is_local = [&](const Peer& peer) { return peer.process == process; };
  gathering_ = join_gathering(identity_, std::count_if(peers.begin(), peers.end(), is_local));
  if (strict && rank_ != 0) strict_memory = StrictBoard::fetch(*handles_, ranks_);
  if (strict) strict_board_ = std::make_shared<StrictBoard>(std::move(strict_memory), peers, rank_);
  bool peer_access = has_peer_access(peers);
  if (!peer_access) require_way_through_host(peers);
  make_executor_for(peers, peer_access);
  bootstrap_->barrier();
  if (peer_access && tries_peer_access(peers)) peer_access = finds_peer_access(peers);
  if (ranks_ > 1) log_path(peers, rank_, (rank_ + 1) % ranks_, peer_access);
  if (executor_->meet()) bootstrap_->barrier();
  if (ranks_ > 1 && !settings().flag(Setting::kRuntimeConnect)) executor_->connect();
}

/// What drivers promise may not hold. All ranks try it together, and if one of them finds that out, all go through host
/// memory.
bool Communicator::finds_peer_access(const std::vector<Peer>& peers) {
  const std::string wrong = executor_->try_peer_access();
  const std::vector<int> answers = bootstrap_->all_gather_value(wrong.empty() ? 0 : 1);
  const auto first = std::find(answers.begin(), answers.end(), 1);
  if (first == answers.end()) return true;
  require_way_through_host(peers);
  if (first - answers.begin() == rank_) {
    log_warn("communicator {} of {} ranks: {}, which this one does now", ras::text_of(identity_), ranks_, wrong);
  }
  executor_->stop_reports();
  {
    const KeepUntilIdle memory(executor_->memory_of_kernels(), order_.idle_probe());
    end_executor();
  }
  bootstrap_->barrier();  // what it offered is not to be found any more
  make_executor_for(peers, false);
  bootstrap_->barrier();
  return false;
}

void Communicator::tell_bootstrap_of(const std::vector<Peer>& peers) {
  std::vector<int> devices;
  for (const Peer& peer : peers) devices.push_back(peer.device);
  bootstrap_->know_devices(devices);
}

void Communicator::make_executor_for(std::vector<Peer> peers, bool peer_access) {
  let_go_of_idle_memory();
  ExecutorSetup setup;
  setup.rank = rank_;
  setup.peers = std::move(peers);
  setup.identity = std::bit_cast<std::array<uint64_t, 2>>(identity());
  setup.handles = handles_.get();
  setup.max_channels = wishes_.max_ctas;
  setup.cluster_ctas = wishes_.cluster_ctas;
  setup.buffer_bytes = wishes_.buffer_bytes;
  setup.peer_access = peer_access;
  setup.timeout = std::chrono::seconds(settings().integer(Setting::kTimeout));
  setup.warn_after = warn_after();
  setup.set_up_timeout = std::chrono::seconds(settings().integer(Setting::kInitTimeout));
  handles_->set_patience(setup.timeout);
  setup.record_times = settings().flag(Setting::kRecordTimes);
  setup.launch_ahead = settings().flag(Setting::kLaunchAhead);
  setup.launch_ordering = launch_ordering();
  setup.launch_races_fail =
      setup.launch_ordering == LaunchOrdering::kAlways && settings().flag(Setting::kLaunchRaceFatal);
  setup.check = compares_calls();
  setup.idle = order_.idle_probe();
  kernels_ = KernelsOfProcess(order_.idle_probe());
  setup.through = order_.through_probe();
  setup.exactly_through = order_.exact_probe();
  // Kernels may outlive the communicator, so these know it as somebody only.
  if (strict_board_) {
    setup.program_waits = [teller = std::make_shared<const char>()](const HeldProgram* held) {
      if (held == nullptr) return StrictBoard::let_go(teller.get());
      StrictBoard::hold_up(teller.get(), *held, {});
    };
  }
  setup.failed = [this](ncclResult_t code, const std::string& sentence) { fail_in_operation(code, sentence); };
  setup.warned = [device = device_](const std::string& sentence) {
    const DeviceInLog of_rank(device);
    log_note("{}", sentence);
  };
  std::unique_ptr<Executor> executor = make_executor(std::move(setup));
  limits_ = executor->limits();
  bootstrap_->ask_for_doings([this](int rank) { return doings_of(rank); });
  const std::lock_guard lock(executor_mutex_);
  executor_ = std::move(executor);
  if (aborted_.load(std::memory_order_acquire)) executor_->abort();
}

/// As the executor says, which waits in vain where that is a remote error.
void Communicator::fail_in_operation(ncclResult_t code, const std::string& sentence) {
  std::string more;
  try {
    if (code == ncclRemoteError) more = naming_the_gone(naming_the_stopped(sentence));
  } catch (const std::bad_alloc&) {
  }
  fail_with(code, more.empty() ? sentence : more, true);
}

}  // namespace nitinol
