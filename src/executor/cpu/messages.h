// Sends and receives that all progress at the same time: whichever can move a piece next does.
#pragma once

#include <cstddef>
#include <vector>

#include "executor/cpu/rank.h"

namespace nitinol::cpu {

/// The messages of one launch, sorted into queues: one for each peer and direction. May run many times.
class Messages {
 public:
  /// Takes the launch's messages; room is kept from launch to launch.
  void assign(const std::vector<MessageWork>& messages, const Rank& rank);
  bool empty() const { return messages_.empty(); }

  /// Carries them out. The rank's lock is held.
  void run(Rank& rank);

 private:
  struct Queue {
    int peer = 0;
    MessageWork::Direction direction = MessageWork::Direction::kSend;
    size_t first = 0;  ///< in messages_
    size_t count = 0;
    // How far a run has come:
    size_t next = 0;
    size_t offset = 0;  ///< in the message `next`
  };

  bool copy_to_self(Rank& rank);
  bool ready(Rank& rank, const Queue& queue) const;
  bool advance(Rank& rank, Queue& queue);
  MessageSignature present(Rank& rank, const Queue& queue) const;
  bool take_piece(Rank& rank, const Queue& queue, std::byte* into, size_t bytes);
  void put_piece(Rank& rank, const Queue& queue, const std::byte* from, size_t bytes);

  std::vector<MessageWork> messages_;  ///< those of one queue stand together, in the order given
  std::vector<Queue> queues_;
  std::vector<size_t> active_;  ///< indices of queues that are not done
  size_t self_sends_ = 0;       ///< messages_ begins with the sends to the rank itself,
  size_t self_receives_ = 0;    ///< then come the receives from itself
};

}  // namespace nitinol::cpu
