#include "base/write_all.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "base/signals_of_files.h"

namespace nitinol {

int write_all(int fd, std::string_view text) {
  const SignalsOfFiles signals;
  while (!text.empty()) {
    const ssize_t done = ::write(fd, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return signals.take(errno);
    text.remove_prefix(static_cast<std::size_t>(done));
  }
  return 0;
}

}  // namespace nitinol
