// The size of files without a name that memory lies in.
#pragma once

#include <cstddef>

namespace nitinol {

/// Throws Error(ncclSystemError) that names `what` the memory is for; also beyond the limit for the size of files
/// (ulimit -f), which by itself ends the process.
void set_file_size(int fd, std::size_t bytes, const char* what);

}  // namespace nitinol
