// The ranks of one process that leave a communicator together: who has come, and who will not.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace nitinol {

class Communicator;

struct Gathering {
  struct Leaver {
    int rank;
    std::shared_ptr<Communicator> communicator;
    bool tear_down = false;
  };

  explicit Gathering(size_t all) : ranks(all) {
    leavers.reserve(ranks);
    gone.reserve(ranks);
  }

  /// The rank has come. False: it has been left out, as by a thread that aborted it while it was on its way here, and
  /// counts no more. Takes no memory.
  bool add(Leaver leaver);
  /// The rank will not come. False: the others have set off. Takes no memory.
  bool leave_out(int rank);
  /// True if all have come who will: then they are on their way, which whoever hears it takes care of.
  bool sets_off();
  /// The ranks that nobody of the process waits for.
  std::vector<int> done_with() const;

  const size_t ranks;  ///< of the process

  std::mutex mutex;  // guards what follows, and is held where it is changed
  std::vector<Leaver> leavers;
  std::vector<int> gone;    ///< ranks that were aborted: nobody waits for them
  bool on_its_way = false;  ///< it is complete: the leavers stay the same until they have left
};

}  // namespace nitinol
