// What a communicator's ranks exchange, over their tree.
#include "bootstrap/bootstrap.h"

#include <new>

#include "base/error.h"
#include "bootstrap/child.h"
#include "bootstrap/connect.h"
#include "bootstrap/exchange.h"
#include "bootstrap/join.h"
#include "bootstrap/root.h"
#include "bootstrap/tree.h"

namespace nitinol {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// How long rank 0 waits until its root is through where that has a fixed address.
constexpr auto kPatienceWithRoot = 3s;

}  // namespace

Bootstrap::Bootstrap(std::shared_ptr<Tree> tree) : tree_(std::move(tree)) {}

Bootstrap::~Bootstrap() { tree_->watch(nullptr); }

std::unique_ptr<Bootstrap> Bootstrap::over(const std::shared_ptr<Tree>& tree) {
  try {
    return std::unique_ptr<Bootstrap>(new Bootstrap(tree));
  } catch (const std::bad_alloc&) {
    tree->report_lack_of_memory();
    throw;
  }
}

std::unique_ptr<Bootstrap> Bootstrap::join(const JoinArguments& arguments) {
  std::unique_ptr<Bootstrap> bootstrap = over(join_tree(arguments));
  const UniqueId& id = arguments.ids.front();
  if (id.from_address && arguments.rank == 0) {
    // The address may serve the next communicator as soon as this root is through.
    const Deadline deadline = Clock::now() + kPatienceWithRoot;
    while (has_root(id.secret) && Clock::now() < deadline) sleep_interruptibly(1ms, deadline, {});
  }
  return bootstrap;
}

std::unique_ptr<Bootstrap> Bootstrap::make_child(const std::vector<int>& members, int my_index,
                                                 const std::atomic<bool>* abort_flag) {
  const auto tree = make_child_tree(*tree_, members, my_index, abort_flag);
  return tree ? over(tree) : nullptr;
}

int Bootstrap::rank() const { return tree_->rank(); }
int Bootstrap::size() const { return tree_->nranks(); }
const Secret& Bootstrap::secret() const { return tree_->secret(); }

void Bootstrap::all_gather(const void* mine, void* all, std::size_t bytes, const Purpose& purpose) {
  exchange_all_gather(*tree_, mine, all, bytes, purpose);
}
std::vector<Bytes> Bootstrap::all_gather_variable(std::span<const std::byte> mine) {
  return exchange_all_gather_variable(*tree_, mine);
}
void Bootstrap::broadcast(void* data, std::size_t bytes, int root) {
  exchange_broadcast(*tree_, {static_cast<std::byte*>(data), bytes}, root,
                     tree_->operation_deadline(Operation::kBroadcast));
}
void Bootstrap::barrier() { exchange_barrier(*tree_, tree_->operation_deadline(Operation::kBarrier)); }
bool Bootstrap::last_barrier(bool in_a_hurry, const std::function<bool()>& goes_alone) {
  struct GoesAlone {};
  const Interrupt interrupt = [&] {
    if (goes_alone && !tree_->was_revoked() && goes_alone()) throw GoesAlone();
  };
  if (in_a_hurry) tree_->hurry();
  try {
    exchange_barrier(*tree_, tree_->operation_deadline(Operation::kLeave), Operation::kLeave, interrupt);
  } catch (const GoesAlone&) {
    return false;
  } catch (const Error&) {
    if (!goes_alone || !has_gone_rank()) throw;
    return false;
  }
  return !tree_->found_somebody_gone();
}
void Bootstrap::ask_for_doings(DoingsOf doings) { tree_->ask_for_doings(std::move(doings)); }
void Bootstrap::ask_for_stopped(WhoIsStopped stopped) { tree_->ask_for_stopped(std::move(stopped)); }
void Bootstrap::know_devices(std::span<const int> devices) { tree_->know_devices(devices); }
void Bootstrap::set_operation_timeout(std::chrono::milliseconds timeout) { tree_->set_operation_timeout(timeout); }

void Bootstrap::watch(FailureCallback callback, NeedsOthers needs_others) {
  tree_->watch(std::move(callback), std::move(needs_others));
}
std::optional<Failure> Bootstrap::failure() const { return tree_->failure(); }
std::vector<Failure> Bootstrap::gone() const { return tree_->gone(); }

bool Bootstrap::knows_gone(int rank) const {
  const std::vector<Failure> all = gone();
  return std::any_of(all.begin(), all.end(), [rank](const Failure& each) { return each.rank == rank; });
}
bool Bootstrap::hears_of(int rank) const { return tree_->hears_of(rank); }
bool Bootstrap::has_gone_rank() const { return tree_->has_gone_rank(); }
void Bootstrap::report_failure(const Failure& failure) { tree_->report(failure); }
void Bootstrap::report_lack_of_memory() noexcept { tree_->report_lack_of_memory(); }
void Bootstrap::tell_of_awaited(const std::string& ranks) { tree_->tell_of_awaited(ranks); }
void Bootstrap::report_revoke() { tree_->report_revoke(); }
void Bootstrap::shutdown() { tree_->shutdown(); }

}  // namespace nitinol
