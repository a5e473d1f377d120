#include "diagnostics/ras/render.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace nitinol::ras {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr CommunicatorId kId{0xab};

RankReport report(int rank, std::uint64_t begun, std::uint64_t ended, const std::string& operation) {
  RankReport told;
  told.rank = rank;
  told.state = "ready";
  told.issued = begun;
  told.begun = begun;
  told.ended = ended;
  told.progress_known = true;
  told.operation = operation;
  return told;
}

/// One communicator of one rank per process.
Job job_of(const std::vector<std::optional<RankReport>>& ranks) {
  Job job;
  Roster& roster = job.communicators[kId];
  roster.id = kId;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const ProcessName name{100 + i, 1, "h", static_cast<int>(1000 + i)};
    roster.processes.push_back(name);
    roster.members.push_back({static_cast<std::uint32_t>(i), 0});
    JobProcess& process = job.processes[name.number];
    process.name = name;
    if (ranks[i]) {
      process.report.emplace();
      process.report->communicators = {{kId, {*ranks[i]}}};
    }
  }
  return job;
}

TEST(RasRanks, AreWrittenAsRanges) {
  EXPECT_EQ(ranks_text({1}), "rank 1");
  EXPECT_EQ(ranks_text({1, 2}), "ranks 1, 2");
  EXPECT_EQ(ranks_text({0, 1, 2, 3, 5, 7, 8}), "ranks 0-3, 5, 7, 8");
}

TEST(RasRender, AHealthyJob) {
  const Job job = job_of({report(0, 4, 4, "A"), report(1, 4, 4, "A")});
  EXPECT_TRUE(healthy(find(job).front()));
  const std::string text = render_text(job, false);
  EXPECT_THAT(text, HasSubstr("Communicator ab000000000000000000000000000000: 2 ranks, 2 processes, 1 host\n"));
  EXPECT_THAT(text, HasSubstr("All ranks have ended all 4 collectives."));
  EXPECT_THAT(text, Not(HasSubstr("missing")));
  EXPECT_EQ(nlohmann::json::parse(render_json(job))["healthy"], true);
}

TEST(RasRender, NamesMissingRanksAndWhy) {
  Job job = job_of({report(0, 2, 1, "A number 2"), std::nullopt, std::nullopt, std::nullopt, std::nullopt});
  job.processes[101].state = ProcessState::kDead;
  job.processes[102].state = ProcessState::kStopped;
  job.processes[102].trouble = "no answer within 5.0 s";
  job.processes[103].report.emplace();  // it answers, but not for this communicator
  job.processes[104].state = ProcessState::kRunning;
  const Findings findings = find(job).front();
  EXPECT_EQ(findings.missing, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_FALSE(healthy(findings));
  const std::string text = render_text(job, true);
  EXPECT_THAT(text, HasSubstr("2 of 5 processes answered"));
  EXPECT_THAT(text, HasSubstr("Missing: rank 1 (host h, pid 1001, device 0): its process is dead\n"));
  EXPECT_THAT(text, HasSubstr("its process is stopped (SIGSTOP, or a debugger) (no answer within 5.0 s)"));
  EXPECT_THAT(text, HasSubstr("alive but has left the communicator"));
  EXPECT_THAT(text, HasSubstr("its process is alive, but does not answer\n"));
  const auto json = nlohmann::json::parse(render_json(job));
  EXPECT_EQ(json["communicators"][0]["missing"], nlohmann::json::array({1, 2, 3, 4}));
  EXPECT_EQ(json["processes"][1]["state"], "dead");
  EXPECT_EQ(json["processes"][2]["state"], "stopped");
  EXPECT_EQ(json["processes"][4]["state"], "alive");
}

TEST(RasRender, TakesNobodyWhoMayBeOnItsWayForOneWhoHasLeft) {
  Job job = job_of({report(0, 0, 0, ""), report(1, 0, 0, ""), std::nullopt});
  job.processes[102].report.emplace();
  const auto state_of = [&](int rank) -> std::string& {
    return job.processes[static_cast<std::uint64_t>(100 + rank)].report->communicators[0].ranks[0].state;
  };
  const auto missing = [&] { return find(job).front().ranks[2].missing; };
  state_of(0) = kInitialising;
  EXPECT_THAT(missing(), HasSubstr("alive but has left")) << "rank 1 is ready, and has been waited for";
  for (const char* const state : {kInitialising, kAborted}) {
    state_of(1) = state;
    EXPECT_THAT(missing(), HasSubstr("alive but is not in the communicator yet, or has left it already"));
  }
}

TEST(RasRender, NamesRanksThatLagAndCallsThatDiffer) {
  Job job = job_of({report(0, 2, 1, "A number 2"), report(1, 2, 1, "A number 2"), report(2, 1, 1, "A number 1")});
  Findings findings = find(job).front();
  EXPECT_EQ(findings.inside, (std::vector<int>{0, 1}));
  EXPECT_EQ(findings.behind, std::vector<int>{2});
  EXPECT_TRUE(healthy(findings));  // it may simply be slower
  EXPECT_THAT(render_text(job, false),
              HasSubstr("In A number 2: ranks 0, 1.\n  Not there yet:\n    rank 2: idle after A number 1"));
  job = job_of({report(0, 2, 1, "A number 2"), report(1, 2, 1, "B number 2")});
  EXPECT_FALSE(healthy(find(job).front()));
  EXPECT_THAT(render_text(job, false), HasSubstr("The ranks' calls do not match:\n    rank 0: in A number 2\n"));
  job = job_of({report(0, 2, 1, "A number 2"), report(1, 2, 1, "")});
  EXPECT_TRUE(healthy(find(job).front())) << "nothing is known of rank 1's call";
}

TEST(RasRender, SaysAnErrorOnceForAllRanksThatReportIt) {
  RankReport failed = report(0, 1, 1, "A");
  failed.state = "failed";
  failed.failure = "rank 1 \"died\"";
  Job job = job_of({failed, failed, report(2, 1, 1, "A")});
  job.processes[101].report->communicators[0].ranks[0].rank = 1;
  EXPECT_THAT(render_text(job, false), HasSubstr("Error on ranks 0, 1: rank 1 \"died\"\n"));
  const auto json = nlohmann::json::parse(render_json(job));
  EXPECT_EQ(json["communicators"][0]["errors"][0]["sentence"], "rank 1 \"died\"");
}

TEST(RasRender, BytesThatAreNoTextDoNotSpoilTheJson) {
  RankReport odd = report(0, 1, 1, "A");
  odd.failure = "\xff\xfe";
  const auto json = nlohmann::json::parse(render_json(job_of({odd, std::nullopt})));
  EXPECT_EQ(json["communicators"][0]["errors"].size(), 1U);
}

}  // namespace
}  // namespace nitinol::ras
