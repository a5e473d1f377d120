// Writing to files that the user names.
#pragma once

#include <string_view>

namespace nitinol {

/// 0, or an errno. Ends with an error, and not the program, also beyond the limit for the size of files (ulimit -f),
/// and where nobody reads a pipe any more.
int write_all(int fd, std::string_view text);

}  // namespace nitinol
