// What can be said of a program without running it.
#pragma once

#include "algorithm/trace.h"
#include "executor/verify/finding.h"

namespace nitinol::verify {

/// Checks each transfer by itself: peers, lengths, buffers and bounds; each rank's spans; and that parts share no
/// end of a connection. Adds at most a few findings.
void inspect(const algorithm::Program& program, bool in_place, Report& report);

}  // namespace nitinol::verify
