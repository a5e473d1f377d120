// The syntax of the logging variables: pure functions.
#include <array>
#include <ctime>

#include "base/error.h"
#include "base/log.h"
#include "base/words.h"

namespace nitinol {
namespace {

struct NamedLevel {
  std::string_view name;
  LogLevel level;
};
constexpr NamedLevel kLevels[] = {{"VERSION", LogLevel::kVersion},
                                  {"WARN", LogLevel::kWarn},
                                  {"INFO", LogLevel::kInfo},
                                  {"ABORT", LogLevel::kAbort},
                                  {"TRACE", LogLevel::kTrace}};

struct NamedSubsystem {
  std::string_view name;
  Subsystem subsystem;
};
constexpr NamedSubsystem kSubsystems[] = {{"INIT", Subsystem::kInit},
                                          {"COLL", Subsystem::kColl},
                                          {"P2P", Subsystem::kP2p},
                                          {"SHM", Subsystem::kShm},
                                          {"NET", Subsystem::kNet},
                                          {"GRAPH", Subsystem::kGraph},
                                          {"TUNING", Subsystem::kTuning},
                                          {"ENV", Subsystem::kEnv},
                                          {"ALLOC", Subsystem::kAlloc},
                                          {"CALL", Subsystem::kCall},
                                          {"PROXY", Subsystem::kProxy},
                                          {"NVLS", Subsystem::kNvls},
                                          {"BOOTSTRAP", Subsystem::kBootstrap},
                                          {"REG", Subsystem::kReg},
                                          {"PROFILE", Subsystem::kProfile},
                                          {"RAS", Subsystem::kRas},
                                          {"ALLOC_HOST", Subsystem::kAllocHost},
                                          {"DESTROY", Subsystem::kDestroy}};

// The union of bit_of(word) over a comma list, inverted when the list begins with ^.
template <typename BitOf>
std::uint32_t parse_mask(std::string_view list, BitOf bit_of) {
  const bool inverted = list.starts_with('^');
  if (inverted) list.remove_prefix(1);
  std::uint32_t mask = 0;
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    const std::string_view word = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    mask |= same_ignoring_case(word, "ALL") ? ~std::uint32_t{0} : bit_of(word);
  }
  return inverted ? ~mask : mask;
}

// Digits of a %1f ... %9f at `position`, or 0.
int fraction_digits(std::string_view pattern, std::size_t position) {
  if (position + 2 >= pattern.size() || pattern[position] != '%' || pattern[position + 2] != 'f') return 0;
  const char digit = pattern[position + 1];
  return digit >= '1' && digit <= '9' ? digit - '0' : 0;
}

// The pattern with its first fraction put in as digits, and underscores as spaces.
std::string with_fraction(std::string_view pattern, std::int32_t nanoseconds) {
  std::string result;
  bool done = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const int digits = done ? 0 : fraction_digits(pattern, i);
    if (digits > 0) {
      result += formatted("{:09}", nanoseconds).substr(0, static_cast<std::size_t>(digits));
      done = true;
      i += 2;
    } else if (pattern[i] == '%' && i + 1 < pattern.size()) {
      result += pattern.substr(i, 2);  // a pair, so that the second half of %% begins nothing
      ++i;
    } else {
      result += pattern[i] == '_' ? ' ' : pattern[i];
    }
  }
  return result;
}

}  // namespace

LogLevel parse_log_level(std::string_view word) {
  for (const NamedLevel& known : kLevels) {
    if (same_ignoring_case(word, known.name)) return known.level;
  }
  return LogLevel::kNone;
}

std::uint32_t parse_subsystems(std::string_view list) {
  return parse_mask(list, [](std::string_view word) -> std::uint32_t {
    for (const NamedSubsystem& known : kSubsystems) {
      if (same_ignoring_case(word, known.name)) return static_cast<std::uint32_t>(known.subsystem);
    }
    return 0;
  });
}

std::uint32_t parse_timestamp_levels(std::string_view list) {
  if (list.empty()) return 0;
  return parse_mask(list, [](std::string_view word) -> std::uint32_t {
    const LogLevel level = parse_log_level(word);
    return level == LogLevel::kNone ? 0 : 1u << static_cast<unsigned>(level);
  });
}

std::string expand_log_path(std::string_view pattern, std::string_view host, int pid) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      path += pattern[i];
      continue;
    }
    const char kind = pattern[++i];
    if (kind == 'h') {
      path += host;
    } else if (kind == 'p') {
      path += formatted("{}", pid);
    } else if (kind == '%') {
      path += '%';
    } else {
      path += '%';
      path += kind;
    }
  }
  return path;
}

std::string format_timestamp(std::string_view pattern, std::int64_t seconds, std::int32_t nanoseconds) {
  if (pattern.empty()) return "";
  const std::string ready = with_fraction(pattern, nanoseconds);
  const std::time_t time = seconds;
  std::tm local{};
  localtime_r(&time, &local);
  std::array<char, 512> text;
  return std::string(text.data(), std::strftime(text.data(), text.size(), ready.c_str(), &local));
}

}  // namespace nitinol
