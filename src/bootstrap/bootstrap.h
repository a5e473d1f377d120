// Out-of-band exchange among the ranks of one communicator: ranks meet at the roots named in the unique ids, build a
// tree of authenticated TCP connections, and exchange small data over it: O(n) messages, O(log n) deep. The tree also
// carries failures (liveness.h).
//
//   root: the rendezvous point in the process that made the id; it tells each rank the address of its tree parent.
//   tree: four children per rank in heap order; with several ids one tree per block of ranks, and a tree of the
//   leaders.
//
// Operations are collective: every rank calls the same ones in the same order. They may be called from any thread; two
// at a time on one object take turns. Each waits at most the operation timeout and gives up within 100 ms when the
// abort flag is raised. They throw Error: the first failure's code and sentence once the communicator has failed; after
// any failed operation the communicator counts as failed on every rank.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "bootstrap/frame.h"
#include "bootstrap/liveness.h"
#include "bootstrap/options.h"
#include "bootstrap/secret.h"
#include "bootstrap/unique_id.h"

namespace nitinol {

class RegroupDesk;
class Tree;

using Bytes = std::vector<std::byte>;

/// Where a rank's process listens, to be told to others as it is.
using MeetingPoint = std::array<std::uint8_t, 24>;

/// Some ranks of a communicator meet without the help of the others, which may be gone. Equal on all but for `rank`.
struct RegroupArguments {
  Secret secret;            // derived from the old communicator's; used once
  MeetingPoint meet_at{};   // of the process of the new rank 0, as long as it holds the old communicator
  std::uint32_t scope = 0;  // of the old communicator: an address that is link-local comes without
  int rank = 0;             // among those who meet
  int nranks = 1;
  std::vector<std::string> names{};  // what sentences call them, by that rank
  BootstrapOptions options;
  const std::atomic<bool>* abort_flag = nullptr;
  std::function<void()> interrupt{};  // as in JoinArguments
};

/// What an operation is for, by which people know it.
struct Purpose {
  Operation operation = Operation::kAllGather;
  std::string detail{};  ///< this rank's call, if it has more to say than the operation's name
};

struct JoinArguments {
  std::vector<UniqueId> ids;  // the same on all ranks; several share the work of the rendezvous
  int rank = 0;
  int nranks = 1;
  BootstrapOptions options;
  const std::atomic<bool>* abort_flag = nullptr;  // outlives the Bootstrap; may be null
  std::function<void()> interrupt{};              // asked now and then while this rank waits; throws to give up
  std::string root_name{};                        // what sentences call it; empty: that of the unique id
};

class Bootstrap {
 public:
  /// Returns when all ranks have joined. Throws Error that says who is missing, duplicate, or gone.
  static std::unique_ptr<Bootstrap> join(const JoinArguments& arguments);
  static std::unique_ptr<Bootstrap> regroup(const RegroupArguments& arguments);
  /// For ranks of this communicator that are to regroup: `points` of all its ranks, and what sentences call them.
  std::shared_ptr<RegroupDesk> open_desk(std::vector<MeetingPoint> points,
                                         std::function<std::string(int rank)> name_of) const;

  /// Without a shutdown() before, the others take it as this rank's failure. Never blocks for long.
  ~Bootstrap();
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  int rank() const;
  int size() const;
  /// For RegroupArguments::meet_at.
  MeetingPoint meeting_point() const;
  /// For RegroupArguments::scope.
  std::uint32_t scope() const;
  /// Known to this communicator's ranks only: authenticate what else the ranks connect with keys derived from it.
  const Secret& secret() const;

  /// `all` receives size() blocks of `bytes` bytes in rank order. A rank with another size fails it everywhere.
  void all_gather(const void* mine, void* all, std::size_t bytes, const Purpose& purpose = {});
  /// Blocks of any size, in rank order.
  std::vector<Bytes> all_gather_variable(std::span<const std::byte> mine);
  /// `data` is read on `root` and written elsewhere. Returns on the root without waiting for the others.
  void broadcast(void* data, std::size_t bytes, int root);
  void barrier();
  /// The last barrier before shutdown(). `in_a_hurry`: fails after two seconds if a rank's process is stopped.
  /// `goes_alone`, if there is one, is asked now and then, unless another rank has revoked the communicator: whether
  /// not to wait any longer. Then ranks that are lost or have departed are no failure. False if it was not waited for
  /// all.
  bool last_barrier(bool in_a_hurry, const std::function<bool()>& goes_alone);
  /// Who knows what other ranks do. Not while operations run; it must not use this object.
  void ask_for_doings(DoingsOf doings);
  /// Who knows which ranks are stopped: those hold up ranks that wait for others, too. The same holds.
  void ask_for_stopped(WhoIsStopped stopped);
  /// Of all ranks, which sentences name from now on.
  void know_devices(std::span<const int> devices);
  /// How long an operation may wait for the others, from the next one on; 0: as long as joining may take, or
  /// for ever if it compares calls. Any thread.
  void set_operation_timeout(std::chrono::milliseconds timeout);

  template <typename T>
  std::vector<T> all_gather_value(const T& mine, const Purpose& purpose = {}) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<std::size_t>(size()));
    all_gather(&mine, all.data(), sizeof(T), purpose);
    return all;
  }

  /// Collective over all ranks of this communicator. Each passes the ranks (of this communicator) of its own new one,
  /// in the new order, and its own place in there; all members pass the same list. A rank that is to be in none passes
  /// an empty list and gets null. The child has a secret of its own and lives independently of its parent.
  std::unique_ptr<Bootstrap> make_child(const std::vector<int>& members, int my_index,
                                        const std::atomic<bool>* abort_flag = nullptr);

  /// `callback` hears of the first failure; also if there was one already. That ranks are lost or have departed is none
  /// before `needs_others` says that this one needs one of them. Replaces earlier ones; null: none. When it returns,
  /// what it replaced is not running; so neither must call it.
  void watch(FailureCallback callback, NeedsOthers needs_others = {});
  /// The first failure; if there is none, who was the first to be lost or to depart.
  std::optional<Failure> failure() const;
  /// Those that were lost or have departed, in the order in which this rank heard of them.
  std::vector<Failure> gone() const;
  /// Whether the rank is one of these.
  bool knows_gone(int rank) const;
  /// Whether words of the other rank come, as far as is known: they go by way of others, of which one may be gone.
  bool hears_of(int rank) const;
  /// Whether nothing worse has happened than that other ranks are lost or have departed, and that has.
  bool has_gone_rank() const;
  /// Tells all ranks, this one's callback included; the first failure of a communicator counts, later ones are dropped,
  /// but partings before it count besides.
  void report_failure(const Failure& failure);
  /// The same where there is no memory to say what is wrong, and takes none.
  void report_lack_of_memory() noexcept;

  /// Has others who wait for this rank in the last barrier, to which it has not come yet, say whom it waits for itself:
  /// these ranks of its process; "": nobody any more.
  void tell_of_awaited(const std::string& ranks);

  /// Tells all ranks that this one has revoked the communicator. That is no failure, but who has not revoked it is not
  /// to wait for this rank in a split or when it leaves.
  void report_revoke();

  /// Says goodbye: from now on the others do not take the loss of this rank for a failure. Local, does not wait for
  /// them; does nothing when called again. No callback runs afterwards. Operations throw from then on.
  void shutdown();

 private:
  explicit Bootstrap(std::shared_ptr<Tree> tree);
  static std::unique_ptr<Bootstrap> over(const std::shared_ptr<Tree>& tree);

  std::shared_ptr<Tree> tree_;
};

}  // namespace nitinol
