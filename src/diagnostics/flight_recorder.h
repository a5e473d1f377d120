// The last operations of one rank, for when something goes wrong: cheap to note, told as text, or as JSON that also
// opens in Chrome's and Perfetto's trace viewers and that nitinol-trace merges over ranks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "model/launch_run.h"
#include "model/operation_times.h"
#include "model/plan.h"
#include "model/shared_log.h"
#include "model/signature.h"

namespace nitinol {

class FlightRecorder {
 public:
  static constexpr size_t kKept = 256;  ///< collectives, and as many sends and receives

  /// Notes what is about to be put into a stream, or captured into a graph. By one thread at a time, as calls on one
  /// communicator are made.
  void note(const Launch& launch, const void* stream, bool captured = false);

  /// While it lives the launch is told of as being in setup: it will be noted, or fail.
  class SettingUp {
   public:
    SettingUp(FlightRecorder& recorder, const Launch& launch) : recorder_(recorder) { recorder_.set_up(&launch); }
    ~SettingUp() { recorder_.set_up(nullptr); }
    SettingUp(const SettingUp&) = delete;
    SettingUp& operator=(const SettingUp&) = delete;

   private:
    FlightRecorder& recorder_;
  };

  /// How many collectives were noted, but for those that went into graphs.
  uint64_t issued() const { return issued_.load(std::memory_order_relaxed); }
  struct Issued {
    std::string text;
    int64_t enqueued = 0;  ///< nanoseconds since the epoch
  };
  /// The last of them until the one of that number; empty if there is none.
  Issued last_issued(const TimeScale& scale, uint64_t number) const;

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
    bool counts_runs = false;  ///< those numbers count whatever ran, graphs as often as they were launched
    std::optional<uint64_t> launches_through{};  ///< how many launches have ended, of those not into graphs; if known
    std::optional<uint64_t> launches_begun{};    ///< and how many have begun
    std::vector<PeerMessage> awaited{};          ///< for which it has waited for long; empty if not known
    std::optional<bool> idle{};                  ///< whether everything has, of what was noted until `asked`; if known
    int64_t asked = TimeStamp::now();
    bool times_known = false;                 ///< whether `runs` has what ran
    TimeScale scale{};                        ///< tells all stamps of one dump
    std::vector<LaunchRun> launches{};        ///< when launches did, where that is known instead; oldest first
    std::vector<OperationTimes::Run> runs{};  ///< when collectives began and ended, as far as that is known
  };
  std::string json(const About& about) const;
  std::string text(const About& about) const;

 private:
  /// One collective, send or receive.
  struct Entry {
    Signature collective;      ///< sequence 0: it went into a graph
    MessageSignature message;  ///< number 0: it went into a graph, or has no bytes
    bool is_message = false;
    bool sends = false;
    int peer = 0;
    Plan plan;
    bool captured = false;
    bool in_setup = false;
    uint64_t launch = 0;  ///< the number of its launch, of those not into graphs
    const void* stream = nullptr;
    int64_t enqueued = 0;  ///< a TimeStamp; nanoseconds since the epoch once it is told
    uint64_t number() const { return is_message ? message.number : collective.sequence; }
    std::string name() const { return is_message ? message.text(sends, peer) : collective.text(); }
  };
  /// An entry with what else is known of it.
  struct Told {
    Entry entry;
    const char* state = "";
    int64_t begun = 0;  ///< 0: not, or not known
    int64_t ended = 0;
  };
  using Collectives = SharedLog<kKept, 8>;
  using Messages = SharedLog<kKept, 6>;
  static Collectives::Words packed(const Entry& entry);
  static Entry unpacked(const Collectives::Words& words);
  static Messages::Words packed_message(const Entry& entry);
  static Entry unpacked_message(const Messages::Words& words);

  Messages& messages();
  /// How many messages like it were noted.
  uint64_t& count_of(const MessageWork& work);
  static Entry entry_of(const CollectiveWork& work, uint64_t sequence);
  static Entry entry_of(const MessageWork& work, uint64_t number);
  void set_up(const Launch* launch);
  std::optional<Entry> last_entry(uint64_t number) const;
  /// Oldest first.
  std::vector<Entry> kept() const;
  std::vector<Told> entries(const About& about) const;
  static const char* state_of(const Entry& entry, const About& about, bool numbers_hold, bool runs);
  static bool begins_known(const About& about);
  std::optional<bool> all_ended(const About& about, const std::vector<Told>& all) const;
  std::string head_json(const About& about, std::optional<bool> idle) const;
  static std::string json_of(const Told& told, const About& about);
  std::string head_text(const About& about, std::optional<bool> idle) const;

  std::atomic<uint64_t> issued_{0};
  std::atomic<uint64_t> messages_issued_{0};
  std::atomic<uint64_t> captured_{0};
  std::atomic<uint64_t> launches_{0};
  Collectives collectives_;
  SharedLog<1, 8> last_issued_;               ///< graphs may take more than the log keeps
  std::unique_ptr<Messages> owned_messages_;  ///< made for the first, as many communicators have none
  std::atomic<Messages*> messages_{nullptr};
  /// How many were sent to and received from each peer, of those that have bytes and went into no graph: theirs are
  /// counted alike. Of the noting thread.
  std::vector<std::array<uint64_t, 2>> numbers_;

  mutable std::mutex set_up_mutex_;  // of what follows
  std::vector<Entry> being_set_up_;
};

}  // namespace nitinol
