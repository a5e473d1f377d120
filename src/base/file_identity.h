// Which file a descriptor is of: its number may become that of another.
#pragma once

#include <sys/stat.h>

namespace nitinol {

struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;

  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};

/// Of no file, if it is not open.
inline FileIdentity identity_of(int fd) {
  struct stat found {};
  if (::fstat(fd, &found) != 0) return {};
  return {found.st_dev, found.st_ino};
}

}  // namespace nitinol
