#include "base/host.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>

#include "base/error.h"
#include "base/settings.h"

namespace nitinol {
namespace {

std::string full_host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

std::string read_boot_id() {
  constexpr const char* kPath = "/proc/sys/kernel/random/boot_id";
  errno = 0;
  std::ifstream file(kPath);
  if (!file && (errno == EMFILE || errno == ENFILE)) fail_errno(errno, kPath);
  std::string id;
  std::getline(file, id);
  return id;
}

/// New at each start of the kernel: tells machines with equal names apart. "" where there is none. All ranks of a
/// process have the same.
const std::string& boot_id() {
  static const auto& id = *new std::string(read_boot_id());  // threads may still ask when the process exits
  return id;
}

}  // namespace

std::string host_name() {
  const std::string name = full_host_name();
  return name.substr(0, name.find('.'));
}

std::uint64_t host_identity() {
  if (const auto given = settings().text_if_set(Setting::kHostId)) return stable_hash(*given);
  return stable_hash(boot_id() + "@" + full_host_name());
}

// Not kept: a process may go on in another namespace.
std::uint64_t network_identity() {
  struct stat found {};
  if (stat("/proc/self/ns/net", &found) != 0) return 0;
  try {
    return boot_id().empty() ? 0 : stable_hash(formatted("{}@{} {}", boot_id(), full_host_name(), found.st_ino));
  } catch (const Error&) {  // no descriptor is left to read it
    return 0;
  }
}

std::uint64_t stable_hash(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
  return hash ^ (hash >> 33);
}

}  // namespace nitinol
