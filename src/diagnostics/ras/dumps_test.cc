#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "base/error.h"
#include "base/host.h"
#include "diagnostics/ras/dump_signal.h"
#include "diagnostics/ras/registry.h"

namespace nitinol::ras {
namespace {

TEST(DumpPath, NamesHostProcessRankAndCommunicator) {
  const CommunicatorId id{0x12, 0x34, 0x56, 0x78, 0x9a};
  EXPECT_EQ(dump_path("/d/%h-%p-%c-%r.json", id, 7), formatted("/d/{}-{}-12345678-7.json", host_name(), getpid()));
  EXPECT_EQ(dump_path("%%%x%", id, 7), "%%x%");
}

TEST(DumpSignal, IsGivenByNameOrNumber) {
  EXPECT_EQ(parse_signal("SIGUSR1"), SIGUSR1);
  EXPECT_EQ(parse_signal("usr2"), SIGUSR2);
  EXPECT_EQ(parse_signal("34"), 34);
  for (const char* text : {"", "SIG", "KILL", "9", "0", "-1", "65", "11", "nonsense"})
    EXPECT_EQ(parse_signal(text), 0) << text;
}

}  // namespace
}  // namespace nitinol::ras
