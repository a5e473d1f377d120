#include "base/settings.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "base/log_testing.h"
#include "base/settings_testing.h"

namespace nitinol {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ParseInteger, AcceptsDecimalAndHexadecimalWithSign) {
  EXPECT_EQ(parse_integer("0"), 0);
  EXPECT_EQ(parse_integer("4194304"), 4194304);
  EXPECT_EQ(parse_integer("-3"), -3);
  EXPECT_EQ(parse_integer("+3"), 3);
  EXPECT_EQ(parse_integer("0x10"), 16);
  EXPECT_EQ(parse_integer("-0XfF"), -255);
  EXPECT_EQ(parse_integer("010"), 10);
  EXPECT_EQ(parse_integer("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
}

TEST(ParseInteger, RefusesEverythingElse) {
  for (const char* text : {"", "-", "0x", "4M", " 4", "4 ", "--4", "1.5", "one", "9223372036854775808", "0x-1"}) {
    EXPECT_EQ(parse_integer(text), std::nullopt) << '"' << text << '"';
  }
}

TEST(SettingsTable, DefaultsOfNumbersAreNumbersInRange) {
  for (const SettingRow& row : settings_table()) {
    if (row.type == SettingType::kText || *row.default_text == '\0') continue;
    const auto standard = parse_integer(row.default_text);
    ASSERT_TRUE(standard.has_value()) << row.name;
    EXPECT_GE(*standard, row.lowest) << row.name;
    EXPECT_LE(*standard, row.highest) << row.name;
  }
}

TEST(SettingsTable, EveryRowHasHelpAndAUniqueName) {
  std::set<std::string_view> names;
  for (const SettingRow& row : settings_table()) {
    EXPECT_STRNE(row.help, "") << row.name;
    EXPECT_STRNE(row.since, "") << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
  }
}

TEST(Settings, UnsetNumberIsTheDefault) {
  const ScopedVariable unset("NCCL_SOCKET_RETRY_CNT", nullptr);
  EXPECT_EQ(settings().integer(Setting::kSocketRetryCnt), 34);
  EXPECT_EQ(settings().integer_if_set(Setting::kSocketRetryCnt), std::nullopt);
}

TEST(Settings, EmptyNumberCountsAsUnset) {
  const ScopedVariable empty("NCCL_BUFFSIZE", "");
  EXPECT_EQ(settings().integer_if_set(Setting::kBuffSize), std::nullopt);
}

TEST(Settings, NumberIsReadOnce) {
  const ScopedVariable set("NCCL_BUFFSIZE", "0x2000");
  EXPECT_EQ(settings().integer(Setting::kBuffSize), 8192);
  setenv("NCCL_BUFFSIZE", "16384", 1);
  EXPECT_EQ(settings().integer(Setting::kBuffSize), 8192);
}

TEST(Settings, NumberOutOfRangeOrUnreadableIsTheDefault) {
  for (const char* value : {"0", "-1", "many", "5x"}) {
    const ScopedVariable set("NCCL_SOCKET_RETRY_CNT", value);
    EXPECT_EQ(settings().integer(Setting::kSocketRetryCnt), 34) << value;
  }
  const ScopedVariable set("NITINOL_VGPUS", "1025");
  EXPECT_EQ(settings().integer(Setting::kVgpus), 8);
}

TEST(Settings, AnyNumberButZeroTurnsASwitchOn) {
  {
    const ScopedVariable set("NCCL_P2P_DISABLE", "2");
    EXPECT_TRUE(settings().flag(Setting::kP2pDisable));
  }
  const ScopedVariable zero("NCCL_P2P_DISABLE", "0");
  EXPECT_FALSE(settings().flag(Setting::kP2pDisable));
}

TEST(Settings, TextIsLookedUpAtEachCall) {
  const ScopedVariable set("NCCL_ALGO", "ring");
  EXPECT_EQ(settings().text(Setting::kAlgo), "ring");
  setenv("NCCL_ALGO", "tree", 1);
  EXPECT_EQ(settings().text(Setting::kAlgo), "tree");
}

TEST(Settings, EmptyTextCountsOnlyWhereTheRowSaysSo) {
  const ScopedVariable interface("NCCL_SOCKET_IFNAME", "");
  const ScopedVariable id("NCCL_COMM_ID", "");
  EXPECT_EQ(settings().text_if_set(Setting::kSocketIfname), std::nullopt);
  EXPECT_EQ(settings().text_if_set(Setting::kCommId), "");
}

TEST(Settings, ManyThreadsReadTheSameNumber) {
  const ScopedVariable set("NCCL_UID_STAGGER_RATE", "12");
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { right += settings().integer(Setting::kUidStaggerRate) == 12; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8);
}

// Each of these looks at what is logged, in a file.
class SettingsLog : public testing::Test {
 protected:
  std::string written() const { return log_.text(); }

  LogInFile log_{"INFO"};
  ScopedVariable subsystems_{"NCCL_DEBUG_SUBSYS", nullptr};
};

TEST_F(SettingsLog, VariableThatTakesEffectIsAnnouncedOnce) {
  const ScopedVariable number("NCCL_MIN_CTAS", "12");
  const ScopedVariable text("NCCL_PROTO", "LL");
  for (int i = 0; i < 2; ++i) {
    settings().integer_if_set(Setting::kMinCtas);
    settings().text(Setting::kProto);
  }
  const std::string log = written();
  EXPECT_THAT(log, HasSubstr("NCCL INFO NCCL_MIN_CTAS set by environment to 12\n"));
  EXPECT_THAT(log, HasSubstr("NCCL INFO NCCL_PROTO set by environment to LL\n"));
  EXPECT_EQ(log.find("NCCL_PROTO set"), log.rfind("NCCL_PROTO set"));
}

TEST_F(SettingsLog, UnreadableNumberIsNoted) {
  const ScopedVariable set("NCCL_SOCKET_RETRY_CNT", "4M");
  settings().integer(Setting::kSocketRetryCnt);
  EXPECT_THAT(written(), HasSubstr("NCCL WARN NCCL_SOCKET_RETRY_CNT=4M is not a number; the default (34) is used\n"));
}

TEST(Settings, WhatStandsBehindANumberDoesNotCount) {
  for (const char* value : {"7", " 7", "7 ", "7\r", "7\t# retries, as of old"}) {
    const ScopedVariable set("NCCL_SOCKET_RETRY_CNT", value);
    EXPECT_EQ(settings().integer(Setting::kSocketRetryCnt), 7) << '"' << value << '"';
  }
  for (const char* value : {" ", "\r", "# 7", "7#"}) {
    const ScopedVariable set("NCCL_SOCKET_RETRY_CNT", value);
    EXPECT_EQ(settings().integer(Setting::kSocketRetryCnt), 34) << '"' << value << '"';
  }
}

TEST(Settings, WordThatIsNotToChooseFromIsTheDefault) {
  for (const char* value : {"AF_INET5", "AF_", "AF_INET, AF_INET6", "AF-INET"}) {
    const ScopedVariable set("NCCL_SOCKET_FAMILY", value);
    EXPECT_EQ(settings().text_if_set(Setting::kSocketFamily), std::nullopt) << value;
  }
  for (const char* value : {"AF_INET", "AF_INET6"}) {
    const ScopedVariable set("NCCL_SOCKET_FAMILY", value);
    EXPECT_EQ(settings().text_if_set(Setting::kSocketFamily), value);
  }
}

TEST(Settings, WordsMayBeWrittenInAnyCase) {
  for (const SettingRow& row : settings_table()) {
    if (!row.acted_on() || *row.words == '\0') continue;
    for (std::string_view rest = row.words; !rest.empty();) {
      const std::string word(rest.substr(0, rest.find(", ")));
      rest.remove_prefix(std::min(word.size() + 2, rest.size()));
      std::string small = word;
      std::string large = word;
      std::transform(word.begin(), word.end(), small.begin(), [](unsigned char c) { return std::tolower(c); });
      std::transform(word.begin(), word.end(), large.begin(), [](unsigned char c) { return std::toupper(c); });
      for (const std::string& written : {small, large, small.substr(0, 1) + large.substr(1)}) {
        const ScopedVariable set(row.name, written.c_str());
        EXPECT_EQ(settings().text_if_set(row.setting), word) << row.name << "=" << written;
      }
    }
  }
}

TEST(Settings, ANumberAboveTheLastToChooseFromCountsAsThat) {
  for (const auto& [value, taken] : {std::pair{"4", "4"}, {"5", "4"}, {"0x10", "4"}, {"phb", "PHB"}}) {
    const ScopedVariable set("NCCL_P2P_LEVEL", value);
    EXPECT_EQ(settings().text_if_set(Setting::kP2pLevel), taken) << value;
  }
  const ScopedVariable negative("NCCL_P2P_LEVEL", "-1");
  EXPECT_EQ(settings().text_if_set(Setting::kP2pLevel), std::nullopt);
  const ScopedVariable words("NITINOL_CHECK", "5");
  EXPECT_EQ(settings().text_if_set(Setting::kCheck), std::nullopt) << "no numbers there";
}

TEST_F(SettingsLog, WordThatIsNotToChooseFromIsNotedOnce) {
  const ScopedVariable set("NITINOL_CHECK", "strickt");
  for (int i = 0; i < 2; ++i) settings().text_if_set(Setting::kCheck);
  const std::string log = written();
  EXPECT_THAT(log, HasSubstr("NCCL WARN NITINOL_CHECK=strickt is none of strict, off; the default is used\n"));
  EXPECT_EQ(log.find("NITINOL_CHECK"), log.rfind("NITINOL_CHECK"));
}

TEST_F(SettingsLog, UnknownVariablesAreWarnedAboutOnceWithTheNearestName) {
  const ScopedVariable wrong("NCCL_SOKET_IFNAME", "eth0");
  const ScopedVariable ours("NITINOL_INIT_TIMOUT", "3");
  const ScopedVariable far("NCCL_XYZZY_PLUGH_FROTZ", "1");
  const ScopedVariable far_from_ours("NITINOL_XYZZY_PLUGH_FROTZ", "1");
  const ScopedVariable hidden("NCCL_P2P_NVL_CHUNKSIZE", "1");
  const ScopedVariable idle("NCCL_IB_HCA", "mlx5");
  const ScopedVariable foreign("NCCL_VERSION", "2.28.9");
  warn_about_unknown_variables();
  const std::string log = written();
  EXPECT_THAT(
      log, HasSubstr("NCCL_SOKET_IFNAME is set, but no variable of that name is known; is NCCL_SOCKET_IFNAME meant?"));
  EXPECT_THAT(log, HasSubstr("is NITINOL_INIT_TIMEOUT meant?"));
  EXPECT_THAT(log, HasSubstr("NCCL WARN NITINOL_XYZZY_PLUGH_FROTZ is set, but no variable of that name is known\n"));
  EXPECT_THAT(log, HasSubstr("NCCL INFO NCCL_XYZZY_PLUGH_FROTZ is set, but no variable of that name is known\n"));
  EXPECT_THAT(log, Not(HasSubstr("NCCL_P2P_NVL_CHUNKSIZE"))) << "NCCL's own, though NCCL_P2P_NET_CHUNKSIZE is near";
  EXPECT_THAT(log, HasSubstr("NCCL INFO NCCL_IB_HCA is set but has no effect in this version of Nitinol\n"));
  EXPECT_THAT(log, Not(HasSubstr("NCCL_VERSION")));
  warn_about_unknown_variables();
  EXPECT_EQ(written(), log);
}

TEST(NearestSettingName, IsNoneForFarNames) {
  EXPECT_EQ(nearest_setting_name("NCCL_DEBUGG"), "NCCL_DEBUG");
  EXPECT_EQ(nearest_setting_name("NCCL_P2P_DISABLED"), "NCCL_P2P_DISABLE");
  EXPECT_EQ(nearest_setting_name("NITINOL_SPINS"), "NITINOL_SPIN");
  EXPECT_EQ(nearest_setting_name("NCCL_P2P_NET_DISABLE"), "") << "an undocumented one, which means something else";
  EXPECT_EQ(nearest_setting_name("SOMETHING_ELSE_ALTOGETHER"), "");
  for (const char* const of_users : {"NCCL_LIB", "NCCL_INC", "NCCL_TEST", "NCCL_FOO"}) {
    EXPECT_EQ(nearest_setting_name(of_users), "") << of_users << ": short words are near others";
  }
}

// UPDATE_DOCS=1 in the environment writes the page anew.
TEST(SettingsPage, DocsAreUpToDate) {
  const std::string path = NITINOL_SOURCE_DIR "/docs/settings.md";
  if (std::getenv("UPDATE_DOCS") != nullptr) std::ofstream(path, std::ios::binary) << settings_markdown();
  std::ifstream file(path, std::ios::binary);
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(page, settings_markdown()) << "run: UPDATE_DOCS=1 base_test --gtest_filter=SettingsPage.*";
}

}  // namespace
}  // namespace nitinol
