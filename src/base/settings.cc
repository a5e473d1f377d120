#include "base/settings.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <vector>

#include "base/config_file.h"
#include "base/error.h"
#include "base/log.h"
#include "base/words.h"

namespace nitinol {
namespace {

constexpr std::size_t index_of(Setting setting) { return static_cast<std::size_t>(setting); }

/// The row's word that the value is, as the row spells it; nothing if it is none. A number above a last one counts as
/// that.
std::optional<std::string> word_of(const SettingRow& row, std::string_view value) {
  constexpr std::string_view kBetween = ", ";
  std::string_view rest = row.words;
  while (true) {
    const std::size_t end = rest.find(kBetween);
    const std::string_view word = rest.substr(0, end);
    if (same_ignoring_case(word, value)) return std::string(word);
    if (end == std::string_view::npos) {
      const bool is_above = parse_integer(value) > parse_integer(word) && parse_integer(word);
      return is_above ? std::optional<std::string>(word) : std::nullopt;
    }
    rest.remove_prefix(end + kBetween.size());
  }
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

struct Loaded {
  /// Not to be logged before the settings are there: the log asks for them.
  std::vector<std::string> complaints = apply_configuration_files();
  Settings settings{};
};

const Loaded& loaded() {
  // Never destroyed: other threads may still ask while the process exits.
  static const Loaded* const instance = new Loaded;
  return *instance;
}

void report_variable(std::string_view name) {
  for (const SettingRow& row : settings_table()) {
    if (row.name != name) continue;
    if (!row.acted_on()) {
      log_info(Subsystem::kEnv, "{} is set but has no effect in this version of Nitinol", name);
    } else if (row.type != SettingType::kText) {
      static_cast<void>(settings().integer_if_set(row.setting));  // a value that is no good is noted now
    } else if (*row.words != '\0') {
      static_cast<void>(settings().text_if_set(row.setting));
    }
    return;
  }
  if (belongs_to_another_program(name)) return;
  const std::string_view nearest = nearest_setting_name(name);
  if (nearest.empty() && name.starts_with("NCCL_")) {  // NCCL has many that it does not document
    log_info(Subsystem::kEnv, "{} is set, but no variable of that name is known", name);
  } else if (nearest.empty()) {
    log_note("{} is set, but no variable of that name is known", name);
  } else {
    log_note("{} is set, but no variable of that name is known; is {} meant?", name, nearest);
  }
}

}  // namespace

const Settings& settings() { return loaded().settings; }

/// Files may end their lines as Windows does, and people write what a number is for behind it.
std::string_view Settings::first_word(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_first_of(kSpace));
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  bool negative = false;
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) {
    negative = text.front() == '-';
    text.remove_prefix(1);
  }
  int base = 10;
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
    base = 16;
    text.remove_prefix(2);
  }
  std::uint64_t magnitude = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), magnitude, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (magnitude > kMax) return std::nullopt;
  const auto value = static_cast<std::int64_t>(magnitude);
  return negative ? -value : value;
}

std::optional<std::string> Settings::quiet_text_if_set(Setting setting) {
  const SettingRow& row = row_of(setting);
  const char* value = std::getenv(row.name);
  if (value == nullptr || (*value == '\0' && !row.empty_counts)) return std::nullopt;
  return value;
}

std::optional<std::string> Settings::text_if_set(Setting setting) const {
  const SettingRow& row = row_of(setting);
  std::optional<std::string> value = quiet_text_if_set(setting);
  if (!value) return value;
  std::optional<std::string> taken = *row.words == '\0' ? value : word_of(row, *value);
  if (!taken) {
    refuse(row, *value);
    return taken;
  }
  announce(row, *value);
  return taken;
}

std::string Settings::text(Setting setting) const {
  return text_if_set(setting).value_or(row_of(setting).default_text);
}

std::optional<std::int64_t> Settings::integer_if_set(Setting setting) const {
  Number& number = cache_->numbers[index_of(setting)];
  std::call_once(number.read, [&] {
    const std::optional<std::string> text = quiet_text_if_set(setting);
    if (!text || text->empty()) return;
    number.value = read_number(row_of(setting), *text);
    if (number.value) announce(row_of(setting), *text);
  });
  return number.value;
}

std::int64_t Settings::integer(Setting setting) const {
  if (const std::optional<std::int64_t> value = integer_if_set(setting)) return *value;
  const SettingRow& row = row_of(setting);
  const std::optional<std::int64_t> standard = parse_integer(row.default_text);
  if (!standard) fail(ncclInternalError, "{} has no default number", row.name);
  return *standard;
}

std::optional<std::int64_t> Settings::read_number(const SettingRow& row, const std::string& text) {
  const char* standard = *row.default_text == '\0' ? "none" : row.default_text;
  const std::optional<std::int64_t> value = parse_integer(first_word(text));
  if (!value) {
    log_note("{}={} is not a number; the default ({}) is used", row.name, text, standard);
    return std::nullopt;
  }
  if (*value < row.lowest || *value > row.highest) {
    log_note("{}={} is outside {} to {}; the default ({}) is used", row.name, text, row.lowest, row.highest, standard);
    return std::nullopt;
  }
  return value;
}

void Settings::announce(const SettingRow& row, const std::string& value) const {
  if (cache_->announced[index_of(row.setting)].exchange(true, std::memory_order_relaxed)) return;
  log_info(Subsystem::kEnv, "{} set by environment to {}", row.name, value);
}

void Settings::refuse(const SettingRow& row, const std::string& value) const {
  if (cache_->refused[index_of(row.setting)].exchange(true, std::memory_order_relaxed)) return;
  log_note("{}={} is none of {}; the default is used", row.name, value, row.words);
}

void Settings::forget() const { cache_ = std::make_unique<Cache>(); }

std::string_view nearest_setting_name(std::string_view name) {
  std::string_view nearest;
  // A word more or less is no mistake in writing, and most short words are near another.
  const std::size_t letters = name.size() - std::min(name.size(), name.find('_') + 1);
  std::size_t least = letters > 8 ? 4 : 2;
  for (const SettingRow& row : settings_table()) {
    const std::size_t distance = edit_distance(name, row.name);
    if (distance < least) {
      least = distance;
      nearest = row.name;
    }
  }
  return nearest;
}

bool belongs_to_another_program(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "NCCL_VERSION", "NCCL_ROOT", "NCCL_ROOT_DIR", "NCCL_HOME", "NCCL_DIR", "NCCL_INCLUDE_DIR", "NCCL_LIB_DIR",
      "NCCL_LIBRARY", "NCCL_ASYNC_ERROR_HANDLING", "NCCL_BLOCKING_WAIT", "NCCL_ENABLE_TIMING", "NCCL_DESYNC_DEBUG",
      // NCCL's own, not documented
      "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE", "NCCL_P2P_NVL_CHUNKSIZE", "NCCL_P2P_PCI_CHUNKSIZE", "NCCL_GIN_ENABLE",
      "NCCL_PAT_ENABLE", "NCCL_SYM_CTAS", "NCCL_IB_MERGE_VFS", "NCCL_NVTX_DISABLE", "NCCL_RMA_DISABLE"};
  constexpr std::string_view kPrefixes[] = {"NCCL_TESTS_", "NCCL_OFI_", "NCCL_FASTRAK_", "NCCL_GPUDIRECTTCPX_"};
  if (std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames)) return true;
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

void warn_about_unknown_variables() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const std::string& complaint : loaded().complaints) log_note("{}", complaint);
    for (const std::string& complaint : take_complaints_about_log()) log_note("{}", complaint);
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      const std::string_view variable = *entry;
      const std::string_view name = variable.substr(0, variable.find('='));
      if (name.starts_with("NCCL_") || name.starts_with("NITINOL_")) report_variable(name);
    }
  });
}

}  // namespace nitinol
