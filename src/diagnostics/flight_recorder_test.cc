#include "diagnostics/flight_recorder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace nitinol {
namespace {

Launch broadcast(size_t bytes) {
  CollectiveWork work;
  work.what = Collective::kBroadcast;
  work.count = bytes;
  work.root = 3;
  return Launch{.collectives = {work}, .messages = {}};
}

TEST(FlightRecorder, TellsWhatWasIssuedAndHowFarItHasCome) {
  FlightRecorder recorder;
  for (size_t i = 1; i <= 3; ++i) recorder.note(broadcast(i), nullptr);
  recorder.note(Launch{.collectives = {}, .messages = {{}, {}}}, nullptr);
  FlightRecorder::About about;
  about.rank = 2;
  about.ranks = 4;
  about.host = "h\"\\";
  about.failure = "a\nb";
  about.begun = 2;
  about.ended = 1;
  about.progress_known = true;
  const auto told = nlohmann::json::parse(recorder.json(about));
  EXPECT_EQ(told["rank"], 2);
  EXPECT_EQ(told["host"], "h\"\\");
  EXPECT_EQ(told["failure"], "a b");
  EXPECT_EQ(told["issued"], 3);
  ASSERT_EQ(told["traceEvents"].size(), 4U);
  EXPECT_EQ(told["traceEvents"][1]["name"], "Broadcast number 2 (count 2, type uint8, root 3)");
  EXPECT_EQ(told["traceEvents"][0]["args"]["state"], "ended");
  EXPECT_EQ(told["traceEvents"][1]["args"]["state"], "begun");
  EXPECT_EQ(told["traceEvents"][2]["args"]["state"], "issued");
  EXPECT_EQ(told["traceEvents"][3]["name"], "2 sends and receives");
}

TEST(FlightRecorder, KeepsTheLast) {
  FlightRecorder recorder;
  for (size_t i = 1; i <= FlightRecorder::kKept + 5; ++i) recorder.note(broadcast(i), nullptr);
  const auto told = nlohmann::json::parse(recorder.json({}));
  ASSERT_EQ(told["traceEvents"].size(), FlightRecorder::kKept);
  EXPECT_EQ(told["traceEvents"][0]["args"]["number"], 6);
  EXPECT_EQ(told["traceEvents"].back()["args"]["number"], FlightRecorder::kKept + 5);
}

}  // namespace
}  // namespace nitinol
