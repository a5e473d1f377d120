#include "base/config_file.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"

namespace nitinol {
namespace {

// From the user database and not from $HOME, which a batch system may point elsewhere. "" if the user is unknown there.
std::string home_directory() {
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(getuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return "";
  return entry.pw_dir == nullptr ? "" : entry.pw_dir;
}

/// What stands there instead of a file; "" for a file. Linux's /dev/null counts as one, which is empty.
std::string other_than_file(const struct stat& what) {
  if (S_ISREG(what.st_mode)) return "";
  if (S_ISFIFO(what.st_mode)) return "a FIFO";
  if (S_ISDIR(what.st_mode)) return "a folder";
  if (S_ISSOCK(what.st_mode)) return "a socket";
  return S_ISCHR(what.st_mode) && what.st_rdev == makedev(1, 3) ? "" : "a device";
}

std::string text_of(int fd) {
  std::string text;
  std::array<char, 4096> part;
  while (true) {
    const ssize_t got = read(fd, part.data(), part.size());
    if (got > 0) text.append(part.data(), static_cast<std::size_t>(got));
    if (got == 0 || (got < 0 && errno != EINTR)) return text;
  }
}

/// "": the user has named none.
std::string named_file() {
  const char* named = std::getenv("NCCL_CONF_FILE");
  return named != nullptr ? named : "";
}

std::string user_file() {
  const std::string named = named_file();
  if (!named.empty()) return named;
  const std::string home = home_directory();
  return home.empty() ? "" : home + "/.nccl.conf";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> parse_configuration(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> assignments;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos || equals == 0 || line.front() == '#') continue;
    if (line.find('\0') != std::string_view::npos) continue;
    assignments.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
  return assignments;
}

std::string apply_configuration_file(const std::string& path) {
  struct stat before {};
  if (stat(path.c_str(), &before) != 0) return "";
  // Not even opened: that alone waits for a FIFO's writer, and may do something to a device.
  std::string other = other_than_file(before);
  if (other.empty()) {
    // Another may stand there by now.
    const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat opened {};
    if (!file || fstat(file.get(), &opened) != 0) return "";
    other = other_than_file(opened);
    if (other.empty()) {
      constexpr int kKeepWhatIsSet = 0;
      for (const auto& [name, value] : parse_configuration(text_of(file.get()))) {
        setenv(name.c_str(), value.c_str(), kKeepWhatIsSet);
      }
      return "";
    }
  }
  return formatted("the configuration file {} is {} and is not read: it must be a regular file", path, other);
}

std::vector<std::string> apply_configuration_files() {
  std::vector<std::string> complaints;
  const std::string named = named_file();
  if (!named.empty() && access(named.c_str(), R_OK) != 0) {
    complaints.push_back(formatted("the configuration file {}, which NCCL_CONF_FILE names, cannot be read: {}", named,
                                   std::generic_category().message(errno)));
  }
  for (const std::string& path : {user_file(), std::string("/etc/nccl.conf")}) {
    std::string complaint = path.empty() ? "" : apply_configuration_file(path);
    if (!complaint.empty()) complaints.push_back(std::move(complaint));
  }
  return complaints;
}

}  // namespace nitinol
