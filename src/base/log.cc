#include "base/log.h"

#include <fmt/compile.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/file_identity.h"
#include "base/fork_safe.h"
#include "base/host.h"
#include "base/last_error.h"
#include "base/open_for_writing.h"
#include "base/settings.h"
#include "base/unique_fd.h"
#include "base/write_all.h"

namespace nitinol {
namespace log_detail {

std::atomic<std::uint64_t> state{kUnread};

namespace {

constinit thread_local int t_device = 0;

// What the variables say; guarded by its mutex. Never destroyed: threads may log while the process exits.
struct Log {
  std::mutex mutex;
  std::string host;
  std::string timestamp_format;
  std::uint32_t timestamp_levels = 0;
  std::FILE* stream = stdout;  ///< unless it has a file of its own
  UniqueFd file;
  FileIdentity identity;
  bool version_written = false;
  bool stalled = false;    ///< nobody takes what is written
  std::uint64_t lost = 0;  ///< lines since then
  std::vector<std::string> complaints;
};

Log& the_log() {
  static Log& instance = make_free_across_forks<Log>();
  return instance;
}

std::string text_of(Setting setting) {
  return Settings::quiet_text_if_set(setting).value_or(row_of(setting).default_text);
}

/// A program that closes descriptors which it did not open, and opens others, has its own file under that number then.
bool is_still_open(const Log& log) { return identity_of(log.file.get()) == log.identity; }

void close_file(Log& log) {
  if (log.file && !is_still_open(log)) static_cast<void>(log.file.release());
  log.file.reset();
  log.stream = stdout;
}

// Standard output stays in use when the file cannot be opened.
void open_file(Log& log) {
  const std::string pattern = text_of(Setting::kDebugFile);
  if (pattern.empty() || pattern == "/dev/stdout") return;
  if (pattern == "/dev/stderr") {
    log.stream = stderr;
    return;
  }
  log.file = open_for_writing(expand_log_path(pattern, log.host, getpid()));
  if (!log.file) {
    log.complaints.push_back(formatted("NCCL_DEBUG_FILE={} cannot be written to ({}): the log goes to standard output",
                                       pattern, std::strerror(errno)));
    return;
  }
  log.identity = identity_of(log.file.get());
}

void read_variables(Log& log) {
  const LogLevel level = parse_log_level(text_of(Setting::kDebug));
  log.host = host_name();
  log.timestamp_format = text_of(Setting::kDebugTimestampFormat);
  const std::string levels = text_of(Setting::kDebugTimestampLevels);
  const std::string subsystems = text_of(Setting::kDebugSubsys);
  log.timestamp_levels = parse_timestamp_levels(levels);
  log.complaints = {complaint_about_subsystems(subsystems), complaint_about_timestamp_levels(levels)};
  std::erase(log.complaints, "");
  if (level >= LogLevel::kWarn) open_file(log);
  state.store(static_cast<std::uint64_t>(level) << 32 | parse_subsystems(subsystems), std::memory_order_release);
}

std::string timestamp(const Log& log, LogLevel level) {
  if ((log.timestamp_levels >> static_cast<unsigned>(level) & 1) == 0) return "";
  std::timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return format_timestamp(log.timestamp_format, now.tv_sec, static_cast<std::int32_t>(now.tv_nsec));
}

std::string sender(const Log& log) { return formatted("{}:{}:{}", log.host, getpid(), syscall(SYS_gettid)); }

constexpr std::chrono::milliseconds kPatienceWithReader{1000};

/// Whether there is room for a line at once, or within that time.
bool has_room(const Log& log, std::chrono::milliseconds patience) {
  pollfd there{log.file ? log.file.get() : ::fileno(log.stream), POLLOUT, 0};
  if (there.fd < 0) return true;  // closed: nothing is written, and nothing waited for
  const auto end = std::chrono::steady_clock::now() + patience;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    const int found = ::poll(&there, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (found >= 0) return found > 0;
    if (errno != EINTR) return true;
  }
}

/// Whoever reads a pipe or terminal may have stopped to, and nothing here is to stop with it: after a second lines are
/// lost until it goes on.
bool is_taken(Log& log) {
  log.stalled = !has_room(log, log.stalled ? std::chrono::milliseconds(0) : kPatienceWithReader);
  return !log.stalled;
}

void write_text(Log& log, const std::string& text) {
  if (log.file) {
    static_cast<void>(write_all(log.file.get(), text));  // of what cannot be written nobody could be told
    return;
  }
  std::fwrite(text.data(), 1, text.size(), log.stream);
  std::fflush(log.stream);
}

// One write per line, so that lines of the processes of one terminal do not mix.
void write_line(Log& log, const std::string& line) {
  if (log.file && !is_still_open(log)) close_file(log);
  if (!is_taken(log)) {
    ++log.lost;
    return;
  }
  const std::uint64_t lost = std::exchange(log.lost, 0);
  if (lost > 0) write_text(log, formatted("{} NCCL WARN {} lines are lost, which nobody took\n", sender(log), lost));
  write_text(log, line);
}

const char* base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

void write_info_line(Log& log, const char* text) {
  write_line(log, formatted("{}{} [{}] NCCL INFO {}\n", timestamp(log, LogLevel::kInfo), sender(log), t_device, text));
}

/// Another thread may have reset the log since the caller found it enabled.
std::unique_lock<std::mutex> lock_ready(Log& log) {
  std::unique_lock lock(log.mutex);
  if (state.load(std::memory_order_relaxed) == kUnread) read_variables(log);
  return lock;
}

}  // namespace

std::uint64_t ready_state() {
  settings();  // the configuration files may hold the variables
  const auto lock = lock_ready(the_log());
  return state.load(std::memory_order_relaxed);
}

void write_info(fmt::string_view text, fmt::format_args arguments) {
  const std::string body = format_arguments(text, arguments);
  Log& log = the_log();
  const auto lock = lock_ready(log);
  write_info_line(log, body.c_str());
}

void write_call(fmt::string_view text, fmt::format_args arguments) {
  const std::string body = format_arguments(text, arguments);
  Log& log = the_log();
  const auto lock = lock_ready(log);
  write_line(log, formatted("{}{} NCCL CALL {}\n", timestamp(log, LogLevel::kTrace), sender(log), body));
}

namespace {

void write_warning_line(Log& log, Place place, const std::string& body) {
  write_line(log, formatted("\n{}{} [{}] {}:{} NCCL WARN {}\n", timestamp(log, LogLevel::kWarn), sender(log), t_device,
                            base_name(place.file), place.line, body));
}

}  // namespace

void write_warning(Place place, fmt::string_view text, fmt::format_args arguments, bool is_error) {
  const std::string body = format_arguments(text, arguments);
  if (is_error) set_last_error(body);
  if (!log_enabled(LogLevel::kWarn, Subsystem::kInit)) return;
  Log& log = the_log();
  const auto lock = lock_ready(log);
  write_warning_line(log, place, body);
}

bool write_note_at_once(Place place, const std::string& body) {
  if (!log_enabled(LogLevel::kWarn, Subsystem::kInit)) return true;
  Log& log = the_log();
  const std::unique_lock lock(log.mutex, std::try_to_lock);
  const bool is_ready = lock && state.load(std::memory_order_relaxed) != kUnread;
  if (!is_ready || !has_room(log, std::chrono::milliseconds(0))) return false;
  write_warning_line(log, place, body);
  return true;
}

}  // namespace log_detail

void log_error(const Error& error) {
  log_detail::write_warning(error.place(), "{}", fmt::make_format_args(error.what()), true);
}

void log_trail(const Error& error) {
  log_info(Subsystem::kAll, "{}:{} -> {}", log_detail::base_name(error.place().file), error.place().line,
           static_cast<int>(error.code()));
}

/// Stands in the library as it is: programs look there, NVIDIA's Python bindings among them, for the version of CUDA.
constexpr auto kVersion = [] {
  std::array<char, 64> text{};
  fmt::format_to(text.data(), FMT_COMPILE("NCCL version {}.{}.{}{}+cuda{}.{} (Nitinol)"), NCCL_MAJOR, NCCL_MINOR,
                 NCCL_PATCH, NCCL_SUFFIX, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  return text;
}();

void log_version() {
  if (!log_enabled(LogLevel::kVersion, Subsystem::kInit)) return;
  log_detail::Log& log = log_detail::the_log();
  const auto lock = log_detail::lock_ready(log);
  if (log.version_written) return;
  log.version_written = true;
  if (log_enabled(LogLevel::kInfo, Subsystem::kInit)) {
    return log_detail::write_info_line(log, kVersion.data());
  }
  log_detail::write_line(log, formatted("{}{}\n", log_detail::timestamp(log, LogLevel::kVersion), kVersion.data()));
}

std::vector<std::string> take_complaints_about_log() {
  log_detail::Log& log = log_detail::the_log();
  const std::lock_guard lock(log.mutex);
  return std::exchange(log.complaints, {});
}

void reset_log() {
  log_detail::Log& log = log_detail::the_log();
  const std::lock_guard lock(log.mutex);
  log_detail::close_file(log);
  log.version_written = false;
  log_detail::state.store(log_detail::kUnread, std::memory_order_relaxed);
}

void note_device_of_thread(int device) { log_detail::t_device = device; }

DeviceInLog::DeviceInLog(int device) : previous_(std::exchange(log_detail::t_device, device)) {}
DeviceInLog::~DeviceInLog() { log_detail::t_device = previous_; }

}  // namespace nitinol
