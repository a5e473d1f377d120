// What a question collects.
#include "diagnostics/ras/gather.h"

#include <gtest/gtest.h>

namespace nitinol::ras {
namespace {

TEST(RasJob, NamesTheDumpsForWhichThereIsNoRoom) {
  Job job;
  job.take({{CommunicatorId{1}, 0, "12345"}, {CommunicatorId{1}, 1, "1234"}}, 10);
  job.take({{CommunicatorId{1}, 2, "12"}, {CommunicatorId{1}, 3, "1"}, {CommunicatorId{2}, 0, ""}}, 10);
  const std::vector<RankDump> taken{
      {CommunicatorId{1}, 0, "12345"}, {CommunicatorId{1}, 1, "1234"}, {CommunicatorId{1}, 3, "1"}};
  const std::vector<RankDump> left_out{{CommunicatorId{1}, 2, ""}, {CommunicatorId{2}, 0, ""}};
  EXPECT_EQ(job.dumps, taken);
  EXPECT_EQ(job.left_out, left_out);
}

}  // namespace
}  // namespace nitinol::ras
