#include "base/config_file.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

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

std::string user_file() {
  const char* named = std::getenv("NCCL_CONF_FILE");
  if (named != nullptr && *named != '\0') return named;
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

void apply_configuration_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return;
  std::ostringstream text;
  text << file.rdbuf();  // unlike a stream iterator, this does not throw where the path is a directory
  constexpr int kKeepWhatIsSet = 0;
  for (const auto& [name, value] : parse_configuration(text.str())) setenv(name.c_str(), value.c_str(), kKeepWhatIsSet);
}

void apply_configuration_files() {
  const std::string user = user_file();
  if (!user.empty()) apply_configuration_file(user);
  apply_configuration_file("/etc/nccl.conf");
}

}  // namespace nitinol
