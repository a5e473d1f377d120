#include "comm/create.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/listed.h"
#include "base/log.h"
#include "base/settings.h"
#include "bootstrap/absence.h"
#include "bootstrap/messages.h"
#include "bootstrap/unique_id.h"
#include "comm/communicator.h"
#include "comm/group.h"
#include "comm/handle.h"
#include "device/guards.h"
#include "diagnostics/ras/ras.h"

namespace nitinol {
namespace {

std::vector<UniqueId> parse_ids(std::span<const ncclUniqueId> bytes) {
  std::vector<UniqueId> ids;
  for (const ncclUniqueId& id : bytes) ids.push_back(parse_unique_id(id));
  return ids;
}

/// Those of NCCL_COMM_ID are the same anyway.
void require_distinct(std::span<const ncclUniqueId> bytes, const char* function) {
  std::vector<size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto compare = [&](size_t a, size_t b) { return std::memcmp(&bytes[a], &bytes[b], sizeof(ncclUniqueId)); };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return compare(a, b) < 0; });
  const auto twice =
      std::adjacent_find(order.begin(), order.end(), [&](size_t a, size_t b) { return compare(a, b) == 0; });
  if (twice == order.end()) return;
  fail(ncclInvalidArgument, "{} : ids {} and {} of the list are the same", function, std::min(twice[0], twice[1]),
       std::max(twice[0], twice[1]));
}

void require_cuda() {
  const cudaError_t status = cudaFree(nullptr);
  const bool perhaps_forked = status == cudaErrorInitializationError;
  cuda_check(status, perhaps_forked
                         ? "CUDA is not usable (nor is it ever in a process forked after its use): cudaFree(0)"
                         : "CUDA is not usable: cudaFree(0)");
}

/// What a rank tells the others when a communicator is split.
struct SplitChoice {
  int color = 0;
  int key = 0;
};

/// The ranks of the parent that chose the same color, ordered by key and then rank.
std::vector<int> members_of(const std::vector<SplitChoice>& choices, int color) {
  std::vector<int> members;
  for (size_t rank = 0; rank < choices.size(); ++rank) {
    if (choices[rank].color == color) members.push_back(static_cast<int>(rank));
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return choices[static_cast<size_t>(a)].key < choices[static_cast<size_t>(b)].key;
  });
  return members;
}

std::vector<SplitChoice> gather_choices(Communicator& parent, SplitChoice mine) {
  std::vector<int> all(static_cast<size_t>(parent.ranks()));
  std::iota(all.begin(), all.end(), 0);
  const Communicator::HostWait wait(parent, HostCall::kSplit, std::move(all));
  return parent.bootstrap().all_gather_value(mine, {.operation = Operation::kSplit});
}

/// What goes wrong is told in the numbers of the new ranks, and not only to them.
void set_up_child(Communicator& child, std::unique_ptr<Bootstrap> bootstrap, const std::vector<int>& members) {
  try {
    child.set_up(std::move(bootstrap));
  } catch (const Error& error) {
    fail(error.code(), "in the new communicator, of ranks {} of the old one: {}", listed(members), error.what());
  }
}

/// The collective part of a split; `child` is null for a rank that joins no new communicator.
void split_now(Communicator& parent, SplitChoice mine, Communicator* child) {
  const auto choices = gather_choices(parent, mine);
  std::vector<int> members;
  if (child != nullptr) members = members_of(choices, mine.color);
  const auto place = std::find(members.begin(), members.end(), parent.rank());
  const int rank = place == members.end() ? -1 : static_cast<int>(place - members.begin());
  auto bootstrap = parent.bootstrap().make_child(members, rank, child != nullptr ? child->abort_flag() : nullptr);
  if (child == nullptr) return;
  child->place(rank, static_cast<int>(members.size()));
  set_up_child(*child, std::move(bootstrap), members);
}

void fail_split(Communicator& parent, const std::exception& thrown) noexcept {
  if (code_of(thrown) != ncclRemoteError) parent.tell_of_failed_split(thrown);
  try {
    const Error error = as_error(thrown);
    // Whoever aborts the parent because of this must not seem to be the cause.
    const bool elsewhere = error.code() == ncclRemoteError;  // then the sentence says where
    if (elsewhere) parent.bootstrap().report_failure({parent.rank(), error.code(), error.what()});
    if (error.code() != ncclInvalidArgument) parent.fail_with(error.code(), error.what(), !elsewhere);
  } catch (const std::exception& lack) {
    parent.fail_because(lack);
  }
}

}  // namespace

namespace {

ncclComm_t reserve_handle_for(Communicator& made) {
  const ncclComm_t reserved = reserve_handle();
  made.note_handle(reserved);
  return reserved;
}

void hand_over_now(Job& job, std::shared_ptr<Communicator> made, ncclComm_t* handle) {
  *handle = use_handle(reserve_handle_for(*made), made);
  job.made = std::move(made);
}

}  // namespace

void hand_over(Job& job, std::shared_ptr<Communicator> made, ncclComm_t* handle) {
  if (!job.communicator->config().blocking) return hand_over_now(job, std::move(made), handle);
  const ncclComm_t reserved = reserve_handle_for(*made);
  job.finished = [made = std::move(made), reserved, handle](bool succeeded) {
    if (succeeded) {
      *handle = use_handle(reserved, made);
    } else {
      made->tear_down();
      use_handle(reserved, nullptr);
    }
  };
}

ncclUniqueId create_id() { return serialise(make_unique_id(bootstrap_options())); }

namespace {

void record_creation(ncclComm_t* handle, int ranks, std::span<const ncclUniqueId> ids, int rank,
                     const ncclConfig_t* config, const char* function) {
  int device = 0;
  require_cuda();
  cuda_check(cudaGetDevice(&device), "cudaGetDevice");
  note_device_of_thread(device);
  if (handle == nullptr) fail(ncclInvalidArgument, "{} : comm argument is NULL", function);
  if (ranks < 1 || ranks > kMostRanks) {
    fail(ncclInvalidArgument, "{} : invalid number of ranks {}", function, ranks);
  }
  if (rank < 0 || rank >= ranks) fail(ncclInvalidArgument, "{} : invalid rank {} of {}", function, rank, ranks);
  if (ids.empty() || ids.size() > static_cast<size_t>(ranks)) {
    fail(ncclInvalidArgument, "{} : {} ids for {} ranks; there must be 1 to one per rank", function, ids.size(), ranks);
  }
  log_version();
  log_call("{}(comm {}, nranks {}, rank {}, {} ids, device {})", function, static_cast<void*>(handle), ranks, rank,
           ids.size(), device);
  warn_about_unknown_variables();
  ras::watch_dump_signal();
  const auto parsed = std::make_shared<const std::vector<UniqueId>>(parse_ids(ids));
  if (!parsed->front().from_address) require_distinct(ids, function);
  auto communicator = std::make_shared<Communicator>(device, read_config(config, Config{}), function);
  group::require_same_blocking(communicator->config(), function);
  communicator->place(rank, ranks);
  Job job;
  job.communicator = communicator;
  job.run = [communicator, parsed] {
    try {
      communicator->set_up(*parsed);
    } catch (const std::exception& thrown) {
      communicator->fail_because(thrown);  // who has the handle may ask
      throw;
    }
  };
  job.dropped = [parsed, rank](const std::exception* why) {
    if (why != nullptr) report_absence(*parsed, rank, *why);
  };
  if (group::outlasts_the_call()) {
    hand_over_now(job, communicator, handle);
  } else {
    hand_over(job, communicator, handle);
  }
  group::add(std::move(job));
}

}  // namespace

void create(ncclComm_t* handle, int ranks, std::span<const ncclUniqueId> ids, int rank, const ncclConfig_t* config,
            const char* function) {
  try {
    record_creation(handle, ranks, ids, rank, config, function);
  } catch (const std::exception& thrown) {  // the others may be waiting for this rank
    report_absence(ids, rank, thrown);
    throw;
  }
}

namespace {

/// There are all or none.
void tear_down_all(ncclComm_t* handles, int count) {
  for (int i = 0; i < count; ++i) {
    const ncclComm_t handle = std::exchange(handles[i], nullptr);
    if (handle != nullptr) release_handle(handle, "ncclCommInitAll")->tear_down();
  }
}

/// Until all are made; throws Error if one is not, and then there is none.
void wait_for_all(ncclComm_t* handles, int count) {
  std::optional<Error> first;
  for (int i = 0; i < count; ++i) {
    Communicator& made = communicator_of(handles[i], "ncclCommInitAll");
    made.wait_for_background();
    const char* const failure = made.failure_sentence();
    if (made.state() != ncclSuccess && !first) first.emplace(made.state(), failure != nullptr ? failure : "");
  }
  if (!first) return;
  tear_down_all(handles, count);
  throw *first;
}

}  // namespace

void create_all(ncclComm_t* handles, int devices, const int* device_list) {
  if (handles == nullptr) fail(ncclInvalidArgument, "ncclCommInitAll : comms argument is NULL");
  int available = 0;
  cuda_check(cudaGetDeviceCount(&available), "cudaGetDeviceCount");
  if (devices < 0) fail(ncclInvalidArgument, "ncclCommInitAll : invalid number of devices {}", devices);
  if (devices == 0) return;
  for (int i = 0; i < devices; ++i) {
    const int device = device_list != nullptr ? device_list[i] : i;
    if (device < 0 || device >= available) {
      fail(ncclInvalidArgument, "ncclCommInitAll : invalid device {} (there are {})", device, available);
    }
  }
  std::fill_n(handles, devices, nullptr);
  const std::vector<ncclUniqueId> ids = {serialise(make_unique_id(bootstrap_options()))};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;
  group::start();  // inside another one that makes them at its end
  try {
    for (int i = 0; i < devices; ++i) {
      const DeviceGuard device(device_list != nullptr ? device_list[i] : i);
      create(&handles[i], devices, ids, i, &config, "ncclCommInitAll");
    }
  } catch (const std::exception&) {
    static_cast<void>(group::simulate());  // ends it
    tear_down_all(handles, devices);
    throw;
  }
  ncclResult_t ended = ncclSuccess;
  try {
    ended = group::end();
  } catch (const std::exception&) {
    tear_down_all(handles, devices);
    throw;
  }
  if (ended == ncclInProgress) wait_for_all(handles, devices);
}

namespace {

void run_split(Communicator& parent, SplitChoice mine, const std::shared_ptr<Communicator>& child) {
  const Communicator::Visit visit(parent);  // throws if the parent was aborted before this began
  const Communicator::Making making(parent, child);
  try {
    split_now(parent, mine, child.get());
  } catch (const std::exception& thrown) {
    fail_split(parent, thrown);
    throw;
  }
}

void record_split(const std::shared_ptr<Communicator>& parent, SplitChoice mine, ncclComm_t* handle,
                  const ncclConfig_t* config) {
  const bool shares = parent->config().split_share && !was_revoked(parent->phase());
  const Config child_config = read_child_config(config, parent->config(), shares);
  std::shared_ptr<Communicator> child;
  if (mine.color != NCCL_SPLIT_NOCOLOR) {
    child = std::make_shared<Communicator>(parent->device(), child_config, "ncclCommSplit");
    child->come_of(*parent);
  }
  Job job;
  job.communicator = parent;
  job.run = [parent, child, mine] {
    try {
      run_split(*parent, mine, child);
    } catch (const std::exception& thrown) {  // whoever polls the child is not to wait for it
      if (child) child->fail_because(thrown);
      throw;
    }
  };
  job.dropped = [parent](const std::exception* why) {
    if (why == nullptr) return;
    const Communicator::Visit visit(*parent);
    fail_split(*parent, *why);
  };
  if (child) hand_over(job, child, handle);
  group::add(std::move(job));
}

}  // namespace

void split(ncclComm_t parent_handle, int color, int key, ncclComm_t* handle, const ncclConfig_t* config) {
  const std::shared_ptr<Communicator> parent = shared_communicator_of(parent_handle, "ncclCommSplit");
  log_call("ncclCommSplit(comm {}, color {}, key {})", static_cast<void*>(parent_handle), color, key);
  static_cast<void>(group::require(*parent, Call::kSplit, "ncclCommSplit"));
  if (handle == nullptr) fail(ncclInvalidArgument, "ncclCommSplit : newcomm argument is NULL");
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
    fail(ncclInvalidArgument, "ncclCommSplit : invalid color {}; it must be non-negative or NCCL_SPLIT_NOCOLOR", color);
  }
  try {
    group::record_for(*parent, [&] { record_split(parent, {color, key}, handle, config); });
  } catch (const std::bad_alloc& lack) {
    parent->tell_of_failed_split(lack);
    throw;
  }
}

}  // namespace nitinol
