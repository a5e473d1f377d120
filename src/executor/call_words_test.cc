// The words for what a rank does: true of ranks that only send and receive, too, and of calls that have not begun.
#include "executor/call_words.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace nitinol {
namespace {

const std::string kLast = "AllReduce number 5 (count 7, type float32, op sum)";

Signature all_reduce(uint64_t sequence) {
  CollectiveWork work;
  work.what = Collective::kAllReduce;
  work.count = 7;
  work.type = work.stated = DataType::kFloat32;
  return Signature::of(work, sequence);
}

Doings after_a_collective() {
  Doings doings;
  doings.begun = 5;
  doings.last = all_reduce(5);
  doings.launches_ended = 9;
  return doings;
}

TEST(WordsForDoings, OfARankThatIsIdle) {
  EXPECT_EQ(words_for_doings({}), "idle, it has not begun any collective");
  EXPECT_EQ(words_for_doings(after_a_collective()), "idle, its last collective was " + kLast);
}

TEST(WordsForDoings, OfARankInACollective) {
  Doings doings = after_a_collective();
  doings.running = true;
  EXPECT_EQ(words_for_doings(doings), "it is in " + kLast);
  doings.last.reset();
  EXPECT_EQ(words_for_doings(doings), "its last collective was number 5");
}

TEST(WordsForDoings, OfARankOfWhichLittleIsKnown) {
  Doings doings;
  doings.running.reset();
  EXPECT_EQ(words_for_doings(doings), "it has not begun any collective");
}

TEST(WordsForDoings, OfARankInMessages) {
  Doings doings;
  doings.in_messages = true;
  EXPECT_EQ(words_for_doings(doings), "it is in a group of sends and receives, it has not begun any collective");
}

TEST(WordsForDoings, OfARankOnItsWayIntoACall) {
  Doings doings = after_a_collective();
  doings.reaching = true;
  EXPECT_EQ(
      words_for_doings(doings),
      "it is about to make a call, for which it has to reach other ranks' memory, its last collective was " + kLast);
}

TEST(WordsForDoings, OfARankThatHasSentAndReceived) {
  Doings doings;
  doings.launches_ended = 50;
  EXPECT_EQ(words_for_doings(doings),
            "idle, it has not begun any collective, but ended 50 launches of sends and receives");
}

TEST(WordsForDoings, OfARankWhoseCallHasNotBegun) {
  Doings doings;
  doings.launches_held = 1;
  EXPECT_EQ(words_for_doings(doings), "it has issued 1 launch that has not begun, it has not begun any collective");
  doings = after_a_collective();
  doings.launches_held = 2;
  doings.holder = Holder{{0xab, 0}, 3, all_reduce(5)};
  EXPECT_EQ(
      words_for_doings(doings),
      "it has issued 2 launches that have not begun, behind " + kLast +
          " on communicator ab000000000000000000000000000000 (there rank 3) in its stream, its last collective was " +
          kLast);
}

TEST(ReasonOnHost, NamesTheMessageIfItIsKnown) {
  Holder holder{{0xab, 0}, 3, {}};
  const std::string begin = "which calls nothing while its program waits on the host for ";
  const std::string end = " on communicator ab000000000000000000000000000000 (there rank 3)";
  EXPECT_EQ(reason_on_host(holder), begin + "a group of sends and receives" + end);
  holder.message = {.sends = true, .peer = 7, .message = {.number = 2, .bytes = 12, .type = DataType::kFloat32}};
  EXPECT_EQ(reason_on_host(holder), begin + "Send number 2 to rank 7 (count 3, type float32)" + end);
  const auto shared = std::make_unique<SharedHolder>();
  shared->tell(5, holder);
  EXPECT_EQ(reason_on_host(shared->holder()), reason_on_host(holder));
}

}  // namespace
}  // namespace nitinol
