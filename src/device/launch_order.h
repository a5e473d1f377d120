// Kernels of a process's communicators begin on a GPU in the order in which they were launched, where they could keep
// each other from it otherwise: one has begun in part and waits for a peer, another has the rest of the GPU and waits
// for a peer where it is the other way round. Later ones wait until earlier ones have begun with all CTAs, not until
// they are done. CUDA calls that its best effort: kernels in streams of higher priority may still come first.
//
// Small kernels do not wait for each other, as there is room for several and programs count on it: only large ones for
// all others, and all others for large ones. In graphs they do not take part.
#pragma once

#include <memory>
#include <vector>

#include "device/event.h"

namespace nitinol {

enum class LaunchOrdering {
  kNone,
  kWhereNeeded,  ///< once the largest kernels of all communicators have more CTAs together than there is room for
  kAlways,       ///< and as if all were large
};

/// A communicator's part in it: one for each rank, whose calls come from one thread at a time.
class LaunchOrder {
 public:
  struct Options {
    int device = 0;
    int few = 0;   ///< CTAs that a small kernel has at most
    int room = 0;  ///< so many CTAs fit, whatever they are: one on each multiprocessor
    LaunchOrdering ordering = LaunchOrdering::kWhereNeeded;
    bool races_fail = false;  ///< launches by two threads at the same time are errors
  };
  explicit LaunchOrder(const Options& options);
  ~LaunchOrder();
  LaunchOrder(const LaunchOrder&) = delete;
  LaunchOrder& operator=(const LaunchOrder&) = delete;

  /// A launch: kernels in a stream, or in several that run beside each other. The GPU is the current device.
  class Turn {
   public:
    /// Throws Error(ncclInvalidUsage) if another thread has begun one, where such races fail.
    explicit Turn(LaunchOrder& order);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    /// All has been launched: others wait for it from now on. Without that, nobody does.
    void done() { order_.publish(); }

   private:
    LaunchOrder& order_;
  };

  /// The multiprocessors that a stream's kernels may use: all, or, in a green context, some that are not known here.
  enum class Room { kGpu, kPart };
  /// During a turn, before each kernel: the stream waits until what the kernel must not overtake has begun. What is
  /// returned is to be recorded when all CTAs of the kernel have begun; null: nothing is. Throws Error.
  cudaEvent_t next(cudaStream_t stream, int ctas, Room room = Room::kGpu);

 private:
  /// Where a kernel was launched: the stream's id, or its handle where that will do, which is no such number.
  using Place = unsigned long long;
  /// The last kernel of a launch in one of its streams.
  struct Kernel {
    std::shared_ptr<Event> begun;  ///< others may be about to wait for it when its communicator goes
    Place place = 0;
  };
  /// A communicator's last one with large kernels, or without.
  struct Launch {
    const LaunchOrder* whose = nullptr;
    bool large = false;
    unsigned long long number = 0;
    bool pending = false;  ///< nobody who comes later waits for it yet
    std::vector<Kernel> kernels{};
  };
  /// One of this turn's streams, which waits for so many of the awaited by now.
  struct Used {
    Kernel kernel;
    size_t waited = 0;
  };
  struct Chain;
  struct Gpu;
  Place place_of(cudaStream_t stream, bool alone) const;
  bool awaits(const Launch& one) const;
  void find_awaited(const Chain& chain);
  Used& enter(Place place, const Launch& last);
  /// What next() returns; `before` gets the events that the stream has still to wait for.
  cudaEvent_t find_place(cudaStream_t stream, int ctas, Room room, std::vector<std::shared_ptr<Event>>& before);
  void publish();

  const Options options_;
  Gpu* const gpu_;  ///< null: launches are not put in order
  int most_ctas_ = 0;
  unsigned long long launches_ = 0;
  // Of this turn:
  unsigned long long capture_ = 0;
  bool large_ = false;
  std::vector<Launch> awaited_;
  std::vector<Used> used_;
};

}  // namespace nitinol
