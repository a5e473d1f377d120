// The names of faults and moments, what each case of them is to end in, and what is to be said of it.
#include <array>
#include <string>

#include "fault_cases.h"
#include "matches.h"
#include "scarcity.h"

namespace nitinol::testing {
namespace {

constexpr std::array<const char*, kFaults> kFaultNames = {"Kill",        "Stop",          "Exit",
                                                          "NeverCalls",  "WrongCall",     "WrongOrder",
                                                          "WrongSize",   "ClosesSockets", "FullDescriptors",
                                                          "OutOfMemory", "Slow"};
constexpr std::array<const char*, kMoments> kMomentNames = {"Init",  "FirstUse", "Steady", "Group",
                                                            "Split", "Finalize", "Destroy"};

// One letter for each moment, in their order: E error, S success, - no case.
constexpr std::array<const char*, kFaults> kOutcomes = {
    "EEEEEEE",  // Kill
    "EEEEEEE",  // Stop
    "EEEEEEE",  // Exit
    "EEEEEEE",  // NeverCalls
    "EEEEEEE",  // WrongCall; at init: with the number of another rank
    "EEEEEEE",  // WrongOrder: of two collectives, or of two communicators
    "EEEE---",  // WrongSize: splitting, finalising and destroying have no size; at init: another number of ranks
    "EEEEEEE",  // ClosesSockets
    "EESSESS",  // FullDescriptors: what is in use already needs no more of them, nor does leaving
    "EESSESS",  // OutOfMemory: the same
    "SSSSSSS",  // Slow: is waited for
};

/// What the sentence must say of the victim, of which it stands for V: how it fares, or what it lacked. A regular
/// expression; "" if its number is enough.
std::string cause_of(const Case& c, const std::string& sentence) {
  const bool in_touch = c.moment != Moment::kInit;  // before that nobody knows of it
  if (!in_touch) return "";
  const std::string of_nobody_else = R"(((?!rank \d).)*)";
  switch (c.fault) {
    case Fault::kStop:
      return "V" + of_nobody_else + R"(stopped \(SIGSTOP|stopped \(SIGSTOP[^)]*\): V)" +
             R"(|V did not arrive: it did not connect to rank \d+ within [^;]*; its process is stopped \(SIGSTOP)";
    case Fault::kNeverCalls: return "V" + of_nobody_else + "alive";
    case Fault::kFullDescriptors: return "V failed.*Too many open files";
    case Fault::kOutOfMemory:  // a background thread may not even have the memory to say so
      return c.blocking || sentence.find("exited or closed") == std::string::npos ? "V failed.*Cannot allocate memory"
                                                                                  : "V exited or closed its connection";
    case Fault::kKill:
    case Fault::kExit:  // what is left of a process may keep its connections open for a while
      return "V exited or closed its connection|but the process of V is dead";
    case Fault::kClosesSockets: return "V (exited or )?closed its connection";
    case Fault::kWrongCall:  // which notices it, unless the deadline is first
      if (c.moment != Moment::kFinalize || sentence.find("is in ReduceScatter") != std::string::npos) return "";
      return "V.* finalizes or destroys its communicator|finalizes or destroys its communicator.* V";
    case Fault::kWrongOrder:
    case Fault::kWrongSize:
    case Fault::kSlow: break;
  }
  return "";
}

/// "rank 1 (host h, pid 7, device 1)" for V.
std::string about(const std::string& number, std::string cause) {
  const std::string place = "rank " + number + R"( \(host [^ ]+, pid \d+, device \d+\))";
  for (size_t at = cause.find('V'); at != std::string::npos; at = cause.find('V', at + place.size())) {
    cause.replace(at, 1, place);
  }
  return cause;
}

}  // namespace

std::string what_lacks(const Case& c, const std::string& sentence) {
  // Of two that come with one number the number they share is named.
  const bool twice = c.fault == Fault::kWrongCall && c.moment == Moment::kInit;
  const std::string number = std::to_string(twice ? (c.victim + 1) % kProcesses : c.victim);
  // Who does not get as far as to the rendezvous knows of it only where it is.
  const bool host = c.moment == Moment::kInit && c.victim == 0;
  const bool named = (host && sentence.find("the root of the unique id") != std::string::npos) ||
                     sentence.find("rank " + number) != std::string::npos ||
                     sentence.find("ranks " + number) != std::string::npos;
  if (!named) return "'" + sentence + "' does not name the victim";
  const std::string cause = cause_of(c, sentence);
  if (cause.empty() || matches(sentence, about(number, cause))) return "";
  return "'" + sentence + "' lacks '" + cause + "', where V is the victim";
}

Outcome outcome_of(const Case& c) {
  if (c.fault == Fault::kOutOfMemory && !kMemoryCanBeLimited) return Outcome::kNoCase;
  if (c.fault == Fault::kFullDescriptors && !kDescriptorsCanBeLimited) return Outcome::kNoCase;
  if (c.fault == Fault::kClosesSockets && !kSocketsCanBeClosed) return Outcome::kNoCase;
  switch (kOutcomes[static_cast<size_t>(c.fault)][static_cast<size_t>(c.moment)]) {
    case 'E': return Outcome::kError;
    case 'S': return Outcome::kSuccess;
    default: return Outcome::kNoCase;
  }
}

const char* name_of(Fault fault) { return kFaultNames[static_cast<size_t>(fault)]; }

std::string name_of(const Case& c) {
  const std::string later = c.delay.count() < 0 ? "" : ", after " + std::to_string(c.delay.count()) + " us";
  return std::string(name_of(c.fault)) + " at " + kMomentNames[static_cast<size_t>(c.moment)] + ", rank " +
         std::to_string(c.victim) + (c.blocking ? "" : ", non-blocking") + later;
}

bool can_strike_later(const Case& c) {
  const bool by_itself = c.fault == Fault::kKill || c.fault == Fault::kStop || c.fault == Fault::kExit;
  return by_itself && c.moment >= Moment::kFirstUse && c.moment <= Moment::kSplit;
}

}  // namespace nitinol::testing
