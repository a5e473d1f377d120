// Whom to ask next, and what to make of the answers.
#include "bootstrap/other_roots.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/host.h"

namespace nitinol {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kEvery = 500ms;
constexpr int kAtATime = 8;
constexpr auto kAnswerPatience = 200ms;
// So long may word of why a process ended be on its way.
constexpr std::chrono::milliseconds kPatienceNear = 1s;
constexpr std::chrono::milliseconds kPatienceElsewhere = 5s;

}  // namespace

std::chrono::milliseconds patience_with_root(bool is_near) { return is_near ? kPatienceNear : kPatienceElsewhere; }

bool is_near(const UniqueId& id) { return id.network != 0 && id.network == network_identity(); }

std::string fate_of_maker(const UniqueId& id) {
  if (!is_near(id)) return "";
  return fate_of({.host = this_process().host, .pid = id.maker, .pid_namespace = id.maker_namespace});
}

void fail_for_lost_root(const std::string& name, const std::string& detail) {
  throw RootGone(
      ncclRemoteError,
      formatted("{} is gone, nobody listens there any more: the process that made the id must stay until the "
                "communicator exists, and an id serves for one{}",
                name, detail));
}

OtherRoots::OtherRoots(Arguments arguments)
    : arguments_(std::move(arguments)),
      block_(arguments_.shape.block_of(arguments_.rank)),
      next_time_(Clock::now() + kEvery) {}

void OtherRoots::ask_now_and_then(const Interrupt& interrupt) {
  if (arguments_.ids.size() < 2 || Clock::now() < next_time_) return;
  for (const int block : next()) ask(block, interrupt);
  next_time_ = Clock::now() + kEvery;
}

// A few in turn; but always those that bring somebody whom this rank waits for, and those that seem to be gone.
std::set<int> OtherRoots::next() {
  const int ids = static_cast<int>(arguments_.ids.size());
  const int others = ids - 1;
  std::set<int> blocks;
  for (const int rank : arguments_.awaited()) blocks.insert(arguments_.shape.block_of(rank));
  for (const auto& [block, refusals] : refusing_) blocks.insert(block);
  for (int i = 0; i < std::min(others, kAtATime); ++i) blocks.insert((block_ + 1 + asked_++ % others) % ids);
  return blocks;
}

void OtherRoots::ask(int block, const Interrupt& interrupt) {
  bool refused = false;
  const auto link = arguments_.reach(block, Clock::now() + kAnswerPatience, interrupt, &refused);
  if (!link) return on_unreached(block, refused);
  reached_.insert(block);
  refusing_.erase(block);
  link->send(FrameType::kCompare, encode(arguments_.registration(block)));
  const auto failure = link->wait_for_failure(Clock::now() + kAnswerPatience);
  if (failure) throw Error(failure->result, failure->sentence);
}

// Not every rank can reach every root, nor need it: what refuses here may be another host, or a packet filter. A root
// has listened since before its id was known, so within one system, or where it did answer, that is its end.
void OtherRoots::on_unreached(int block, bool refused) {
  const UniqueId& id = arguments_.ids[static_cast<std::size_t>(block)];
  const bool can_tell = id.maker != 0 && (is_near(id) || reached_.contains(block));
  if (!refused || !can_tell) {
    refusing_.erase(block);
    return;
  }
  const auto refusals = refusing_.try_emplace(block, kPatienceNear).first;
  if (!refusals->second.are_steady(true) || may_end_) return;
  std::string detail;
  for (const int rank : arguments_.awaited()) {
    if (arguments_.shape.block_of(rank) != block) continue;
    detail = formatted("; rank {} has not come to rank {}", rank, arguments_.rank);
  }
  fail_for_lost_root(name_of_root(id, arguments_.shape, block), detail);
}

}  // namespace nitinol
