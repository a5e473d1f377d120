#include "diagnostics/flight_recorder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace nitinol {
namespace {

Launch broadcast(size_t bytes) {
  CollectiveWork work;
  work.what = Collective::kBroadcast;
  work.count = bytes;
  work.root = 3;
  return Launch{.collectives = {work}, .messages = {}};
}

MessageWork message(MessageWork::Direction direction, int peer, size_t bytes) {
  MessageWork work;
  work.direction = direction;
  work.peer = peer;
  work.bytes = bytes;
  work.stated = DataType::kFloat32;
  return work;
}

Launch send_and_receive(size_t bytes) {
  return Launch{.collectives = {},
                .messages = {message(MessageWork::Direction::kSend, 1, bytes),
                             message(MessageWork::Direction::kReceive, 3, 2 * bytes)}};
}

nlohmann::json told_by(const FlightRecorder& recorder, const FlightRecorder::About& about) {
  return nlohmann::json::parse(recorder.json(about));
}

std::vector<std::string> states_in(const nlohmann::json& told) {
  std::vector<std::string> states;
  for (const auto& event : told["traceEvents"]) states.push_back(event["args"]["state"]);
  return states;
}

using States = std::vector<std::string>;

TEST(FlightRecorder, TellsWhatWasIssuedAndHowFarItHasCome) {
  FlightRecorder recorder;
  for (size_t i = 1; i <= 3; ++i) recorder.note(broadcast(i), nullptr);
  FlightRecorder::About about;
  about.rank = 2;
  about.ranks = 4;
  about.host = "h\"\\";
  about.failure = "a\nb";
  about.begun = 2;
  about.ended = 1;
  about.progress_known = true;
  about.counts_runs = true;
  const auto told = told_by(recorder, about);
  EXPECT_EQ(told["rank"], 2);
  EXPECT_EQ(told["host"], "h\"\\");
  EXPECT_EQ(told["failure"], "a b");
  EXPECT_EQ(told["issued"], 3);
  ASSERT_EQ(told["traceEvents"].size(), 3U);
  EXPECT_EQ(told["traceEvents"][1]["name"], "Broadcast number 2 (count 2, type uint8, root 3)");
  EXPECT_EQ(states_in(told), (States{"ended", "begun", "issued"}));
}

TEST(FlightRecorder, TellsSendsAndReceivesOneByOne) {
  FlightRecorder recorder;
  recorder.note(send_and_receive(4), nullptr);
  recorder.note(broadcast(1), nullptr);
  recorder.note(send_and_receive(8), nullptr);
  recorder.note(Launch{.collectives = {}, .messages = {message(MessageWork::Direction::kSend, 1, 0)}}, nullptr);
  FlightRecorder::About about;
  about.launches_through = 1;
  const auto told = told_by(recorder, about);
  EXPECT_EQ(told["messages"], 5);
  ASSERT_EQ(told["traceEvents"].size(), 6U);
  EXPECT_EQ(told["traceEvents"][0]["name"], "Send number 1 to rank 1 (count 1, type float32)");
  EXPECT_EQ(told["traceEvents"][2]["name"], "Broadcast number 1 (count 1, type uint8, root 3)");
  const auto& receive = told["traceEvents"][4];
  EXPECT_EQ(receive["name"], "Recv number 2 from rank 3 (count 4, type float32)");
  EXPECT_EQ(receive["args"]["direction"], "receive");
  EXPECT_EQ(receive["args"]["peer"], 3);
  EXPECT_EQ(receive["args"]["bytes"], 16);
  EXPECT_EQ(receive["args"]["launch"], 3);
  EXPECT_EQ(told["traceEvents"][5]["name"], "Send to rank 1 (count 0, type float32)");
  EXPECT_EQ(states_in(told), (States{"ended", "ended", "issued", "issued", "issued", "issued"}));
  EXPECT_EQ(told["idle"], false);
}

TEST(FlightRecorder, TellsWhichMessagesHaveBegun) {
  FlightRecorder recorder;
  recorder.note(send_and_receive(4), nullptr);
  recorder.note(send_and_receive(8), nullptr);
  FlightRecorder::About about;
  about.launches_through = 0;
  EXPECT_EQ(told_by(recorder, about)["beginsKnown"], false);
  about.launches_begun = 1;
  about.awaited = {{.sends = false, .peer = 3, .message = {1, 8, DataType::kFloat32}}};
  const auto told = told_by(recorder, about);
  EXPECT_EQ(told["beginsKnown"], true);
  EXPECT_EQ(states_in(told), (States{"begun", "begun", "issued", "issued"}));
  ASSERT_EQ(told["awaited"].size(), 1U);
  EXPECT_EQ(told["awaited"][0]["name"], told["traceEvents"][1]["name"]);
  EXPECT_EQ(told["awaited"][0]["number"], 1);
  EXPECT_EQ(told["awaited"][0]["direction"], "receive");
  EXPECT_EQ(told["awaited"][0]["peer"], 3);
}

TEST(FlightRecorder, WritesWhatIsNoUtf8AsJsonAllTheSame) {
  FlightRecorder::About about;
  about.host = "h\xff\"\xc3\xa4\xe2\x82";
  about.failure = "of host \xc0\n";
  const auto told = told_by(FlightRecorder(), about);
  EXPECT_EQ(told["host"], "h\uFFFD\"\u00e4\uFFFD");
  EXPECT_EQ(told["failure"], "of host \uFFFD ");
}

TEST(FlightRecorder, SaysWhatIsNotKnown) {
  FlightRecorder recorder;
  FlightRecorder::About about;
  EXPECT_EQ(told_by(recorder, about)["idle"], true) << "nothing was issued";
  recorder.note(broadcast(1), nullptr);
  recorder.note(send_and_receive(4), nullptr);
  EXPECT_EQ(states_in(told_by(recorder, about)), (States{"unknown", "unknown", "unknown"}));
  EXPECT_EQ(told_by(recorder, about)["idle"], nullptr);
  EXPECT_NE(recorder.text(about).find("not known whether all have ended\n"), std::string::npos);
  EXPECT_NE(recorder.text(about).find("finished is not known"), std::string::npos);
  about.progress_known = true;  // a GPU's
  about.begun = about.ended = 1;
  EXPECT_EQ(states_in(told_by(recorder, about)), (States{"ended", "unknown", "unknown"}));
  about.launches_through = 2;
  EXPECT_EQ(told_by(recorder, about)["idle"], true);
  EXPECT_NE(recorder.text(about).find("all have ended\n"), std::string::npos);
}

TEST(FlightRecorder, TellsWhenLaunchesRan) {
  FlightRecorder recorder;
  recorder.note(broadcast(1), nullptr);
  recorder.note(broadcast(9), nullptr, true);
  recorder.note(send_and_receive(4), nullptr);
  recorder.note(broadcast(2), nullptr);
  FlightRecorder::About about;
  about.launches_through = 1;
  const int64_t later = about.scale.nanoseconds(about.asked) / 1000 + 1'000'000;  // microseconds
  about.launches = {{.launch = 1, .begun = 5, .ended = 7}, {.launch = 2, .begun = later * 1000}};
  const auto events = told_by(recorder, about)["traceEvents"];
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(states_in({{"traceEvents", events}}), (States{"ended", "captured", "begun", "begun", "issued", "ended"}));
  EXPECT_EQ(events[0]["args"]["started"], events[0]["ts"]) << "clocks differ: not before it was put into the stream";
  EXPECT_EQ(events[0]["args"]["finished"], events[0]["ts"]);
  EXPECT_FALSE(events[1]["args"].contains("started"));
  for (const size_t message : {size_t{2}, size_t{3}}) {
    EXPECT_EQ(events[message]["args"]["started"].get<double>(), static_cast<double>(later));
    EXPECT_FALSE(events[message]["args"].contains("finished"));
  }
  EXPECT_FALSE(events[4]["args"].contains("started"));
  EXPECT_EQ(events[5]["ph"], "X") << "a bar for what has ended";
  EXPECT_EQ(events[5]["name"], events[0]["name"]);
  EXPECT_EQ(recorder.text(about).find("is not known"), std::string::npos);
}

TEST(FlightRecorder, CountsWhatGoesIntoGraphsApart) {
  FlightRecorder recorder;
  recorder.note(broadcast(1), nullptr, true);
  recorder.note(send_and_receive(4), nullptr, true);
  recorder.note(broadcast(2), nullptr);
  FlightRecorder::About about;
  about.begun = about.ended = 7;  // of a graph that was launched again and again
  about.progress_known = about.counts_runs = true;
  const auto told = told_by(recorder, about);
  EXPECT_EQ(told["issued"], 1);
  EXPECT_EQ(told["messages"], 0);
  EXPECT_EQ(told["captured"], 3);
  EXPECT_EQ(told["traceEvents"][0]["name"], "Broadcast (count 1, type uint8, root 3)");
  EXPECT_EQ(told["traceEvents"][1]["name"], "Send to rank 1 (count 1, type float32)");
  EXPECT_EQ(states_in(told), (States{"captured", "captured", "captured", "unknown"}));
}

TEST(FlightRecorder, NamesTheLastThatWasIssuedWhateverWentIntoGraphs) {
  FlightRecorder recorder;
  const auto last = [&](uint64_t number) { return recorder.last_issued(TimeScale(), number).text; };
  recorder.note(broadcast(1), nullptr, true);
  EXPECT_EQ(last(9), "");
  recorder.note(broadcast(2), nullptr);
  recorder.note(broadcast(3), nullptr);
  recorder.note(broadcast(4), nullptr, true);
  EXPECT_EQ(last(0), "");
  EXPECT_EQ(last(1), "Broadcast number 1 (count 2, type uint8, root 3)");
  EXPECT_EQ(last(9), "Broadcast number 2 (count 3, type uint8, root 3)");
  for (size_t i = 0; i < FlightRecorder::kKept; ++i) recorder.note(broadcast(5), nullptr, true);
  EXPECT_EQ(last(2), "Broadcast number 2 (count 3, type uint8, root 3)");
}

TEST(FlightRecorder, WhatComesLaterIsNotTakenForIdle) {
  FlightRecorder recorder;
  recorder.note(broadcast(1), nullptr, true);
  recorder.note(broadcast(1), nullptr);
  FlightRecorder::About about;
  about.idle = true;
  EXPECT_EQ(told_by(recorder, about)["idle"], true);
  EXPECT_EQ(states_in(told_by(recorder, about)), (States{"captured", "ended"}));
  recorder.note(broadcast(2), nullptr);
  EXPECT_EQ(told_by(recorder, about)["idle"], nullptr);
  EXPECT_EQ(states_in(told_by(recorder, about)), (States{"captured", "ended", "unknown"}));
}

TEST(FlightRecorder, TellsWhatIsInSetup) {
  FlightRecorder recorder;
  recorder.note(broadcast(1), nullptr);
  recorder.note(send_and_receive(4), nullptr);
  FlightRecorder::About about;
  about.launches_through = 2;
  {
    Launch launch = send_and_receive(8);
    launch.collectives = broadcast(2).collectives;
    launch.messages.push_back(message(MessageWork::Direction::kSend, 1, 12));
    launch.messages.push_back(message(MessageWork::Direction::kSend, 9, 0));
    const FlightRecorder::SettingUp noted(recorder, launch);
    const auto told = told_by(recorder, about);
    EXPECT_EQ(states_in(told), (States{"ended", "ended", "ended", "setup", "setup", "setup", "setup", "setup"}));
    const auto& events = told["traceEvents"];
    EXPECT_EQ(events[3]["name"], "Broadcast number 2 (count 2, type uint8, root 3)");
    EXPECT_EQ(events[4]["name"], "Send number 2 to rank 1 (count 2, type float32)");
    EXPECT_EQ(events[5]["name"], "Recv number 2 from rank 3 (count 4, type float32)");
    EXPECT_EQ(events[6]["name"], "Send number 3 to rank 1 (count 3, type float32)");
    EXPECT_EQ(told["idle"], false);
    EXPECT_EQ(told["issued"], 1);
    EXPECT_EQ(told["messages"], 2);
    EXPECT_NE(recorder.text(about).find("\nsetup    "), std::string::npos) << recorder.text(about);
  }
  EXPECT_EQ(states_in(told_by(recorder, about)), (States{"ended", "ended", "ended"}));
  EXPECT_EQ(told_by(recorder, about)["idle"], true);
  recorder.note(send_and_receive(8), nullptr);
  EXPECT_EQ(told_by(recorder, about)["traceEvents"][3]["name"], "Send number 2 to rank 1 (count 2, type float32)");
}

TEST(FlightRecorder, KeepsTheLast) {
  FlightRecorder recorder;
  for (size_t i = 1; i <= FlightRecorder::kKept + 5; ++i) recorder.note(broadcast(i), nullptr);
  for (size_t i = 1; i <= FlightRecorder::kKept; ++i) recorder.note(send_and_receive(i), nullptr);
  const auto told = told_by(recorder, {});
  ASSERT_EQ(told["traceEvents"].size(), 2 * FlightRecorder::kKept);
  EXPECT_EQ(told["traceEvents"][0]["args"]["number"], 6);
  EXPECT_EQ(told["traceEvents"][FlightRecorder::kKept - 1]["args"]["number"], FlightRecorder::kKept + 5);
  EXPECT_EQ(told["traceEvents"].back()["args"]["number"], FlightRecorder::kKept);
}

}  // namespace
}  // namespace nitinol
