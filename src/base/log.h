// The log behind NCCL_DEBUG, NCCL_DEBUG_SUBSYS and NCCL_DEBUG_FILE, in NCCL's line formats. Off, a call costs one
// relaxed load.
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace nitinol {

/// Each level contains all before it.
enum class LogLevel : std::uint8_t { kNone, kVersion, kWarn, kInfo, kAbort, kTrace };

/// What a line at INFO or TRACE is about; bits of a mask.
enum class Subsystem : std::uint32_t {
  kInit = 1u << 0,
  kColl = 1u << 1,
  kP2p = 1u << 2,
  kShm = 1u << 3,
  kNet = 1u << 4,
  kGraph = 1u << 5,
  kTuning = 1u << 6,
  kEnv = 1u << 7,
  kAlloc = 1u << 8,
  kCall = 1u << 9,
  kProxy = 1u << 10,
  kNvls = 1u << 11,
  kBootstrap = 1u << 12,
  kReg = 1u << 13,
  kProfile = 1u << 14,
  kRas = 1u << 15,
  kAllocHost = 1u << 16,
  kDestroy = 1u << 17,
  kAll = ~0u,
};

/// Lines that belong to several: they are written if one of them is asked for.
constexpr Subsystem operator|(Subsystem one, Subsystem other) {
  return static_cast<Subsystem>(static_cast<std::uint32_t>(one) | static_cast<std::uint32_t>(other));
}

namespace log_detail {

// Level in the upper half, mask of subsystems in the lower; kUnread until the variables have been read.
inline constexpr std::uint64_t kUnread = ~std::uint64_t{0};
extern std::atomic<std::uint64_t> state;

/// Reads the variables if that has not been done; the state then.
std::uint64_t ready_state();

void write_info(fmt::string_view text, fmt::format_args arguments);
void write_call(fmt::string_view text, fmt::format_args arguments);
void write_warning(Place place, fmt::string_view text, fmt::format_args arguments, bool is_error);
bool write_note_at_once(Place place, const std::string& body);

}  // namespace log_detail

/// Whether lines of this level and subsystem are written. WARN and VERSION do not depend on the subsystem.
inline bool log_enabled(LogLevel level, Subsystem subsystem) {
  std::uint64_t now = log_detail::state.load(std::memory_order_relaxed);
  if (now == log_detail::kUnread) now = log_detail::ready_state();
  if ((now >> 32) < static_cast<std::uint64_t>(level)) return false;
  return level <= LogLevel::kWarn || (now & static_cast<std::uint32_t>(subsystem)) != 0;
}

/// "HOST:PID:TID [DEV] NCCL INFO text".
template <typename... Args>
void log_info(Subsystem subsystem, fmt::format_string<Args...> text, Args&&... args) {
  if (log_enabled(LogLevel::kInfo, subsystem)) log_detail::write_info(text, fmt::make_format_args(args...));
}

/// A line of the trace of API calls, "HOST:PID:TID NCCL CALL text"; at level TRACE with subsystem CALL.
template <typename... Args>
void log_call(fmt::format_string<Args...> text, Args&&... args) {
  if (log_enabled(LogLevel::kTrace, Subsystem::kCall)) log_detail::write_call(text, fmt::make_format_args(args...));
}

/// "[TIME] HOST:PID:TID [DEV] file.cc:LINE NCCL WARN text" after an empty line. The text also becomes the last error,
/// at every level.
template <typename... Args>
void log_warn(Placed<Args...> text, Args&&... args) {
  log_detail::write_warning(text.place, text.text, fmt::make_format_args(args...), true);
}

/// As log_warn, for what was thrown: the line names the place where it came up.
void log_error(const Error& error);

/// At INFO: where it came up, and the code that is returned for it.
void log_trail(const Error& error);

/// As log_warn for what is no error: the last error stays.
template <typename... Args>
void log_note(Placed<Args...> text, Args&&... args) {
  if (!log_enabled(LogLevel::kWarn, Subsystem::kInit)) return;
  log_detail::write_warning(text.place, text.text, fmt::make_format_args(args...), false);
}

/// The same, unless the log would have to be waited for: then false, and nothing is written.
inline bool log_note_at_once(const std::string& sentence, const char* file = __builtin_FILE(),
                             int line = __builtin_LINE()) {
  return log_detail::write_note_at_once({file, line}, sentence);
}

/// "NCCL version X.Y.Z+cudaA.B ...", once per process (and again after reset_log).
void log_version();

/// What was wrong with the variables of the log, to be logged; each once.
std::vector<std::string> take_complaints_about_log();

/// Closes the log's file; the variables are read again at the next call.
void reset_log();

/// The number of the calling thread's device, for the prefix of its lines; 0 until it is noted. (Not asked of CUDA: a
/// line may tell of a thread that stands in CUDA for ever, with a lock.)
void note_device_of_thread(int device);

/// While it lives the calling thread's lines tell of that device, as where one thread serves the ranks of several.
class DeviceInLog {
 public:
  explicit DeviceInLog(int device);
  ~DeviceInLog();
  DeviceInLog(const DeviceInLog&) = delete;
  DeviceInLog& operator=(const DeviceInLog&) = delete;

 private:
  const int previous_;
};

/// The pieces of the variables' syntax.
LogLevel parse_log_level(std::string_view word);
std::uint32_t parse_subsystems(std::string_view list);
/// Bit n for LogLevel n.
std::uint32_t parse_timestamp_levels(std::string_view list);
/// What is wrong with such a list; empty if nothing is.
std::string complaint_about_subsystems(std::string_view list);
std::string complaint_about_timestamp_levels(std::string_view list);
/// %h, %p and %% replaced, other pairs kept.
std::string expand_log_path(std::string_view pattern, std::string_view host, int pid);
/// strftime in local time, with %1f to %9f (the first one only) for digits of the fraction; underscores become spaces.
std::string format_timestamp(std::string_view pattern, std::int64_t seconds, std::int32_t nanoseconds);

}  // namespace nitinol
