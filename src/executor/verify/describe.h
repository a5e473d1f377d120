// Transfers in words, for findings.
#pragma once

#include <string>

#include "algorithm/replay.h"

namespace nitinol::verify {

/// For example "from 2 + input[0,16) -> output[0,16), to 4, finish".
std::string describe(const algorithm::Step& step);

/// What a process that cannot go on is about, for example "at step 3 of 7 (...) waits for a message from rank 2, which
/// ...".
std::string describe_wait(const algorithm::Program& program, const algorithm::Replay& replay, int process);

}  // namespace nitinol::verify
