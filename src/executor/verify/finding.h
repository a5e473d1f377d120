// What the verifier says about a program that is wrong.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace nitinol::verify {

enum class Fault : int {
  kMalformed,           ///< names a rank that does not exist or itself, moves nothing, or spans of different length
  kTooLong,             ///< a transfer of more than Share::chunk elements
  kOutOfBounds,         ///< a buffer that the rank does not have, or elements outside the share
  kOverlap,             ///< in place, the span read and the one written overlap without being the same
  kDifferentSpans,      ///< elements that are written belong to another span in another transfer of the rank
  kSharedConnection,    ///< two parts of a rank use the same end of a connection
  kRace,                ///< two parts of a rank touch what one of them writes, and nothing says who comes first
  kDeadlock,            ///< nobody can go on
  kLeftOver,            ///< messages that nobody took
  kLengthMismatch,      ///< sender and receiver disagree on the length of a message
  kOverwrittenInput,    ///< in place: the input was read after something else was written over it
  kUnwrittenRead,       ///< the output was read before anything was written there
  kDoubleContribution,  ///< a rank's input entered a reduction twice
  kMissingContribution,
  kMixedElements,  ///< elements that do not belong together were combined
  kWrongScalar,    ///< a contribution without the scalar, or a copy with it
  kWrongFinish,    ///< finished not at all, twice, or not at the end
  kWrongOrder,     ///< not one reduction in rank order, though the algorithm claims to be canonical
  kWrongBlock,     ///< the right kind of value in the wrong place
  kWrittenTwice,   ///< a right result was written over
  kNotWritten,
};

constexpr const char* name_of(Fault fault) {
  switch (fault) {
    case Fault::kMalformed: return "malformed transfer";
    case Fault::kTooLong: return "transfer too long";
    case Fault::kOutOfBounds: return "out of bounds";
    case Fault::kOverlap: return "overlap";
    case Fault::kDifferentSpans: return "different spans";
    case Fault::kSharedConnection: return "shared connection";
    case Fault::kRace: return "race between parts";
    case Fault::kDeadlock: return "deadlock";
    case Fault::kLeftOver: return "message left over";
    case Fault::kLengthMismatch: return "length mismatch";
    case Fault::kOverwrittenInput: return "overwritten input";
    case Fault::kUnwrittenRead: return "unwritten output read";
    case Fault::kDoubleContribution: return "double contribution";
    case Fault::kMissingContribution: return "missing contribution";
    case Fault::kMixedElements: return "mixed elements";
    case Fault::kWrongScalar: return "wrong scalar";
    case Fault::kWrongFinish: return "wrong finish";
    case Fault::kWrongOrder: return "wrong order";
    case Fault::kWrongBlock: return "wrong block";
    case Fault::kWrittenTwice: return "written twice";
    case Fault::kNotWritten: return "not written";
  }
  return "?";
}

struct Finding {
  Fault fault;
  int rank = 0;
  std::string text;  ///< a sentence
  int part = -1;     ///< -1: the rank has but one, or it is about the rank as a whole
};

/// A report has no more.
inline constexpr size_t kMostFindings = 8;

/// The first findings, in the order in which the run came upon them. Empty: the program is right.
struct Report {
  std::vector<Finding> findings;

  bool right() const { return findings.empty(); }
  bool has(Fault fault) const;
  std::string text() const;
};

}  // namespace nitinol::verify
