// The verifier must find what is wrong: algorithms broken on purpose.
#include "executor/verify/verifier.h"

#include <gtest/gtest.h>

#include "executor/verify/memory.h"

namespace nitinol::verify {
namespace {

// The broken algorithms read like those of the table.
using algorithm::AllReduceOneShot;
using algorithm::AllReduceRing;
using algorithm::AllReduceTwoShot;
using algorithm::chunk_of;
using algorithm::chunks_in;
using algorithm::input;
using algorithm::output;
using algorithm::Program;
using algorithm::rank_after;
using algorithm::rank_before;
using algorithm::record;
using algorithm::Recorder;
using algorithm::Span;
using algorithm::Task;

constexpr size_t kChunk = 32;

/// A broken algorithm: what a lambda does, for a collective. The lambda gets the primitives and the share.
template <class Body>
Report check(Body body, Task task, const Options& options = {}) {
  Program program{task, {}};
  for (int rank = 0; rank < task.ranks; ++rank) {
    Recorder recorder(rank, task);
    body(recorder, task.share);
    program.traces.push_back(recorder.take());
  }
  return verify(program, options);
}

Task task_of(Collective what, int ranks, size_t count = kChunk, int root = 0) {
  return {what, ranks, root, share_of(count, kChunk, 0, 1, 16)};
}

void expect_only(const Report& report, Fault fault) {
  EXPECT_FALSE(report.right());
  for (const Finding& finding : report.findings) EXPECT_STREQ(name_of(finding.fault), name_of(fault)) << report.text();
}

int next_of(const Recorder& p) { return rank_after(p.rank(), 1, p.ranks()); }
int previous_of(const Recorder& p) { return rank_before(p.rank(), 1, p.ranks()); }

TEST(Verifier, AcceptsARightAlgorithm) {
  const Program program = record<AllReduceOneShot>(task_of(Collective::kAllReduce, 4, 3 * kChunk + 1));
  const Report report = verify(program, {.canonical = true});
  EXPECT_TRUE(report.right()) << report.text();
  EXPECT_EQ(report.text(), "");
}

TEST(Verifier, FindsAMissingContribution) {
  const auto body = [](Recorder& p, const Share& share) {  // two of three ranks meet
    p.send(next_of(p), input(0, share.end));
    p.recv_reduce_finish(previous_of(p), input(0, share.end), output(0, share.end));
  };
  expect_only(check(body, task_of(Collective::kAllReduce, 3)), Fault::kMissingContribution);
  EXPECT_TRUE(check(body, task_of(Collective::kAllReduce, 2)).right());
}

TEST(Verifier, FindsADoubleContribution) {
  const auto body = [](Recorder& p, const Share& share) {
    p.send(next_of(p), input(0, share.end));
    p.send(next_of(p), input(0, share.end));
    p.recv_reduce(previous_of(p), input(0, share.end), output(0, share.end));
    p.recv_reduce_finish(previous_of(p), output(0, share.end), output(0, share.end));
  };
  expect_only(check(body, task_of(Collective::kAllReduce, 2)), Fault::kDoubleContribution);
}

TEST(Verifier, FindsSendsInACircleWithTooFewSlots) {
  const auto body = [](Recorder& p, const Share& share) {
    const size_t chunks = chunks_in(share);
    for (size_t k = 0; k < chunks; ++k) p.push_to_all(input(chunk_of(share, k).offset, chunk_of(share, k).count));
    for (size_t k = 0; k < chunks; ++k) {
      const auto chunk = chunk_of(share, k);
      p.reduce_from_all(input(chunk.offset, chunk.count), output(chunk.offset, chunk.count));
    }
  };
  const Task task = task_of(Collective::kAllReduce, 3, 3 * kChunk);
  expect_only(check(body, task, {.slots = 2}), Fault::kDeadlock);
  EXPECT_TRUE(check(body, task, {.slots = 3, .canonical = true}).right());
}

TEST(Verifier, SaysWhoWaitsForWhat) {
  const auto body = [](Recorder& p, const Share& share) {
    if (p.rank() == 2) return;
    p.recv(previous_of(p), output(0, share.end));
    p.send(next_of(p), input(0, share.end));
  };
  const Report report = check(body, task_of(Collective::kAllReduce, 3));
  EXPECT_EQ(
      report.text(),
      "rank 0: deadlock: at step 1 of 2 (from 2 -> output[0,32)) waits for a message from rank 2, which has ended "
      "its program\n"
      "rank 1: deadlock: at step 1 of 2 (from 0 -> output[0,32)) waits for a message from rank 0, which is at step "
      "1 of 2 (from 2 -> output[0,32))\n");
}

TEST(Verifier, SaysWhichSlotsAreFull) {
  const auto body = [](Recorder& p, const Share& share) {
    if (p.rank() != 0) return;
    for (size_t k = 0; k < chunks_in(share); ++k) {
      p.send(1, input(chunk_of(share, k).offset, chunk_of(share, k).count));
    }
  };
  const Report report = check(body, task_of(Collective::kBroadcast, 2, 3 * kChunk));
  EXPECT_EQ(
      report.text(),
      "rank 0: deadlock: at step 3 of 3 (input[64,96) -> to 1) waits for a free slot to rank 1 (2 are full), which "
      "has ended its program\n");
}

TEST(Verifier, OneSlotIsTooFewWhereTheNextChunkLeavesBeforeThisOneIsTaken) {
  const Options one_slot{.slots = 1};
  const Options two_slots{.slots = 2};
  const auto one_shot = record<AllReduceOneShot>(task_of(Collective::kAllReduce, 4, 2 * kChunk));
  expect_only(verify(one_shot, one_slot), Fault::kDeadlock);
  EXPECT_TRUE(verify(one_shot, two_slots).right());
  const auto two_shot = record<AllReduceTwoShot>(task_of(Collective::kAllReduce, 4, 8 * kChunk));
  expect_only(verify(two_shot, one_slot), Fault::kDeadlock);
  EXPECT_TRUE(verify(two_shot, two_slots).right());
  const auto single_chunk = record<AllReduceOneShot>(task_of(Collective::kAllReduce, 4));
  EXPECT_TRUE(verify(single_chunk, one_slot).right());
}

TEST(Verifier, FindsAnOrderThatIsNotCanonical) {
  const auto ring = record<AllReduceRing>(task_of(Collective::kAllReduce, 4));
  EXPECT_TRUE(verify(ring, {.canonical = false}).right());
  expect_only(verify(ring, {.canonical = true}), Fault::kWrongOrder);
  const auto chain = [](int first, int second, int last) {
    return [=](Recorder& p, const Share& share) {
      const Span in = input(0, share.end);
      if (p.rank() == first) p.send(second, in);
      if (p.rank() == second) p.recv_reduce_send(first, in, last);
      if (p.rank() == last) p.recv_reduce_finish(second, in, output(0, share.end));
    };
  };
  // In rank order, but rounded in between.
  const auto forth = chain(0, 1, 2);
  const Task task = task_of(Collective::kReduce, 3, kChunk, 2);
  EXPECT_TRUE(check(forth, task).right());
  expect_only(check(forth, task, {.canonical = true}), Fault::kWrongOrder);
  EXPECT_TRUE(check(forth, task, {.canonical = true, .in_steps = true}).right());
  // The first two the other way round give the same, but no others.
  EXPECT_TRUE(check(chain(1, 0, 2), task, {.canonical = true, .in_steps = true}).right());
  expect_only(check(chain(0, 2, 1), task_of(Collective::kReduce, 3, kChunk, 1), {.canonical = true, .in_steps = true}),
              Fault::kWrongOrder);
  // In steps, but not in rank order.
  const Task to_first = task_of(Collective::kReduce, 3, kChunk, 0);
  expect_only(check(chain(2, 1, 0), to_first, {.canonical = true, .in_steps = true}), Fault::kWrongOrder);
  // A sum of two sums.
  const auto pairs = [](Recorder& p, const Share& share) {
    const Span in = input(0, share.end);
    if (p.rank() % 2 == 0) p.send(p.rank() + 1, in);
    if (p.rank() == 1) p.recv_reduce_send(0, in, 3);
    if (p.rank() == 3) {
      p.recv_reduce(2, in, output(0, share.end));
      p.recv_reduce_finish(1, output(0, share.end), output(0, share.end));
    }
  };
  const Task of_four = task_of(Collective::kReduce, 4, kChunk, 3);
  expect_only(check(pairs, of_four, {.canonical = true, .in_steps = true}), Fault::kWrongOrder);
}

TEST(Verifier, FindsABlockInTheWrongPlace) {
  const auto body = [](Recorder& p, const Share& share) {  // each rank's block lands where the other's belongs
    const int other = 1 - p.rank();
    p.copy_and_push_to_all(input(0, share.end), output(other * share.stride, share.end));
    p.recv(other, output(p.rank() * share.stride, share.end));
  };
  expect_only(check(body, task_of(Collective::kAllGather, 2)), Fault::kWrongBlock);
}

TEST(Verifier, FindsOtherElementsOfTheRightRank) {
  const auto body = [](Recorder& p, const Share& share) {  // chunks arrive in the reverse order
    for (size_t k = 0; k < 2; ++k) {
      if (p.rank() == 0) {
        p.copy_and_push_to_all(input(k * kChunk, kChunk), output(k * kChunk, kChunk));
      } else {
        p.recv(0, output((1 - k) * kChunk, kChunk));
      }
    }
    EXPECT_EQ(share.end, 2 * kChunk);
  };
  expect_only(check(body, task_of(Collective::kBroadcast, 2, 2 * kChunk)), Fault::kWrongBlock);
}

TEST(Verifier, FindsElementsThatDoNotBelongTogether) {
  const auto body = [](Recorder& p, const Share&) {
    for (size_t k = 0; k < 2; ++k) {
      const size_t offset = (p.rank() == 0 ? k : 1 - k) * kChunk;
      p.push_to_all(input(offset, kChunk));
      p.reduce_from_all(input(offset, kChunk), output(offset, kChunk));
    }
  };
  const Report report = check(body, task_of(Collective::kAllReduce, 2, 2 * kChunk));
  ASSERT_FALSE(report.right());
  EXPECT_EQ(report.findings[0].fault, Fault::kMixedElements);
}

TEST(Verifier, FindsInputReadAfterItWasOverwrittenInPlace) {
  const auto body = [](Recorder& p, const Share& share) {  // the partial sum goes where the input still is needed
    if (p.rank() == 0) {
      p.recv_reduce(1, input(0, share.end), output(0, share.end));
      p.send(2, input(0, share.end));
      p.recv_reduce_finish(2, output(0, share.end), output(0, share.end));
    } else if (p.rank() == 1) {
      p.send(0, input(0, share.end));
    } else {
      p.recv(0, output(0, share.end));  // never looked at
      p.send(0, input(0, share.end));
    }
  };
  const Task task = task_of(Collective::kAllReduce, 3);
  EXPECT_FALSE(check(body, task, {.in_place = false}).has(Fault::kOverwrittenInput));
  const Report report = check(body, task, {.in_place = true});
  EXPECT_TRUE(report.has(Fault::kOverwrittenInput)) << report.text();
  EXPECT_EQ(report.findings[0].rank, 0);
}

TEST(Verifier, FindsAnOverlapThatOnlyInPlaceUseHas) {
  const auto body = [](Recorder& p, const Share& share) {  // the own block, one element off its place
    p.copy(input(0, share.end - 1), output(p.rank() * share.stride + 1, share.end - 1));
  };
  EXPECT_FALSE(check(body, task_of(Collective::kAllGather, 2)).has(Fault::kOverlap));
  EXPECT_TRUE(check(body, task_of(Collective::kAllGather, 2), {.in_place = true}).has(Fault::kOverlap));
}

TEST(Verifier, FindsSpansThatWorkersCouldNotShareOut) {
  const auto body = [](Recorder& p, const Share& share) {  // written as a whole, passed on in halves
    const size_t half = share.end / 2;
    if (p.rank() == 0) {
      p.copy_and_send(input(0, share.end), output(0, share.end), 1);
    } else if (p.rank() == 1) {
      p.recv(0, output(0, share.end));
      p.send(2, output(0, half));
      p.send(2, output(half, half));
    } else {
      p.recv(1, output(0, half));
      p.recv(1, output(half, half));
    }
  };
  const Report report = check(body, task_of(Collective::kBroadcast, 3));
  expect_only(report, Fault::kDifferentSpans);
  EXPECT_EQ(report.findings[0].rank, 1);
}

TEST(Verifier, FindsBuffersThatTheRankDoesNotHave) {
  const auto writes = [](Recorder& p, const Share& share) {
    p.push_to_all(input(0, share.end));
    p.reduce_from_all(input(0, share.end), output(0, share.end));
  };
  const Report writing = check(writes, task_of(Collective::kReduce, 3, kChunk, 1));
  expect_only(writing, Fault::kOutOfBounds);
  ASSERT_EQ(writing.findings.size(), 2u);
  EXPECT_EQ(writing.findings[0].rank, 0);
  EXPECT_EQ(writing.findings[1].rank, 2);
  const auto reads = [](Recorder& p, const Share& share) { p.copy(input(0, share.end), output(0, share.end)); };
  const Report reading = check(reads, task_of(Collective::kBroadcast, 2, kChunk, 1));
  expect_only(reading, Fault::kOutOfBounds);
  EXPECT_EQ(reading.findings[0].rank, 0);
}

TEST(Verifier, FindsElementsOfAnotherChannel) {
  const auto body = [](Recorder& p, const Share&) { p.copy(input(0, kChunk), output(0, kChunk)); };
  Task task = task_of(Collective::kAllReduce, 2);
  task.share = share_of(2 * kChunk, kChunk, 1, 2, 16);
  expect_only(check(body, task), Fault::kOutOfBounds);
}

TEST(Verifier, FindsLengthsThatDiffer) {
  const auto body = [](Recorder& p, const Share& share) {
    if (p.rank() == 0) {
      p.copy_and_push_to_all(input(0, share.end), output(0, share.end));
    } else {
      p.recv(0, output(0, share.end / 2));
      p.recv(0, output(share.end / 2, share.end / 2));
    }
  };
  const Report report = check(body, task_of(Collective::kBroadcast, 2));
  expect_only(report, Fault::kLengthMismatch);
  EXPECT_EQ(report.findings[0].text, "from 0 -> output[0,16) expects 16 elements, but rank 0 sent 32");
}

TEST(Verifier, FindsMessagesThatNobodyTakes) {
  const auto body = [](Recorder& p, const Share& share) {
    if (p.rank() == 0) {
      p.copy_and_push_to_all(input(0, share.end), output(0, share.end));
      p.send(1, input(0, 1));
    } else {
      p.recv(0, output(0, share.end));
    }
  };
  const Report report = check(body, task_of(Collective::kBroadcast, 3));
  expect_only(report, Fault::kLeftOver);
  EXPECT_EQ(report.text(), "rank 1: message left over: 1 messages from rank 0\n");
}

TEST(Verifier, FindsResultsWrittenTwiceOrNever) {
  const auto twice = [](Recorder& p, const Share& share) {
    for (int i = 0; i < 2; ++i) {
      if (p.rank() == 0) {
        p.copy_and_push_to_all(input(0, share.end), output(0, share.end));
      } else {
        p.recv(0, output(0, share.end));
      }
    }
  };
  expect_only(check(twice, task_of(Collective::kBroadcast, 2)), Fault::kWrittenTwice);
  const auto never = [](Recorder& p, const Share& share) {
    if (p.rank() == 0) {
      p.push_to_all(input(0, share.end));
    } else {
      p.recv(0, output(0, share.end));
    }
  };
  const Report report = check(never, task_of(Collective::kBroadcast, 2));
  expect_only(report, Fault::kNotWritten);
  EXPECT_EQ(report.findings[0].rank, 0);
  expect_only(check(never, task_of(Collective::kBroadcast, 2), {.in_place = true}), Fault::kNotWritten);
}

TEST(Verifier, FindsAverageDividedTooEarlyTwiceOrNever) {
  const auto never = [](Recorder& p, const Share& share) {
    p.send(next_of(p), input(0, share.end));
    p.recv_reduce(previous_of(p), input(0, share.end), output(0, share.end));
  };
  expect_only(check(never, task_of(Collective::kAllReduce, 2)), Fault::kWrongFinish);
  const auto twice = [](Recorder& p, const Share& share) {
    p.send(next_of(p), input(0, share.end));
    p.recv_reduce_finish(previous_of(p), input(0, share.end), output(0, share.end));
    p.reduce_alone(output(0, share.end), output(0, share.end));
  };
  EXPECT_TRUE(check(twice, task_of(Collective::kAllReduce, 2)).has(Fault::kWrongFinish));
  const auto early = [](Recorder& p, const Share& share) {
    p.reduce_alone(input(0, share.end), output(0, share.end));
    p.send(next_of(p), output(0, share.end));
    p.recv_reduce_finish(previous_of(p), output(0, share.end), output(0, share.end));
  };
  const Report report = check(early, task_of(Collective::kAllReduce, 2));
  EXPECT_TRUE(report.has(Fault::kMissingContribution)) << report.text();
  EXPECT_TRUE(report.has(Fault::kWrongFinish)) << report.text();
}

TEST(Verifier, FindsContributionsWithoutTheirScalar) {
  const auto body = [](Recorder& p, const Share& share) {  // reads what in-place use left in the output
    p.push_to_all(output(0, share.end));
    p.reduce_from_all(input(0, share.end), output(0, share.end));
  };
  EXPECT_TRUE(check(body, task_of(Collective::kAllReduce, 2), {.in_place = true}).has(Fault::kWrongScalar));
  EXPECT_TRUE(check(body, task_of(Collective::kAllReduce, 2), {.in_place = false}).has(Fault::kUnwrittenRead));
}

TEST(Verifier, FindsTransfersThatNoExecutorCouldMake) {
  const auto self = [](Recorder& p, const Share& share) { p.send(p.rank(), input(0, share.end)); };
  const auto nobody = [](Recorder& p, const Share& share) { p.send(p.ranks(), input(0, share.end)); };
  const auto nothing = [](Recorder& p, const Share&) { p.send(1 - p.rank(), input(0, 0)); };
  const auto uneven = [](Recorder& p, const Share& share) { p.copy(input(0, share.end), output(0, 1)); };
  for (const Report& report :
       {check(self, task_of(Collective::kAllReduce, 2)), check(nobody, task_of(Collective::kAllReduce, 2)),
        check(uneven, task_of(Collective::kAllReduce, 2))}) {
    expect_only(report, Fault::kMalformed);
  }
  EXPECT_TRUE(check(nothing, task_of(Collective::kAllReduce, 2)).has(Fault::kMalformed));
  const auto too_long = [](Recorder& p, const Share& share) { p.copy(input(0, share.end), output(0, share.end)); };
  expect_only(check(too_long, task_of(Collective::kAllReduce, 2, kChunk + 1)), Fault::kTooLong);
}

TEST(Verifier, FindsTheSameUnderAnyInterleaving) {
  const auto ring = record<AllReduceRing>(task_of(Collective::kAllReduce, 5, 20 * kChunk));
  const std::string text = verify(ring, {.slots = 1}).text();
  EXPECT_NE(text, "");
  for (uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(verify(ring, {.slots = 1, .seed = seed}).text(), text);
}

TEST(Memory, JoinsAndCutsRuns) {
  Memory memory;
  memory.write(10, {{10, 100, 1}}, Memory::Mark::kResult);
  memory.write(20, {{5, 110, 1}}, Memory::Mark::kResult);
  memory.write(12, {{3, 7, 2}}, Memory::Mark::kScratch);
  const Pieces pieces = memory.read(8, 20);
  const std::vector<std::vector<size_t>> expected{{2, 0, 0}, {2, 100, 1}, {3, 7, 2}, {10, 105, 1}, {3, 0, 0}};
  ASSERT_EQ(pieces.size(), expected.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].count, expected[i][0]);
    EXPECT_EQ(pieces[i].element, expected[i][1]);
    EXPECT_EQ(pieces[i].value, static_cast<int>(expected[i][2]));
  }
}

}  // namespace
}  // namespace nitinol::verify
