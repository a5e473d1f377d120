// One rank's memory for communication, allocated queue set by queue set when first needed, and the directory through
// which ranks of one process find each other's.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "executor/call_board.h"
#include "executor/cuda/layout.h"
#include "transport/region.h"

namespace nitinol::cuda {

using Layouts = std::array<QueueLayout, kQueues>;

class Arena {
 public:
  /// `devices`: those of this process that reach into the memory.
  Arena(p2p::Place place, int device, std::vector<int> devices, const Layouts& layouts)
      : place_(place), device_(device), devices_(std::move(devices)), layouts_(layouts) {}

  /// Allocates at the first call for a queue set. Any thread; waits for no other rank.
  std::shared_ptr<p2p::Region> region(Queue queue);

  /// The communicator's call board, if this rank made it; before others can find the arena.
  void keep_board(std::shared_ptr<const CallBoard> board) { board_ = std::move(board); }
  const std::shared_ptr<const CallBoard>& board() const { return board_; }

 private:
  p2p::Place place_;
  int device_;
  std::vector<int> devices_;
  Layouts layouts_;
  std::mutex mutex_;
  std::array<std::shared_ptr<p2p::Region>, kQueues> regions_;
  std::shared_ptr<const CallBoard> board_;
};

/// Communicator and rank.
using ArenaName = std::pair<std::array<uint64_t, 2>, int>;

void register_arena(const ArenaName& name, const std::shared_ptr<Arena>& arena);
void unregister_arena(const ArenaName& name);
/// Once all ranks have registered theirs. Throws Error(ncclRemoteError) if the rank has left since.
std::shared_ptr<Arena> find_arena(const ArenaName& name);

}  // namespace nitinol::cuda
