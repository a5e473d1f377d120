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

std::uint32_t bits_of_subsystem(std::string_view word) {
  if (same_ignoring_case(word, "ALL")) return ~std::uint32_t{0};
  for (const NamedSubsystem& known : kSubsystems) {
    if (same_ignoring_case(word, known.name)) return static_cast<std::uint32_t>(known.subsystem);
  }
  return 0;
}

std::uint32_t bits_of_level(std::string_view word) {
  if (same_ignoring_case(word, "ALL")) return ~std::uint32_t{0};
  const LogLevel level = parse_log_level(word);
  return level == LogLevel::kNone ? 0 : 1u << static_cast<unsigned>(level);
}

// Calls see(word) for the words of a comma list, without the ^ that it may begin with.
template <typename See>
void for_each_word(std::string_view list, const See& see) {
  if (list.starts_with('^')) list.remove_prefix(1);
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    see(list.substr(0, comma));
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
}

// The union of bits_of(word) over a comma list, inverted when the list begins with ^.
std::uint32_t parse_mask(std::string_view list, std::uint32_t (*bits_of)(std::string_view)) {
  std::uint32_t mask = 0;
  for_each_word(list, [&](std::string_view word) { mask |= bits_of(word); });
  return list.starts_with('^') ? ~mask : mask;
}

template <typename Named>
std::string complaint_about(std::string_view variable, std::string_view list, const Named& words,
                            std::uint32_t (*bits_of)(std::string_view)) {
  std::string unknown;
  for_each_word(list, [&](std::string_view word) {
    if (unknown.empty() && bits_of(word) == 0) unknown = word;
  });
  if (unknown.empty()) return "";
  std::string known;
  for (const auto& named : words) known += formatted("{}, ", named.name);
  return formatted("{}={}: there is no '{}', but {}ALL", variable, list, unknown, known);
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

std::uint32_t parse_subsystems(std::string_view list) { return parse_mask(list, bits_of_subsystem); }

std::uint32_t parse_timestamp_levels(std::string_view list) {
  return list.empty() ? 0 : parse_mask(list, bits_of_level);
}

std::string complaint_about_subsystems(std::string_view list) {
  return complaint_about("NCCL_DEBUG_SUBSYS", list, kSubsystems, bits_of_subsystem);
}

std::string complaint_about_timestamp_levels(std::string_view list) {
  return complaint_about("NCCL_DEBUG_TIMESTAMP_LEVELS", list, kLevels, bits_of_level);
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
