#include "configuration.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

namespace nitinol::ras_tool {
namespace {

constexpr const char* kVariable = "NCCL_RAS_ADDR";

/// From the user database, and not from $HOME.
std::string home_directory() {
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(getuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return "";
  return entry.pw_dir == nullptr ? "" : entry.pw_dir;
}

std::string user_file() {
  const char* const named = std::getenv("NCCL_CONF_FILE");
  if (named != nullptr && *named != '\0') return named;
  const std::string home = home_directory();
  return home.empty() ? "" : home + "/.nccl.conf";
}

/// The first assignment counts, and what it assigns goes to the end of the line.
std::optional<std::string> address_in(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return std::nullopt;  // a FIFO would be waited for
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const bool is_text = line.find('\0') == std::string::npos;
    const auto equals = line.find('=');
    if (is_text && equals != std::string::npos && std::string_view(line).substr(0, equals) == kVariable) {
      return line.substr(equals + 1);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> configured_address() {
  if (const char* const set = std::getenv(kVariable)) return set;
  for (const std::string& path : {user_file(), std::string("/etc/nccl.conf")}) {
    if (auto found = address_in(path)) return found;
  }
  return std::nullopt;
}

}  // namespace nitinol::ras_tool
