// What may be asked before a fork.
#pragma once

namespace nitinol::testing {

/// How many GPUs, or virtual ones, there are: found without CUDA, which is not to be touched before a fork.
int devices_here();

}  // namespace nitinol::testing
