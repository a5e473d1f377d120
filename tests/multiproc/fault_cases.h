// Faults as values: what one rank does wrong, in which call, and what the other ranks are to get. Cases run in
// processes of their own, several at a time, since they mostly wait.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace nitinol::testing {

enum class Fault {
  kKill,             ///< SIGKILL
  kStop,             ///< SIGSTOP
  kExit,             ///< _exit(0) without a word
  kNeverCalls,       ///< stays, and does nothing
  kWrongCall,        ///< makes another call
  kWrongOrder,       ///< makes the right calls, the last one first
  kWrongSize,        ///< gives another count, or another number of ranks
  kClosesSockets,    ///< closes every socket of its process
  kFullDescriptors,  ///< has no descriptor left (EMFILE)
  kOutOfMemory,      ///< has no address space left (RLIMIT_AS)
  kSlow,             ///< takes its time
};
inline constexpr int kFaults = 11;

enum class Moment { kInit, kFirstUse, kSteady, kGroup, kSplit, kFinalize, kDestroy };
inline constexpr int kMoments = 7;

/// What is right for the ranks that do nothing wrong.
enum class Outcome {
  kError,    ///< an error that names the victim; to destroy has no error, and just ends
  kSuccess,  ///< the fault does not touch this call: success on all ranks, the victim's too
  kNoCase,   ///< there is no such case
};

struct Case {
  Fault fault = Fault::kKill;
  Moment moment = Moment::kInit;
  int victim = 1;
  bool blocking = true;  ///< whether communicators are
  /// Not negative: the fault strikes so long after the moment, while the ranks repeat the call. Only if
  /// can_strike_later().
  std::chrono::microseconds delay{-1};
};

/// Whether the fault can strike at any time, and the call be repeated.
bool can_strike_later(const Case& c);

constexpr int kProcesses = 3;  ///< of a case

Outcome outcome_of(const Case& c);
/// What a survivor's sentence does not say of the victim, and should; "" if all is there.
std::string what_lacks(const Case& c, const std::string& sentence);
std::string name_of(const Case& c);
const char* name_of(Fault fault);

/// Runs one case in new processes, of this one. Returns "" if all was as it should be.
std::string run_case(const Case& c);

/// Runs the cases, at most `at_once` at a time. Returns what was not as it should be, a line or more for each; "" if
/// all was. A case that hangs is killed and reported.
std::string run_cases(const std::vector<Case>& cases, size_t at_once);

}  // namespace nitinol::testing
