// The call board: which calls the ranks of a communicator on one host have issued, in memory that all of them see.
//
// Virtual GPUs compare calls where data meets; kernels have no time for that. So every rank writes each call down on
// its page before it launches anything, a few stores in host memory, and looks now and then at the others' pages
// (call_check.h). Nothing is sent, and nobody waits.
//
//   for each rank     a CallPage: its collectives and how it is
//   then, for each    two MessageLogs per peer: what it sends to that peer, and what it receives from it; and two more,
//                     CapturedMessages, of what of that is captured
//   and               what its kernels have noted of what has run (run_check.h)
//   and               per peer the HostCall in which it waits for that
//
// Calls that are captured into graphs are counted apart: they run when the graph is launched, which nobody sees.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "executor/holder.h"
#include "executor/host_call.h"
#include "executor/label.h"
#include "executor/run_check.h"
#include "model/shared_log.h"
#include "model/signature.h"
#include "transport/transport.h"

namespace nitinol {

/// `trace` with one more call in it: two ranks' traces are equal if their calls are, and practically only then.
inline uint64_t extended(uint64_t trace, uint64_t count, uint64_t call) {
  uint64_t mix = (trace + count * 0xc2b2ae3d27d4eb4fU) ^ (call * 0x165667b19e3779f9U);
  mix ^= mix >> 29;
  mix *= 0xbf58476d1ce4e5b9U;
  return mix ^ mix >> 32;
}

/// Calls of one kind in the order in which they were issued, numbered from 1, each with the trace of all up to it.
template <size_t kNotes>
class TracedLog {
 public:
  static constexpr size_t kKept = kNotes;

  uint64_t last() const { return log_.last(); }
  /// Of all calls up to this one.
  std::optional<uint64_t> trace(uint64_t number) const {
    const auto found = log_.find(number);
    return found ? std::optional((*found)[2]) : std::nullopt;
  }

 protected:
  using Log = SharedLog<kNotes, 4>;

  /// `first` and `call` go into the trace; `second` and `launch` do not.
  void add_traced(uint64_t first, uint64_t second, uint64_t call, uint64_t launch) {
    const uint64_t trace = extended(trace_.load(std::memory_order_relaxed), first, call);
    trace_.store(trace, std::memory_order_relaxed);
    log_.add(log_.last() + 1, {first, second, trace, launch});
  }
  std::optional<typename Log::Words> words(uint64_t number) const { return log_.find(number); }

 private:
  std::atomic<uint64_t> trace_;
  Log log_;
};

/// Collectives.
template <size_t kNotes>
class CallLog : public TracedLog<kNotes> {
 public:
  /// By the page's rank alone; `launch`: the number of the launch that it is in.
  void add(const CollectiveWork& work, uint64_t launch) {
    const Signature next = Signature::of(work, this->last() + 1);
    this->add_traced(next.count, next.call, next.call, launch);
  }
  std::optional<uint64_t> launch_of(uint64_t number) const {
    const auto found = this->words(number);
    return found ? std::optional((*found)[3]) : std::nullopt;
  }
  std::optional<Signature> find(uint64_t number) const {
    const auto found = this->words(number);
    return found ? std::optional(Signature{number, (*found)[0], (*found)[1]}) : std::nullopt;
  }
};

/// The messages of one rank to or from one other, in order. Those of no bytes do not count: nothing is sent for them.
class MessageLog : public TracedLog<512> {
 public:
  struct Note {
    uint64_t bytes = 0;
    uint64_t after = 0;   ///< how many collectives its rank issued before
    uint64_t launch = 0;  ///< the number of the launch that it is in
    DataType type = DataType::kUint8;
  };
  void add(const Note& note) {
    const MessageSignature signature{.bytes = note.bytes, .type = note.type};
    add_traced(signature.packed(), note.after, 0, note.launch);
  }
  std::optional<Note> find(uint64_t number) const {
    const auto found = words(number);
    if (!found) return std::nullopt;
    const auto signature = MessageSignature::unpacked(number, (*found)[0]);
    return Note{signature.bytes, (*found)[1], (*found)[3], signature.type};
  }
};

/// The last messages of one rank to or from one other that were captured into graphs: MessageSignature::packed().
using CapturedMessages = SharedLog<64, 1>;

/// In what a rank's kernels wait, and for whom (kernel_waits.h).
using KernelWaitLog = SharedLog<4, 24>;

/// One rank's page: written by it alone, but for `asked`.
struct CallPage {
  /// More than fit into the queue of a stream: that is how far ranks may be apart.
  CallLog<1024> calls;
  CallLog<256> captured;
  SharedLog<8, 2> announced;       ///< counts and calls of what it is about to issue
  std::atomic<uint64_t> launches;  ///< how many it has issued or is writing down, but for those into graphs
  std::atomic<uint64_t> written;   ///< how many of them stand here as a whole
  std::atomic<uint64_t> messages;  ///< how many of them have messages
  std::atomic<uint32_t> captures;  ///< not zero: something was captured, so launches of graphs may come between calls
  std::atomic<uint32_t> in_messages;   ///< whether messages were issued after the last collective
  std::atomic<uint32_t> leaving;       ///< whether it is through with all calls, and makes no more
  std::atomic<uint32_t> setting_up;    ///< whether it is busy reaching memory and loading code for its next call
  SharedLog<8, 3> waits_to_call;       ///< numbers, counts and calls of collectives that it makes once all do; 0: none
  std::atomic<uint32_t> stopped;       ///< whether it carries out nothing any more, after an abort or a failure
  std::atomic<uint64_t> through;       ///< once it has stopped: how many launches had come to their end, at most
  SharedLabel label;                   ///< of the launch in which it has waited for long (label.h)
  std::atomic<uint64_t> label_launch;  ///< which that is
  SharedHolder holder;                 ///< or what keeps it from a launch, being before it in the same stream
  std::atomic<uint64_t> held_launch;   ///< the first that it keeps the rank from
  KernelWaitLog kernel_wait;           ///< in what its kernels wait, and for whom (kernel_waits.h)
  std::atomic<uint64_t> kernel_looks;  ///< how often it has looked for that
  SharedLog<4, 3> collective_waits;    ///< in which launch they have waited in one, and for whom (collective_waits.h)
  alignas(64) std::atomic<uint64_t> asked;  ///< by any rank: what it is doing is to be written down
  std::atomic<uint64_t> answered;           ///< the question that what follows is the answer to
  std::atomic<uint32_t> running;            ///< whether something that it issued is not through
};

class CallBoard {
 public:
  static size_t bytes_for(int ranks);

  /// Memory of at least bytes_for(ranks) bytes, zero when it was made.
  CallBoard(SharedMemory memory, int ranks) : memory_(std::move(memory)), ranks_(ranks) {}

  int ranks() const { return ranks_; }
  MemoryHandle share() const { return memory_.share(); }
  CallPage& page(int rank) const;
  MessageLog& sent(int rank, int to) const { return log(rank, 2 * to); }
  MessageLog& received(int rank, int from) const { return log(rank, 2 * from + 1); }
  CapturedMessages& captured_messages(int rank, int peer, bool sends) const;
  /// Of one of the kinds in RunLines.
  SharedRunNotes& runs(int rank, int line) const;
  /// In which call the rank waits on the host for the other to make it too.
  std::atomic<HostCall>& host_call(int rank, int other) const;

 private:
  std::byte* after_page(int rank) const;
  MessageLog& log(int rank, int index) const;

  SharedMemory memory_;
  int ranks_;
};

/// Writes a launch of rank `rank` down; `captured`: into a graph.
void note_calls(const CallBoard& board, int rank, const Launch& launch, bool captured);
/// Writes down what rank `rank` is certain to issue next.
void announce_calls(const CallBoard& board, int rank, const Launch& launch);
/// Writes down which collective rank `rank` waits to issue until all ranks have come to it; number 0: none.
void note_waiting_to_call(CallPage& page, const Signature& next);
/// The same from the work, which is the rank's next; null: none.
void note_waiting_to_call(const CallBoard& board, int rank, const CollectiveWork* next);
/// What was written down last; number 0: none.
Signature waits_to_call(const CallPage& page);
/// Whether it has ever waited to issue that collective, or a later one.
bool has_come_to(const CallPage& page, uint64_t number);
/// The collective of a launch of the page's rank, the last if it has several; nothing if it has none, or that is too
/// long ago.
std::optional<Signature> collective_of_launch(const CallPage& page, uint64_t launch);
/// A collective that the rank has issued, or announced; nothing if it has not, or that is too long ago.
std::optional<Signature> find_call(const CallPage& page, uint64_t number);

}  // namespace nitinol
