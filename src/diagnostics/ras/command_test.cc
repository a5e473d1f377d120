#include "diagnostics/ras/command.h"

#include <gtest/gtest.h>

namespace nitinol::ras {
namespace {

using Kind = Command::Kind;

TEST(RasCommand, IsReadWhateverItsCaseAndSpaces) {
  EXPECT_EQ(parse_command("STATUS").kind, Kind::kStatus);
  EXPECT_EQ(parse_command("  status\t\r").kind, Kind::kStatus);
  EXPECT_EQ(parse_command("Verbose  Status").kind, Kind::kVerboseStatus);
  EXPECT_EQ(parse_command("dump").kind, Kind::kDump);
  EXPECT_EQ(parse_command("CLIENT PROTOCOL 2").kind, Kind::kProtocol);
  EXPECT_EQ(parse_command("").kind, Kind::kNothing);
  EXPECT_EQ(parse_command(" \r\n").kind, Kind::kNothing);
}

TEST(RasCommand, TakesTimeoutsInSeconds) {
  using std::chrono::milliseconds;
  EXPECT_EQ(parse_command("TIMEOUT 5").timeout, milliseconds(5000));
  EXPECT_EQ(parse_command("timeout 0.25").timeout, milliseconds(250));
  EXPECT_EQ(parse_command("timeout 0").kind, Kind::kTimeout);
  for (const char* text : {"TIMEOUT", "TIMEOUT -1", "TIMEOUT x", "TIMEOUT 1 2", "TIMEOUT nan", "TIMEOUT inf",
                           "TIMEOUT 1e300", "TIMEOUT 86401", "TIMEOUT 5s"}) {
    EXPECT_EQ(parse_command(text).kind, Kind::kMistake) << text;
  }
}

TEST(RasCommand, TakesTwoFormats) {
  EXPECT_TRUE(parse_command("SET FORMAT json").json);
  EXPECT_EQ(parse_command("set format TEXT").kind, Kind::kFormat);
  EXPECT_FALSE(parse_command("set format TEXT").json);
  for (const char* text : {"SET FORMAT", "SET FORMAT xml", "SET FORMAT json json", "SET"}) {
    EXPECT_EQ(parse_command(text).kind, Kind::kMistake) << text;
  }
}

TEST(RasCommand, SaysWhatIsWrongWithTheRest) {
  for (const char* text : {"STATUS now", "VERBOSE", "STAT", "\x80\xff", "CLIENT PROTOCOL", "a b c d e f g h i j k"}) {
    EXPECT_EQ(parse_command(text).kind, Kind::kMistake) << text;
    EXPECT_NE(parse_command(text).mistake, "") << text;
  }
}

}  // namespace
}  // namespace nitinol::ras
