// The verifier must find what is wrong with programs in parts: broken on purpose.
#include <gtest/gtest.h>

#include "executor/verify/verifier.h"

namespace nitinol::verify {
namespace {

using algorithm::input;
using algorithm::output;
using algorithm::Program;
using algorithm::Recorder;
using algorithm::Span;
using algorithm::Step;
using algorithm::Task;

constexpr size_t kChunk = 32;
const Span kIn = input(0, kChunk);
const Span kOut = output(0, kChunk);
constexpr Starved kPart0{.first_part = 0, .parts = 1};
constexpr Starved kPart1{.first_part = 1, .parts = 1};

/// What a lambda does with the primitives as a part, for a collective of two ranks with root 0.
template <class Body>
Program program_of(Collective what, int parts, Body body) {
  const Task task{what, 2, 0, share_of(kChunk, kChunk, 0, 1, 16)};
  Program program{.task = task, .traces = {}, .parts = parts};
  for (int process = 0; process < task.ranks * parts; ++process) {
    Recorder recorder(process / parts, task);
    body(recorder, process % parts);
    program.traces.push_back(recorder.take());
  }
  return program;
}

void set_streams(Program& program, int process, int stream_in, int stream_out) {
  for (Step& step : program.traces[process]) {
    step.stream_in = stream_in;
    step.stream_out = stream_out;
  }
}

/// Part 1 of each rank sends what part 0 of the other combines. Right out of place only.
Program exchange() {
  return program_of(Collective::kAllReduce, 2, [](Recorder& p, int part) {
    if (part == 0) p.recv_reduce_finish(1 - p.rank(), kIn, kOut);
    if (part == 1) p.send(1 - p.rank(), kIn);
  });
}

/// Part 1 of the root sends what part 0 copies, though it may not be there yet.
Program hasty_broadcast() {
  return program_of(Collective::kBroadcast, 2, [](Recorder& p, int part) {
    if (p.rank() == 0 && part == 0) p.copy(kIn, kOut);
    if (p.rank() == 0 && part == 1) p.send(1, kOut);
    if (p.rank() == 1 && part == 1) p.recv(0, kOut);
  });
}

TEST(VerifierOfParts, AcceptsWhatIsRight) {
  for (const Starved& starved : {Starved{}, kPart0, kPart1, Starved{.rank = 1, .parts = 2}}) {
    const Report report = verify(exchange(), {.starved = starved});
    EXPECT_EQ(report.text(), "");
  }
}

TEST(VerifierOfParts, FindsARaceInPlaceEvenWhereItEndsWell) {
  const Report report = verify(exchange(), {.in_place = true, .starved = kPart0});
  EXPECT_EQ(report.text(),
            "rank 0, part 0: race between parts: from 1 + input[0,32) -> output[0,32), finish and part 1's input[0,32) "
            "-> to 1 touch the same elements in no certain order\n"
            "rank 1, part 0: race between parts: from 0 + input[0,32) -> output[0,32), finish and part 1's input[0,32) "
            "-> to 0 touch the same elements in no certain order\n");
}

TEST(VerifierOfParts, FindsInputThatIsOverwrittenIfItsPartFallsBehind) {
  const Starved part1_of_rank1{.rank = 1, .first_part = 1, .parts = 1};
  const Report report = verify(exchange(), {.in_place = true, .starved = part1_of_rank1});
  ASSERT_TRUE(report.has(Fault::kOverwrittenInput)) << report.text();
  EXPECT_EQ(report.findings[0].rank, 1);
  EXPECT_EQ(report.findings[0].part, 1);
}

TEST(VerifierOfParts, FindsOutputReadBeforeItsPartHasWrittenIt) {
  const Report well = verify(hasty_broadcast(), {.starved = kPart1});
  ASSERT_EQ(well.findings.size(), 1u) << well.text();
  EXPECT_EQ(well.findings[0].fault, Fault::kRace);
  const Report badly = verify(hasty_broadcast(), {.starved = kPart0});
  EXPECT_TRUE(badly.has(Fault::kUnwrittenRead)) << badly.text();
  EXPECT_TRUE(badly.has(Fault::kRace)) << badly.text();
}

TEST(VerifierOfParts, TakesMessagesToAndFroForAnOrder) {
  // Rank 0 writes over its input, in place, only when rank 1 has combined what its other part sent of it.
  const Program program = program_of(Collective::kAllReduce, 2, [](Recorder& p, int part) {
    if (p.rank() == 0 && part == 0) p.send(1, kIn);
    if (p.rank() == 1 && part == 1) p.recv_reduce_finish_send(0, kIn, kOut, 0);
    if (p.rank() == 0 && part == 1) p.recv(1, kOut);
  });
  for (const Starved& starved : {Starved{}, kPart0, kPart1}) {
    EXPECT_EQ(verify(program, {.slots = 1, .in_place = true, .starved = starved}).text(), "");
  }
}

TEST(VerifierOfParts, FindsTwoPartsOnOneConnection) {
  const Program receivers = program_of(Collective::kBroadcast, 2, [](Recorder& p, int part) {
    for (int half = 0; half < 2; ++half) {
      const Span out = output(half * 16, 16);
      if (p.rank() == 0 && part == 0) p.copy_and_send(input(half * 16, 16), out, 1);
      if (p.rank() == 1 && part == half) p.recv(0, out);
    }
  });
  EXPECT_EQ(verify(receivers, {}).text(),
            "rank 1, part 1: shared connection: takes from 0 on stream 0, as part 0 does\n");
  const Program senders = program_of(Collective::kBroadcast, 2, [](Recorder& p, int part) {
    for (int half = 0; half < 2; ++half) {
      const Span out = output(half * 16, 16);
      if (p.rank() == 0 && part == half) p.copy_and_push_to_all(input(half * 16, 16), out);
      if (p.rank() == 1 && part == 0) p.recv(0, out);
    }
  });
  EXPECT_EQ(verify(senders, {}).text(), "rank 0, part 1: shared connection: sends to 1 on stream 0, as part 0 does\n");
}

TEST(VerifierOfParts, FindsStreamsThatDoNotMeet) {
  Program program = program_of(Collective::kBroadcast, 2, [](Recorder& p, int part) {
    if (p.rank() == 0 && part == 0) p.copy_and_send(kIn, kOut, 1);
    if (p.rank() == 1 && part == 1) p.recv(0, kOut);
  });
  EXPECT_TRUE(verify(program, {}).right());
  set_streams(program, 0, 0, 1);
  EXPECT_EQ(verify(program, {}).findings.at(0).fault, Fault::kMalformed);
  program.streams = 2;
  EXPECT_EQ(verify(program, {}).text(),
            "rank 1, part 1: deadlock: at step 1 of 1 (from 0 -> output[0,32)) waits for a message from rank 0 on "
            "stream 0, which has no part for that\n");
  set_streams(program, 3, 1, 0);
  EXPECT_TRUE(verify(program, {}).right());
}

TEST(VerifierOfParts, SaysWhichPartIsWaitedForAndWhatIsLeftOver) {
  Program program = program_of(Collective::kBroadcast, 2, [](Recorder& p, int part) {
    if (p.rank() == 0 && part == 0) p.copy(kIn, kOut);
    if (p.rank() == 0 && part == 1) p.send(1, kIn);
    for (int i = 0; p.rank() == 1 && part == 1 && i < 2; ++i) p.recv(0, kOut);
  });
  EXPECT_EQ(verify(program, {}).text(),
            "rank 1, part 1: deadlock: at step 2 of 2 (from 0 -> output[0,32)) waits for a message from rank 0, part 1 "
            "of which has ended its program\n");
  program.traces[3].pop_back();
  program.traces[1].push_back(program.traces[1].back());
  program.streams = 2;
  EXPECT_EQ(verify(program, {}).text(), "rank 1: message left over: 1 messages from rank 0 on stream 0\n");
}

TEST(VerifierOfParts, FindsSpansThatWorkersOfTwoPartsCouldNotShareOut) {
  const Program program = program_of(Collective::kBroadcast, 2, [](Recorder& p, int part) {
    if (p.rank() == 0 && part == 0) p.copy(kIn, kOut);
    if (p.rank() == 1 && part == 0) p.recv(0, kOut);
    if (p.rank() == 0 && part == 1) p.send(1, output(0, 16));
  });
  const Report report = verify(program, {});
  ASSERT_EQ(report.findings.size(), 1u) << report.text();
  EXPECT_EQ(report.findings[0].fault, Fault::kDifferentSpans);
  EXPECT_EQ(report.findings[0].rank, 0);
  EXPECT_EQ(report.findings[0].part, -1);
}

}  // namespace
}  // namespace nitinol::verify
