// The rank's end of a connection to a root.
#include "bootstrap/root_link.h"

#include <algorithm>
#include <utility>

#include "bootstrap/long_wait.h"
#include "bootstrap/network.h"

namespace nitinol {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenInterrupts{100};

}  // namespace

std::string name_of_root(const UniqueId& id, const TreeShape& shape, int block) {
  const bool is_only = shape.blocks() == 1;
  const std::string number = is_only ? "the unique id" : formatted("unique id {} of {}", block + 1, shape.blocks());
  const std::string process = id.maker == 0 ? "" : formatted(" in pid {}", id.maker);
  const int first = shape.block_begin(block);
  const int last = shape.block_end(block) - 1;
  const std::string ranks = is_only         ? ""
                            : first == last ? formatted(" (of rank {})", first)
                                            : formatted(" (of ranks {} to {})", first, last);
  return formatted("the root of {} at {}{}{}", number, id.root.to_string(), process, ranks);
}

RootLink::RootLink(UniqueFd fd, std::string root_name, std::function<std::string()> fate)
    : inbox_(std::make_shared<Inbox>()), root_name_(std::move(root_name)), fate_(std::move(fate)) {
  Connection::Events events;
  events.on_frame = [inbox = inbox_](Frame frame) {
    const std::lock_guard lock(inbox->mutex);
    inbox->frames.push_back(std::move(frame));
    inbox->changed.notify_all();
  };
  events.on_closed = [inbox = inbox_](const Ending& ending) {
    const std::lock_guard lock(inbox->mutex);
    inbox->closed = ending;
    inbox->changed.notify_all();
  };
  connection_ = Connection::start(std::move(fd), Network::instance().reactor(), std::move(events));
}

void RootLink::send(FrameType type, std::vector<std::byte> payload) {
  connection_->send(control_frame(type, std::move(payload)));
}

void RootLink::check() {
  const std::lock_guard lock(inbox_->mutex);
  check_locked();
}

bool RootLink::is_closed() const {
  const std::lock_guard lock(inbox_->mutex);
  return inbox_->closed.has_value();
}

std::optional<Failure> RootLink::wait_for_failure(Deadline deadline) {
  std::unique_lock lock(inbox_->mutex);
  while (true) {
    if (auto failure = failure_locked()) return failure;
    if (inbox_->closed || Clock::now() >= deadline) return std::nullopt;
    inbox_->changed.wait_until(lock, deadline);
  }
}

// It answers when all have come. Of those who have not its own process's log tells, unless that is stopped.
void RootLink::tell_of_silence(std::chrono::milliseconds waited) const {
  tell_of_wait([&] {
    return formatted(
        "still waiting (NITINOL_INIT_TIMEOUT ends such waits): {} has not answered within {}; it does "
        "when all ranks have come, and its process tells in its log which have not{}",
        root_name_, seconds_text(waited), fate_ ? fate_() : "");
  });
}

std::optional<ParentReply> RootLink::wait_for_parent(Deadline deadline, const Interrupt& interrupt,
                                                     std::chrono::milliseconds warn_after) {
  Deadline due = warn_after.count() == 0 ? Deadline::max() : Clock::now() + warn_after;
  std::unique_lock lock(inbox_->mutex);
  while (true) {
    check_locked();
    if (!inbox_->frames.empty()) break;
    lock.unlock();
    interrupt();
    if (Clock::now() >= due) {
      due = Deadline::max();
      tell_of_silence(warn_after);
    }
    if (Clock::now() >= deadline) {
      fail(ncclRemoteError, "{} did not answer in time (NITINOL_INIT_TIMEOUT){}", root_name_, fate_ ? fate_() : "");
    }
    lock.lock();
    if (inbox_->frames.empty() && !inbox_->closed)
      inbox_->changed.wait_until(lock, std::min(deadline, Clock::now() + kBetweenInterrupts));
  }
  const Frame frame = std::move(inbox_->frames.front());
  inbox_->frames.pop_front();
  if (frame.type == FrameType::kGoodbye) return std::nullopt;
  const auto reply = frame.type == FrameType::kParent ? decode_parent_reply(frame.payload) : std::nullopt;
  if (!reply) fail(ncclSystemError, "{} sent a message that is none", root_name_);
  return reply;
}

std::optional<Failure> RootLink::failure_locked() const {
  for (const Frame& frame : inbox_->frames) {
    if (frame.type != FrameType::kError) continue;
    if (auto failure = decode_failure(frame.payload)) return failure;
  }
  return std::nullopt;
}

void RootLink::check_locked() const {
  if (const auto failure = failure_locked()) throw Error(failure->result, failure->sentence);
  if (!inbox_->closed || !inbox_->frames.empty()) return;
  if (inbox_->closed->closed_here) fail(ncclSystemError, "lost {}{}", root_name_, inbox_->closed->reason);
  throw RootGone(ncclRemoteError, formatted("{} went away while the communicator was being created{}: the process that "
                                            "made the id must stay until the communicator exists",
                                            root_name_, inbox_->closed->reason));
}

}  // namespace nitinol
