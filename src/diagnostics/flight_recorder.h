// The last operations of one rank, for when something goes wrong: cheap to note, told as text, or as JSON that also
// opens in Chrome's and Perfetto's trace viewers and that tools/trace.py merges over ranks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/operation_times.h"
#include "model/plan.h"
#include "model/shared_log.h"
#include "model/signature.h"

namespace nitinol {

class FlightRecorder {
 public:
  static constexpr size_t kKept = 256;

  /// Notes what is about to be put into a stream. By one thread at a time, as calls on one communicator are made; what
  /// several note at once may be lost.
  void note(const Launch& launch, const void* stream);

  /// How many collectives were noted.
  uint64_t issued() const;
  struct Issued {
    std::string text;
    int64_t enqueued = 0;  ///< nanoseconds since the epoch
  };
  /// The one that was noted last; empty if none was.
  Issued last_issued(const TimeScale& scale) const;

  struct About {
    int rank = 0;
    int ranks = 1;
    std::string host;
    int pid = 0;
    int device = 0;
    std::string communicator;  ///< equal on all its ranks
    std::string failure;       ///< empty if it is well
    uint64_t begun = 0;        ///< the number of the last collective that the device has begun
    uint64_t ended = 0;        ///< and ended
    bool progress_known = false;
    TimeScale scale{};                        ///< tells all stamps of one dump
    std::vector<OperationTimes::Run> runs{};  ///< when collectives began and ended, as far as that is known
  };
  std::string json(const About& about) const;
  std::string text(const About& about) const;

 private:
  struct Entry {
    Signature signature;  ///< sequence 0: a group of sends and receives
    Plan plan;
    uint32_t messages = 0;
    const void* stream = nullptr;
    int64_t enqueued = 0;  ///< a TimeStamp; nanoseconds since the epoch once it is told
  };
  /// An entry with what else is known of it.
  struct Told {
    Entry entry;
    const char* state = "issued";
    int64_t begun = 0;  ///< 0: not, or not known
    int64_t ended = 0;
    std::string name() const;
  };
  using Log = SharedLog<kKept, 8>;
  static Log::Words packed(const Entry& entry);
  static Entry unpacked(const Log::Words& words);

  void keep(const Entry& entry) { log_.add(log_.last() + 1, packed(entry)); }
  /// Oldest first.
  std::vector<Entry> kept() const;
  std::vector<Told> entries(const About& about) const;

  std::atomic<uint64_t> collectives_{0};
  Log log_;
};

}  // namespace nitinol
