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

/// Adds a process's spans in its rank's output and, in place, input: nobody writes an input that lies elsewhere.
void add_touched(const algorithm::Program& program, int process, bool in_place, std::vector<Touched>& spans);

}  // namespace nitinol::verify
