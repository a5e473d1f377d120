#include "diagnostics/ras/messages.h"

#include <gtest/gtest.h>

namespace nitinol::ras {
namespace {

Ask full_ask() {
  Ask ask;
  ask.what = Ask::What::kReportAndDumps;
  ask.dumps_as_text = true;
  ask.patience_ms = 1234;
  ask.hops = {1, ~std::uint64_t{0}};
  ask.known = {CommunicatorId{1, 2, 3}, CommunicatorId{}};
  return ask;
}

Tell full_tell() {
  Tell tell;
  tell.report.name = {7, 8, "host", 9};
  RankReport rank;
  rank.rank = 3;
  rank.state = "failed";
  rank.failure = "because";
  rank.issued = 5;
  rank.begun = 4;
  rank.ended = 3;
  rank.progress_known = true;
  rank.operation = "AllReduce";
  rank.milliseconds = 10;
  tell.report.communicators = {{CommunicatorId{4}, {rank, RankReport{}}}, {CommunicatorId{5}, {}}};
  Roster roster;
  roster.id = CommunicatorId{4};
  roster.processes = {{7, 8, "host", 9}, {10, 8, "", -1}};
  roster.members = {{0, 0}, {1, 3}, {0, -1}};
  tell.report.rosters = {roster};
  tell.report.sightings = {{10, ProcessState::kDead}, {11, ProcessState::kStopped}, {12, ProcessState::kRunning}};
  tell.dumps = {{CommunicatorId{4}, 3, "line\nline\n"}};
  tell.hung_up = true;
  return tell;
}

template <typename Decode>
void expect_nothing_shorter_or_longer(std::vector<std::byte> bytes, const Decode& decode) {
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode(std::span(bytes).first(size))) << size << " of " << bytes.size();
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode(bytes));
}

TEST(RasMessages, SurviveTheirBytesAndNothingShorterOrLonger) {
  EXPECT_EQ(decode_ask(encode(full_ask())), full_ask());
  EXPECT_EQ(decode_ask(encode(Ask())), Ask());
  expect_nothing_shorter_or_longer(encode(full_ask()), decode_ask);
  EXPECT_EQ(decode_tell(encode(full_tell())), full_tell());
  EXPECT_EQ(decode_tell(encode(Tell())), Tell());
  expect_nothing_shorter_or_longer(encode(full_tell()), decode_tell);
}

TEST(RasMessages, RefuseWhatIsOutOfRange) {
  Ask ask;
  ask.hops.resize(Ask::kMostHops + 1);
  EXPECT_FALSE(decode_ask(encode(ask)));
  ask.hops.clear();
  ask.known.resize(Ask::kMostKnown + 1);
  EXPECT_FALSE(decode_ask(encode(ask)));
  Tell tell = full_tell();
  tell.report.rosters[0].members[1].process = 2;  // there are two
  EXPECT_FALSE(decode_tell(encode(tell)));
  tell = full_tell();
  tell.report.communicators[0].ranks[0].rank = -1;
  EXPECT_FALSE(decode_tell(encode(tell)));
  tell = full_tell();
  tell.report.sightings[0].state = ProcessState::kUnknown;
  EXPECT_FALSE(decode_tell(encode(tell)));
}

TEST(RasMessages, AskFitsIntoAControlFrame) {
  Ask ask;
  ask.hops.resize(Ask::kMostHops);
  ask.known.resize(Ask::kMostKnown);
  EXPECT_LE(encode(ask).size(), 4096U);
}

}  // namespace
}  // namespace nitinol::ras
