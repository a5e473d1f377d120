// Opens what the user names for the library to write to.
#pragma once

#include <string>

#include "base/unique_fd.h"

namespace nitinol {

/// Makes the file, or empties it. Holds nothing if that is not possible, with errno; so it is with a FIFO that nobody
/// reads (ENXIO), for whose reader it would wait for ever otherwise.
UniqueFd open_for_writing(const std::string& path);

}  // namespace nitinol
