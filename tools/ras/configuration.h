// Where the job was told to listen: in the environment, or in NCCL's configuration files. Without the library, by its
// rules.
#pragma once

#include <optional>
#include <string>

namespace nitinol::ras_tool {

/// NCCL_RAS_ADDR, perhaps an empty one; nothing if it is set nowhere.
std::optional<std::string> configured_address();

}  // namespace nitinol::ras_tool
