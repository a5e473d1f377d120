#include "base/open_for_writing.h"

#include <fcntl.h>

namespace nitinol {

UniqueFd open_for_writing(const std::string& path) {
  constexpr mode_t kAsFopen = 0666;
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, kAsFopen));
  if (!fd || ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK) != 0) return {};
  return fd;
}

}  // namespace nitinol
