// Meeting again without those who are gone: the new rank 0 hosts a root where its process listens anyway.
#include <algorithm>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/regroup_desk.h"
#include "bootstrap/root.h"
#include "bootstrap/tree.h"
#include "bootstrap/wire.h"

namespace nitinol {
namespace {

constexpr std::chrono::seconds kRootPatience{1};

/// Rank 0 may come much later than the others: they try until the time for creating a communicator is over.
BootstrapOptions patient(BootstrapOptions options) {
  constexpr std::chrono::milliseconds kFirstSleep{5};
  options.retry_sleep = kFirstSleep;  // grows by as much each time
  options.retry_count = 1 + static_cast<int>(std::sqrt(2.0 * static_cast<double>(options.init_timeout / kFirstSleep)));
  return options;
}

}  // namespace

std::uint32_t Bootstrap::scope() const { return tree_->listener_address().scope; }

MeetingPoint Bootstrap::meeting_point() const {
  ByteWriter writer;
  tree_->listener_address().encode(writer);
  const auto bytes = writer.take();
  MeetingPoint point{};
  if (bytes.size() > point.size()) fail(ncclInternalError, "an address of {} bytes", bytes.size());
  std::transform(bytes.begin(), bytes.end(), point.begin(), [](std::byte b) { return static_cast<std::uint8_t>(b); });
  return point;
}

std::unique_ptr<Bootstrap> Bootstrap::regroup(const RegroupArguments& arguments) {
  ByteReader reader(std::as_bytes(std::span(arguments.meet_at)));
  UniqueId id;
  id.secret = arguments.secret;
  id.root = SocketAddress::decode(reader);
  if (!reader.ok()) fail(ncclInternalError, "rank {} of the ranks that meet again has no valid address", 0);
  if (id.root.is_link_local()) id.root.scope = arguments.scope;
  if (arguments.rank == 0) {
    start_root(id.secret, id.root,
               {.life = RootLife::kRepeatable,
                .patience_with_cause = arguments.options.patience_with_cause,
                .warn_after = arguments.options.warn_after,
                .names = arguments.names});
  }
  JoinArguments join_arguments;
  join_arguments.ids = {id};
  join_arguments.rank = arguments.rank;
  join_arguments.nranks = arguments.nranks;
  join_arguments.options = patient(arguments.options);
  join_arguments.abort_flag = arguments.abort_flag;
  join_arguments.interrupt = arguments.interrupt;
  join_arguments.root_name = formatted("{}, where the ranks meet,", arguments.names.front());
  try {
    return join(join_arguments);
  } catch (const Error& error) {
    // Who tries again with this secret is not to meet the root that has failed. Of a lack here it may not know.
    const bool leaves_root = arguments.rank == 0 && error.code() != ncclSystemError;
    const auto deadline = std::chrono::steady_clock::now() + kRootPatience;
    while (leaves_root && has_root(id.secret) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    throw;
  }
}

std::shared_ptr<RegroupDesk> Bootstrap::open_desk(std::vector<MeetingPoint> points,
                                                  std::function<std::string(int rank)> name_of) const {
  return RegroupDesk::open(
      {tree_->rank(), tree_->secret(), std::move(points), tree_->listener_address().scope, std::move(name_of)});
}

}  // namespace nitinol
