// The names of faults and moments, and what each case of them is to end in.
#include <array>

#include "fault_cases.h"
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

}  // namespace

Outcome outcome_of(const Case& c) {
  if (c.fault == Fault::kOutOfMemory && !kMemoryCanBeLimited) return Outcome::kNoCase;
  if (c.fault == Fault::kFullDescriptors && !kDescriptorsCanBeLimited) return Outcome::kNoCase;
  // New descriptors get the numbers of sockets closed behind the library's back: a race between the numbers' users.
  if (c.fault == Fault::kClosesSockets && kThreadSanitizer) return Outcome::kNoCase;
  switch (kOutcomes[static_cast<size_t>(c.fault)][static_cast<size_t>(c.moment)]) {
    case 'E': return Outcome::kError;
    case 'S': return Outcome::kSuccess;
    default: return Outcome::kNoCase;
  }
}

const char* name_of(Fault fault) { return kFaultNames[static_cast<size_t>(fault)]; }

std::string name_of(const Case& c) {
  return std::string(name_of(c.fault)) + " at " + kMomentNames[static_cast<size_t>(c.moment)] + ", rank " +
         std::to_string(c.victim);
}

}  // namespace nitinol::testing
