// The size of files without a name that memory lies in.
#pragma once

#include <cstddef>

namespace nitinol {

/// 0, or why not (errno): EFBIG beyond the limit for the size of files (ulimit -f), which by itself ends the process.
int set_file_size(int fd, std::size_t bytes);

/// What to add to a sentence about it.
const char* advice_on_size(int error);

}  // namespace nitinol
