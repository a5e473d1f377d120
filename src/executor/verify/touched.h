// The elements of a rank's memory that its transfers touch, where others could get in their way.
#pragma once

#include <vector>

#include "algorithm/trace.h"

namespace nitinol::verify {

/// One span of one transfer. Offsets are those of the output or, in place, of the larger buffer.
struct Touched {
  size_t begin = 0;
  size_t end = 0;
  bool written = false;
  int process = 0;
  size_t step = 0;

  bool operator<(const Touched& other) const {
    if (begin != other.begin) return begin < other.begin;
    return end != other.end ? end < other.end : process < other.process;
  }
};

/// The spans of all of a rank's parts, sorted: in its output and, in place, input. Nobody writes an input that lies
/// elsewhere.
std::vector<Touched> touched_by(const algorithm::Program& program, int rank, bool in_place);

}  // namespace nitinol::verify
