// The texts that a user writes: configuration files, numbers, lists and patterns of the logging variables.
// LIBRARIES: nitinol_base
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/config_file.h"
#include "base/log.h"
#include "base/settings.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_configuration(std::string_view text) {
  for (const auto& [name, value] : nitinol::parse_configuration(text)) {
    require(!name.empty() && name.front() != '#');
    require(name.find_first_of("=\n") == std::string::npos && value.find('\n') == std::string::npos);
    std::string line = name;
    line.append("=").append(value);
    require(text.find(line) != std::string_view::npos);
  }
}

void check_number(std::string_view text) {
  const auto number = nitinol::parse_integer(text);
  if (number) require(nitinol::parse_integer(std::to_string(*number)) == number);
}

void check_log_syntax(std::string_view text) {
  const std::uint32_t mask = nitinol::parse_subsystems(text);
  if (!text.starts_with('^')) require(nitinol::parse_subsystems("^" + std::string(text)) == ~mask);
  nitinol::parse_timestamp_levels(text);
  nitinol::parse_log_level(text);
  nitinol::expand_log_path(text, "host", 1);
  nitinol::format_timestamp(text, 1'000'000'000, 123'456'789);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_configuration(text);
  check_number(text);
  check_log_syntax(text);
  constexpr std::size_t kName = 32;  // comparing with every name is slow beside all the rest
  if (size % kName == 17) require(nitinol::nearest_setting_name(text.substr(0, kName)).size() <= 2 * kName);
  return 0;
}
