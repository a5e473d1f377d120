#include "base/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/host.h"
#include "base/interruptions_testing.h"
#include "base/last_error.h"
#include "base/settings_testing.h"
#include "base/temporary_folder_testing.h"
#include "base/unique_fd.h"

namespace nitinol {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

TEST(ParseLogLevel, IgnoresCaseAndTakesOtherWordsForSilence) {
  EXPECT_EQ(parse_log_level("INFO"), LogLevel::kInfo);
  EXPECT_EQ(parse_log_level("warn"), LogLevel::kWarn);
  EXPECT_EQ(parse_log_level("Abort"), LogLevel::kAbort);
  EXPECT_EQ(parse_log_level("INFO "), LogLevel::kNone);
  EXPECT_EQ(parse_log_level("LOUD"), LogLevel::kNone);
  EXPECT_EQ(parse_log_level(""), LogLevel::kNone);
}

TEST(ParseSubsystems, KnowsListsAllAndInversion) {
  const auto init = static_cast<std::uint32_t>(Subsystem::kInit);
  const auto p2p = static_cast<std::uint32_t>(Subsystem::kP2p);
  EXPECT_EQ(parse_subsystems("init,P2P"), init | p2p);
  EXPECT_EQ(parse_subsystems("ALL"), ~0u);
  EXPECT_EQ(parse_subsystems("^INIT"), ~init);
  EXPECT_EQ(parse_subsystems("^"), ~0u);
  EXPECT_EQ(parse_subsystems(""), 0u);
  EXPECT_EQ(parse_subsystems("NONSENSE, INIT"), 0u);
}

TEST(ParseTimestampLevels, EmptyIsNoneAndACaretInverts) {
  EXPECT_EQ(parse_timestamp_levels(""), 0u);
  EXPECT_EQ(parse_timestamp_levels("WARN,info"), 1u << 2 | 1u << 3);
  EXPECT_EQ(parse_timestamp_levels("^WARN"), ~(1u << 2));
  EXPECT_EQ(parse_timestamp_levels("ALL"), ~0u);
}

TEST(ComplaintsAboutLists, NameTheFirstWordThatThereIsNot) {
  for (const char* list : {"", "^", "INIT", "^coll,ALL", "INIT,,NET,"}) EXPECT_EQ(complaint_about_subsystems(list), "");
  EXPECT_THAT(complaint_about_subsystems("INIT,NTE,NOT"),
              HasSubstr("NCCL_DEBUG_SUBSYS=INIT,NTE,NOT: there is no 'NTE',"));
  EXPECT_THAT(complaint_about_subsystems("^NTE"), HasSubstr("BOOTSTRAP"));
  for (const char* list : {"", "^ALL", "warn,INFO"}) EXPECT_EQ(complaint_about_timestamp_levels(list), "");
  EXPECT_EQ(complaint_about_timestamp_levels("WARNING"),
            "NCCL_DEBUG_TIMESTAMP_LEVELS=WARNING: there is no 'WARNING', but VERSION, WARN, INFO, ABORT, TRACE, ALL");
}

TEST(ExpandLogPath, ReplacesHostProcessAndPercent) {
  EXPECT_EQ(expand_log_path("/tmp/%h.%p.log", "node7", 42), "/tmp/node7.42.log");
  EXPECT_EQ(expand_log_path("%%h%x%", "node7", 42), "%h%x%");
}

class Timestamp : public testing::Test {
 protected:
  Timestamp() { tzset(); }
  ~Timestamp() override { unsetenv("TZ"); }
  ScopedVariable zone_{"TZ", "UTC0"};
};

TEST_F(Timestamp, FollowsStrftimeWithFractionAndUnderscores) {
  EXPECT_EQ(format_timestamp("[%F %T] ", 86400, 0), "[1970-01-02 00:00:00] ");
  EXPECT_EQ(format_timestamp("%T.%3f_x", 1, 1'500'000), "00:00:01.001 x");
  EXPECT_EQ(format_timestamp("%9f", 0, 7), "000000007");
  EXPECT_EQ(format_timestamp("%%3f", 0, 7), "%3f");
  EXPECT_EQ(format_timestamp("", 0, 7), "");
}

class Log : public testing::Test {
 protected:
  Log() { reset_log(); }
  ~Log() override {
    note_device_of_thread(0);
    reset_log();
  }
  // The settings of one case, in force from here.
  void start(const char* level, const char* subsystems = nullptr) {
    level_.emplace("NCCL_DEBUG", level);
    subsystems_.emplace("NCCL_DEBUG_SUBSYS", subsystems);
    reset_log();
  }
  std::string written() const { return folder_.read("log"); }
  static std::string sender() { return formatted("{}:{}:{}", host_name(), getpid(), gettid()); }

  TemporaryFolder folder_;
  ScopedVariable file_{"NCCL_DEBUG_FILE", folder_.file("log").c_str()};
  std::optional<ScopedVariable> level_;
  std::optional<ScopedVariable> subsystems_;
};

TEST_F(Log, InfoLineHasHostProcessThreadAndDevice) {
  start("INFO");
  note_device_of_thread(3);
  log_info(Subsystem::kInit, "{} ranks", 8);
  EXPECT_EQ(written(), sender() + " [3] NCCL INFO 8 ranks\n");
}

TEST_F(Log, LinesTellOfAnotherDeviceForAWhile) {
  start("INFO");
  note_device_of_thread(3);
  {
    const DeviceInLog other(5);
    log_info(Subsystem::kInit, "meanwhile");
  }
  log_info(Subsystem::kInit, "again");
  EXPECT_EQ(written(), sender() + " [5] NCCL INFO meanwhile\n" + sender() + " [3] NCCL INFO again\n");
}

TEST_F(Log, WarningHasAnEmptyLineTimePlaceAndBecomesTheLastError) {
  start("WARN");
  log_warn("peer {} is gone", 5);
  const int line = __LINE__ - 1;
  const std::string log = written();
  ASSERT_THAT(log, testing::StartsWith("\n["));
  EXPECT_THAT(log.substr(1, 22), MatchesRegex("\\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\\] "));
  EXPECT_EQ(log.substr(23), sender() + formatted(" [0] log_test.cc:{} NCCL WARN peer 5 is gone\n", line));
  EXPECT_STREQ(last_error(), "peer 5 is gone");
}

TEST_F(Log, SilenceKeepsTheLastErrorAndMakesNoFile) {
  start(nullptr);
  log_warn("unseen");
  log_info(Subsystem::kInit, "unseen too");
  log_version();
  EXPECT_STREQ(last_error(), "unseen");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("log")));
}

TEST_F(Log, NoteLeavesTheLastErrorAlone) {
  start("WARN");
  set_last_error("before");
  log_note("by the way");
  EXPECT_THAT(written(), HasSubstr("NCCL WARN by the way\n"));
  EXPECT_STREQ(last_error(), "before");
}

TEST_F(Log, SubsystemsFilterInfoButNotWarnings) {
  start("INFO", "NET");
  log_info(Subsystem::kInit, "hidden");
  log_info(Subsystem::kNet, "shown");
  log_warn("also shown");
  EXPECT_THAT(written(), testing::Not(HasSubstr("hidden")));
  EXPECT_THAT(written(), HasSubstr("INFO shown\n"));
  EXPECT_THAT(written(), HasSubstr("WARN also shown\n"));
}

TEST_F(Log, InitBootstrapAndEnvAreShownByDefault) {
  start("INFO");
  for (const Subsystem shown : {Subsystem::kInit, Subsystem::kBootstrap, Subsystem::kEnv}) {
    EXPECT_TRUE(log_enabled(LogLevel::kInfo, shown));
  }
  for (const Subsystem hidden : {Subsystem::kColl, Subsystem::kNet, Subsystem::kCall, Subsystem::kTuning}) {
    EXPECT_FALSE(log_enabled(LogLevel::kInfo, hidden));
  }
  start("INFO", "");
  EXPECT_FALSE(log_enabled(LogLevel::kInfo, Subsystem::kInit));
}

TEST_F(Log, CallsAreTracedWithoutDevice) {
  start("TRACE", "CALL");
  log_call("ncclGroupStart()");
  EXPECT_EQ(written(), sender() + " NCCL CALL ncclGroupStart()\n");
}

TEST_F(Log, VersionLineIsWrittenOnce) {
  start("WARN");
  log_version();
  log_version();
  EXPECT_EQ(written(),
            formatted("NCCL version 2.28.9+cuda{}.{} (Nitinol)\n", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10));
}

TEST_F(Log, FileIsTruncatedWhenLoggingStarts) {
  folder_.write("log", "old text\n");
  start("WARN");
  log_note("new");
  EXPECT_THAT(written(), testing::Not(HasSubstr("old text")));
}

TEST_F(Log, ResetReadsTheVariablesAgain) {
  start("WARN");
  EXPECT_FALSE(log_enabled(LogLevel::kInfo, Subsystem::kInit));
  setenv("NCCL_DEBUG", "INFO", 1);
  EXPECT_FALSE(log_enabled(LogLevel::kInfo, Subsystem::kInit));
  reset_log();
  EXPECT_TRUE(log_enabled(LogLevel::kInfo, Subsystem::kInit));
}

TEST_F(Log, AResetBetweenALinesQuestionAndItsWritingKeepsTheFile) {
  start("INFO");
  ASSERT_TRUE(log_enabled(LogLevel::kInfo, Subsystem::kInit));
  reset_log();  // as by another thread
  log_detail::write_info("here", {});
  EXPECT_THAT(written(), HasSubstr("NCCL INFO here\n"));
}

TEST_F(Log, UnopenableFileLeavesStandardOutput) {
  const ScopedVariable file("NCCL_DEBUG_FILE", folder_.file("no/such/folder").c_str());
  testing::internal::CaptureStdout();
  start("INFO");
  log_info(Subsystem::kInit, "here");
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("NCCL INFO here\n"));
  const std::string complaint = "NCCL_DEBUG_FILE=" + folder_.file("no/such/folder") +
                                " cannot be written to (No such file or directory): the log goes to standard output";
  EXPECT_THAT(take_complaints_about_log(), testing::ElementsAre(complaint));
  EXPECT_THAT(take_complaints_about_log(), testing::IsEmpty());
}

/// Whoever opens one to write waits for a reader otherwise.
TEST_F(Log, AFifoThatNobodyReadsLeavesStandardOutput) {
  const std::string fifo = folder_.file("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const ScopedVariable file("NCCL_DEBUG_FILE", fifo.c_str());
  testing::internal::CaptureStdout();
  start("INFO");
  log_info(Subsystem::kInit, "here");
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("NCCL INFO here\n"));
}

/// The log goes to a FIFO, which is read when the test does.
class LogInFifo : public Log {
 protected:
  LogInFifo() {
    EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0);
    reader_ = UniqueFd(open(path_.c_str(), O_RDONLY | O_NONBLOCK));
    start("INFO");
  }
  static void write_lines() {
    for (int i = 0; i < kMoreThanAPipeHolds; ++i) log_info(Subsystem::kInit, "{:100}", i);
  }
  /// What there is.
  std::string take() const {
    std::string taken;
    std::array<char, 4096> piece{};
    for (ssize_t got = 0; (got = read(reader_.get(), piece.data(), piece.size())) > 0;) {
      taken.append(piece.data(), static_cast<size_t>(got));
    }
    return taken;
  }

  static constexpr int kMoreThanAPipeHolds = 3000;  ///< lines

 private:
  const std::string path_ = folder_.file("fifo");
  UniqueFd reader_;
  ScopedVariable fifo_{"NCCL_DEBUG_FILE", path_.c_str()};
};

TEST_F(LogInFifo, IsRead) {
  log_info(Subsystem::kInit, "there");
  EXPECT_THAT(take(), HasSubstr("NCCL INFO there\n"));
}

/// It may stop to read for long: nothing here stops with it.
TEST_F(LogInFifo, LinesThatNobodyTakesAreLostAndCounted) {
  write_lines();
  std::string taken = take();
  log_info(Subsystem::kInit, "back");
  taken += take();
  const auto whole = static_cast<int>(std::count(taken.begin(), taken.end(), '\n')) - 2;
  const std::string lost = formatted("NCCL WARN {} lines are lost, which nobody took\n", kMoreThanAPipeHolds - whole);
  EXPECT_THAT(taken, HasSubstr(lost));
  EXPECT_THAT(taken, testing::EndsWith("NCCL INFO back\n"));
}

TEST_F(LogInFifo, LinesThatNobodyTakesAreLostThoughSignalsCome) {
  const Interruptions interruptions;
  write_lines();
  EXPECT_NE(take(), "");
}

/// The number of the descriptor that is open for it.
int descriptor_of(const std::string& path) {
  for (int fd = 3; fd < 1024; ++fd) {
    std::array<char, 4096> target{};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    if (readlink(link.c_str(), target.data(), target.size() - 1) > 0 && path == target.data()) return fd;
  }
  return -1;
}

TEST_F(Log, AFileOfTheProgramUnderItsNumberIsLeftAlone) {
  start("WARN");
  log_note("one");
  const int number = descriptor_of(folder_.file("log"));
  ASSERT_GE(number, 0);
  {
    const UniqueFd data(open(folder_.file("data").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(dup3(data.get(), number, O_CLOEXEC), number);
  }
  testing::internal::CaptureStdout();
  log_note("two");
  log_note("three");
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_THAT(said, HasSubstr("two"));
  EXPECT_THAT(said, HasSubstr("three"));
  EXPECT_EQ(folder_.read("data"), "");
  EXPECT_THAT(written(), testing::Not(HasSubstr("two")));
  EXPECT_EQ(close(number), 0);  // it is the program's to close
}

TEST_F(Log, AReaderThatGoesEndsNothing) {
  const std::string fifo = folder_.file("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  UniqueFd reader(open(fifo.c_str(), O_RDONLY | O_NONBLOCK));
  const ScopedVariable file("NCCL_DEBUG_FILE", fifo.c_str());
  start("INFO");
  reader.reset();
  log_info(Subsystem::kInit, "there");
}

TEST_F(Log, DevStderrIsStandardError) {
  const ScopedVariable file("NCCL_DEBUG_FILE", "/dev/stderr");
  testing::internal::CaptureStderr();
  start("INFO");
  log_info(Subsystem::kInit, "there");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("NCCL INFO there\n"));
}

TEST_F(Log, TimestampsFollowTheirLevels) {
  const ScopedVariable levels("NCCL_DEBUG_TIMESTAMP_LEVELS", "INFO");
  const ScopedVariable pattern("NCCL_DEBUG_TIMESTAMP_FORMAT", "at_noon_");
  start("INFO");
  log_info(Subsystem::kInit, "hi");
  log_note("ho");
  EXPECT_THAT(written(), testing::StartsWith("at noon " + sender() + " [0] NCCL INFO hi\n\n" + sender()));
}

TEST_F(Log, LinesOfManyThreadsStayWhole) {
  start("INFO");
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] {
      for (int j = 0; j < 50; ++j) log_info(Subsystem::kInit, "abcdefghijklmnopqrstuvwxyz");
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string log = written();
  std::size_t whole = 0;
  for (std::size_t at = 0; (at = log.find(" [0] NCCL INFO abcdefghijklmnopqrstuvwxyz\n", at)) != std::string::npos;
       ++at)
    ++whole;
  EXPECT_EQ(whole, 400u);
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 400);
}

}  // namespace
}  // namespace nitinol
