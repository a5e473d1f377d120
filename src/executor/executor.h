// The seam between communicators and what carries operations out: virtual GPUs' threads or GPUs' kernels.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/launch_order.h"
#include "executor/holder.h"
#include "executor/host_call.h"
#include "model/launch_run.h"
#include "model/limits.h"
#include "model/operation_times.h"
#include "model/peer.h"
#include "model/plan.h"
#include "model/signature.h"
#include "model/topology_model.h"
#include "transport/transport.h"

namespace nitinol {

/// A program that calls nothing before an operation, or a call that waits on the host, has ended.
struct HeldProgram {
  uint64_t label = 0;  ///< of that (label.h)
  Holder holder;       ///< and which it is
};

struct ExecutorSetup {
  int rank = 0;
  std::vector<Peer> peers;                  ///< one per rank
  std::array<uint64_t, 2> identity{};       ///< names the communicator: equal on its ranks, unique otherwise
  HandleExchange* handles = nullptr;        ///< outlives the executor
  int max_channels = 0;                     ///< 0: free to choose
  int cluster_ctas = -1;                    ///< NCCL_CGA_CLUSTER_SIZE; -1: free to choose
  size_t buffer_bytes = 0;                  ///< NCCL_BUFFSIZE; 0: free to choose
  bool peer_access = true;                  ///< false: NCCL_P2P_DISABLE
  std::chrono::milliseconds timeout{0};     ///< after which an operation that makes no progress fails; 0: never
  std::chrono::milliseconds warn_after{0};  ///< and after which one is warned of; 0: never
  std::chrono::milliseconds set_up_timeout{300'000};  ///< for which a rank may be busy reaching memory and loading code
  bool launch_ahead = true;  ///< kernels may begin before the one before them in their stream is done
  LaunchOrdering launch_ordering = LaunchOrdering::kWhereNeeded;  ///< with other communicators of the process
  bool launch_races_fail = false;                                 ///< as in LaunchOrder::Options
  bool record_times = false;  ///< whether Passed has them where that costs something
  bool check = true;  ///< whether ranks compare what they call where that costs nothing (false: NITINOL_CHECK=off)
  /// Whether everything launched so far is through; may be empty. Any thread, also after the executor has gone.
  std::function<bool()> idle{};
  /// How many of the launches so far are through, of those that were not captured: no less than are, and nothing if
  /// that is not known. The same holds for it.
  std::function<std::optional<uint64_t>()> through{};
  /// The same, but nothing if it is longer ago than is remembered: so many are, and the next is not.
  std::function<std::optional<uint64_t>()> exactly_through{};
  /// Called once, on any thread, when a launch fails (a peer's memory is gone, a CUDA error).
  std::function<void(ncclResult_t, const std::string&)> failed;
  /// The program's only thread waits on the host for an operation that has the label, and calls nothing before it has
  /// ended; null: no more. On any thread, also after the executor has gone (kernels may outlive it); may be empty.
  std::function<void(const HeldProgram*)> program_waits{};
  /// Called on any thread with what is to be in the log, also after the executor has gone; may be empty.
  std::function<void(const std::string&)> warned{};
};

/// One rank's executor. Calls come from one thread at a time, but for those that any thread may make.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual Limits limits() const = 0;

  /// How fast the machine is to what goes by a protocol, as far as that is known: for estimates alone.
  virtual TopologyModel topology(Protocol protocol) const = 0;

  /// Once, before meet(), when all ranks have made theirs: whether this rank finds in the others' memory what it writes
  /// there. "" if it does, else a sentence: then executors have to be made anew, without peer access. Waits for
  /// peers' service threads and the GPU. Throws Error.
  virtual std::string try_peer_access() { return ""; }

  /// Once, when all ranks have made theirs: reaches what ranks tell each other by even if they launch nothing. False,
  /// on all of them, if there is nothing of the kind; else no rank may go before all are back. May wait for peers'
  /// service threads only. Throws Error.
  virtual bool meet() { return false; }

  /// Reaches, before anything is launched, what any launch may need but those that the user's rules alone lead to. May
  /// wait for peers' service threads only. Throws Error.
  virtual void connect() = 0;

  /// Whether all that the launch needs was reached before: then it needs no prepare(). By the thread that launches.
  /// Throws Error.
  virtual bool is_ready_for(const Launch& launch) = 0;

  /// Reaches whatever the launch, which is to go into the stream, needs and was not reached before. May wait for peers'
  /// service threads only. Throws Error.
  virtual void prepare(const Launch& launch, cudaStream_t stream) = 0;
  void prepare(const Launch& launch) { prepare(launch, nullptr); }

  /// The next collective that is certain to be launched, once all ranks have come to it; null: there is none any more.
  /// Not of one that is only captured: messages of this rank that others wait for may come before it is run.
  virtual void announce(const CollectiveWork* /*next*/) {}

  /// By whoever looks after such a wait, now and then and on any thread: what was announced is still waited for.
  /// `held`: all threads of the program wait so, in the group of this call, and it calls and launches nothing before
  /// that ends; null: they do not.
  virtual void note_wait(const HeldProgram* /*held*/) {}

  /// The host waits for these ranks in a call that they must make too; nothing is launched before. kNone: no more.
  virtual void wait_on_host(HostCall /*call*/, std::span<const int> /*ranks*/) {}

  /// What is launched next, in a stream that waits for all earlier launches, or captured into a graph. `ids`: the
  /// stream's, or kNoStreamId (device/stream.h), and those of other streams that the group uses, if none is captured:
  /// the launch waits for them, and they for it.
  virtual void note(const Launch&, cudaStream_t, std::span<const unsigned long long> /*ids*/, bool /*captured*/) {}

  /// Enqueues in stream order, also while the stream is being captured. Never waits for peers. Throws Error.
  /// The launch is consumed; everything the running operations need is kept alive by what was enqueued.
  virtual void launch(const Launch& launch, cudaStream_t stream) = 0;

  /// How far the collectives have come, counted from 1 in the order in which they run; nothing if that is not known.
  struct Progress {
    uint64_t begun = 0;
    uint64_t ended = 0;
  };
  virtual std::optional<Progress> progress() const { return std::nullopt; }
  /// How far what was launched has come, as far as that is known. After an abort: nothing, or what was known before.
  struct Passed {
    std::optional<uint64_t> launches{};  ///< so many are through, and the next is not, of those that were not captured
    std::optional<bool> all{};           ///< whether everything is, graphs as often as they were launched until now
    std::vector<LaunchRun> runs{};       ///< when the last launches began and ended, oldest first; if known
    std::optional<uint64_t> begun{};     ///< so many have begun, of those that were not captured; if that is known
    std::vector<PeerMessage> awaited{};  ///< for which a group of messages has waited for long; empty if not known
  };
  virtual Passed passed() const { return {}; }
  /// The ranks for which operations have waited, in graphs as well, for a fifth of a second or so: as they have told
  /// since the call before. By one thread, and no more often than that.
  virtual std::vector<int> awaited() { return {}; }
  /// When they began and ended; null if that is not known.
  virtual std::shared_ptr<const OperationTimes> times() const { return nullptr; }

  /// What another rank does, as far as it can be seen from here. Any thread.
  struct DoingsOfPeer {
    std::string text;      ///< "" if it cannot be seen
    bool stopped = false;  ///< it carries out nothing any more
  };
  virtual DoingsOfPeer doings_of(int /*rank*/) const { return {}; }

  /// Whether collectives of no elements are to be launched too: only to compare ranks' calls.
  virtual bool follows_empty_collectives() const { return false; }

  /// For operations from now on; 0: none.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;

  /// After it `failed` is not called any more. Not under a lock that `failed` takes.
  virtual void stop_reports() {}

  /// What launches use on top of what they were given: who replays a graph with launches in it keeps this alive.
  virtual std::shared_ptr<void> memory_of_kernels() const { return nullptr; }

  /// Everything launched is through, and nothing will be launched any more: whoever waits for this rank is wrong.
  virtual void leave() {}

  /// After leave(): whether another rank may still need this one, as it has not taken what this one has sent it, or not
  /// come to what this one has called, or has called what this one has not. True also if that cannot be known now;
  /// but not of a rank with graphs, what these send being for others' graphs, which may be launched later.
  virtual bool is_needed() const { return false; }

  /// After all ranks have left: what two of them called differently without either having noticed, or what one of them
  /// has sent and the other not received.
  virtual std::optional<std::string> difference_in_the_end() const { return std::nullopt; }

  /// Any thread, any time: running and later launches end soon, their results undefined.
  virtual void abort() = 0;
  /// After an abort, any thread: nothing that was launched runs, and what has not begun will do nothing at all when it
  /// does.
  virtual bool is_quiet() { return false; }
};

/// Adds to a rank's description what executors need to know of the GPU peer.device, which has these properties. Throws
/// Error.
#if defined(NITINOL_CUDA)
void describe_gpu(Peer& peer, const cudaDeviceProp& properties);
/// Whether GPUs of the ranks may reach each other over PCIe, where an IOMMU or access control can spoil what drivers
/// promise.
bool are_perhaps_behind_pcie(std::span<const Peer> peers);
#else
inline void describe_gpu(Peer& peer, const cudaDeviceProp&) { peer.reach = kReachesPeers | kKeepsLinesWhole; }
inline bool are_perhaps_behind_pcie(std::span<const Peer>) { return false; }
#endif

/// Allocates this rank's arena and offers it to peers. One definition per flavour.
std::unique_ptr<Executor> make_executor(ExecutorSetup setup);

}  // namespace nitinol
