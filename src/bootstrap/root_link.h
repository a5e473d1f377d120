// A rank's connection to a root, read by the network thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "bootstrap/connect.h"
#include "bootstrap/connection.h"
#include "bootstrap/messages.h"
#include "bootstrap/tree_shape.h"
#include "bootstrap/unique_id.h"

namespace nitinol {

/// A root is not there any more, so that its ranks cannot join.
class RootGone : public Error {
 public:
  using Error::Error;
};

/// For sentences: of the `block`-th id of as many as the shape has blocks.
std::string name_of_root(const UniqueId& id, const TreeShape& shape, int block);

class RootLink {
 public:
  /// For sentences: `root_name`, and what is to be said of a root that does not answer.
  RootLink(UniqueFd fd, std::string root_name, std::function<std::string()> fate = {});
  ~RootLink() { connection_->close_after_flush(); }
  RootLink(const RootLink&) = delete;
  RootLink& operator=(const RootLink&) = delete;

  void send(FrameType type, std::vector<std::byte> payload = {});

  /// Throws what the root says is wrong, or that it is gone.
  void check();

  bool is_closed() const;

  /// What the root says is wrong; nothing if it has not said so in time, or is gone.
  std::optional<Failure> wait_for_failure(Deadline deadline);

  /// The parent; nothing if the root is busy with an earlier communicator of this address. The log tells once of a wait
  /// that is longer than `warn_after`; 0: never.
  std::optional<ParentReply> wait_for_parent(Deadline deadline, const Interrupt& interrupt,
                                             std::chrono::milliseconds warn_after = {});

 private:
  struct Inbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Frame> frames;
    std::optional<Ending> closed;
  };

  void tell_of_silence(std::chrono::milliseconds waited) const;
  std::optional<Failure> failure_locked() const;
  void check_locked() const;

  std::shared_ptr<Inbox> inbox_;
  std::string root_name_;
  std::function<std::string()> fate_;
  std::shared_ptr<Connection> connection_;
};

}  // namespace nitinol
