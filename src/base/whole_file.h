// Files that are there as a whole or not at all: who reads one while it is written, or after its writer was killed or
// found the disk full, sees what was there before.
#pragma once

#include <string>
#include <string_view>

namespace nitinol {

/// Makes the file, or replaces what is in it. Returns 0, or what was wrong (errno). Devices and pipes, and files in
/// folders that are not the caller's to write to, are written as they are; but no FIFO that nobody reads (ENXIO).
int write_whole_file(const std::string& path, std::string_view text);

}  // namespace nitinol
