// Every environment variable of the library: one row each (settings_table.cc), from which come the parser, the log
// line, docs/settings.md and the warning about unknown names. Values: environment, then the user's file, then
// /etc/nccl.conf.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace nitinol {

/// The variables that the library acts on, in the order of the first rows of the table.
enum class Setting : std::uint8_t {
  kDebug,
  kDebugSubsys,
  kDebugFile,
  kDebugTimestampFormat,
  kDebugTimestampLevels,
  kConfFile,
  kCommId,
  kSocketIfname,
  kSocketFamily,
  kSocketRetryCnt,
  kSocketRetrySleepMsec,
  kUidStaggerThreshold,
  kUidStaggerRate,
  kInitTimeout,
  kTimeout,
  kWarnAfter,
  kCheck,
  kHostId,
  kCommBlocking,
  kAlgo,
  kProto,
  kMinCtas,
  kMaxCtas,
  kMinNchannels,
  kMaxNchannels,
  kMinNrings,
  kMaxNrings,
  kCgaClusterSize,
  kCtaPolicy,
  kBuffSize,
  kReproducible,
  kLaunchAhead,
  kLaunchOrderImplicit,
  kLaunchRaceFatal,
  kGraphMixingSupport,
  kP2pDisable,
  kP2pLevel,
  kP2pTry,
  kShmDisable,
  kMultiRankGpuEnable,
  kSpin,
  kWinEnable,
  kRuntimeConnect,
  kCheckPointers,
  kCheckMode,
  kSetThreadName,
  kVgpus,
  kRasEnable,
  kRasAddr,
  kRasTimeoutFactor,
  kDumpFile,
  kDumpSignal,
  kRecordTimes,
  kNone,  ///< a row that is documented but not acted on yet; keep last
};

inline constexpr std::size_t kSettingCount = static_cast<std::size_t>(Setting::kNone);

enum class SettingType : std::uint8_t { kText, kInteger, kSwitch };

struct SettingRow {
  Setting setting = Setting::kNone;
  const char* name = "";
  SettingType type = SettingType::kText;
  const char* default_text = "";  ///< "" for "not set": the help says what then happens
  const char* help = "";
  const char* since = "";  ///< version of NCCL, or what became of the name
  std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  std::int64_t highest = std::numeric_limits<std::int64_t>::max();
  bool empty_counts = false;  ///< the empty string is a value, not the same as unset
  const char* words = "";     ///< that it takes in any case, with a comma and a space between them; "": any text
  constexpr bool acted_on() const { return setting != Setting::kNone; }
};

/// The whole table: first the rows that are acted on, in the order of Setting, then the others by name.
std::span<const SettingRow> settings_table();
const SettingRow& row_of(Setting setting);

/// Values by row. Texts are looked up at each call, numbers once. Safe from any thread.
class Settings {
 public:
  /// Number, or the row's default when it is unset or no number in the row's range (noted in the log). The row must
  /// have a default.
  std::int64_t integer(Setting setting) const;
  /// Number if the variable is set to one in the row's range.
  std::optional<std::int64_t> integer_if_set(Setting setting) const;
  /// A switch: any number but 0 is on.
  bool flag(Setting setting) const { return integer(setting) != 0; }
  /// Text, or the row's default when unset.
  std::string text(Setting setting) const;
  /// Text if set (the empty string only where the row says that it counts) to one that the row takes, in the row's
  /// spelling; others are noted in the log.
  std::optional<std::string> text_if_set(Setting setting) const;
  /// As text_if_set, without the "set by environment" line: for the log itself.
  static std::optional<std::string> quiet_text_if_set(Setting setting);

  /// Forgets cached numbers, so that a test may change its environment between cases. No other thread may be reading.
  void forget() const;

 private:
  struct Number {
    std::once_flag read;
    std::optional<std::int64_t> value;
  };
  struct Cache {
    std::array<Number, kSettingCount> numbers;
    std::array<std::atomic<bool>, kSettingCount> announced{};
    std::array<std::atomic<bool>, kSettingCount> refused{};
  };
  static std::string_view first_word(std::string_view text);
  static std::optional<std::int64_t> read_number(const SettingRow& row, const std::string& text);
  void announce(const SettingRow& row, const std::string& value) const;
  void refuse(const SettingRow& row, const std::string& value) const;

  mutable std::unique_ptr<Cache> cache_ = std::make_unique<Cache>();
};

/// The process's settings. The first call reads the configuration files.
const Settings& settings();

/// Once per process: a warning for each configuration file that is none, and each NCCL_* or NITINOL_* variable that is
/// unknown, with the nearest known name, and a line at INFO for each NCCL_* one that is near none and each documented
/// one that has no effect yet.
void warn_about_unknown_variables();

/// The known name most like `name`, or "" when none is near.
std::string_view nearest_setting_name(std::string_view name);

/// True for names under NCCL_ that belong to other programs (container images, test programs, plugins).
bool belongs_to_another_program(std::string_view name);

/// Decimal, or hexadecimal after 0x, with optional sign; nothing else before or behind it.
std::optional<std::int64_t> parse_integer(std::string_view text);

/// The table as docs/settings.md.
std::string settings_markdown();

}  // namespace nitinol
