#include "executor/marked_calls.h"

#include <gtest/gtest.h>

namespace nitinol {
namespace {

class MarkedCalls : public testing::Test {
 protected:
  static CollectiveWork all_reduce(size_t count) {
    CollectiveWork work;
    work.what = Collective::kAllReduce;
    work.count = count;
    work.type = work.stated = DataType::kFloat32;
    return work;
  }
  static MessageWork message(int peer, size_t bytes, MessageWork::Direction direction) {
    return {.direction = direction, .peer = peer, .bytes = bytes, .stated = DataType::kInt32};
  }
  static uint32_t tag_of(const CollectiveWork& work) { return Signature::of(work, 0).tag(); }
  static uint32_t tag_of(const MessageWork& work) {
    return MessageSignature{.bytes = work.bytes, .type = work.stated}.tag();
  }

  static constexpr int kRanks = 3;
  CallBoard board_{SharedMemory::create(CallBoard::bytes_for(kRanks), false), kRanks};
};

TEST_F(MarkedCalls, AreFoundAmongTheCapturedFirst) {
  note_calls(board_, 1, Launch{{all_reduce(100), all_reduce(200)}, {}}, false);
  note_calls(board_, 1, Launch{{all_reduce(100)}, {}}, true);
  const auto captured = find_marked_call(board_, 1, 0, true, {tag_of(all_reduce(100))});
  EXPECT_EQ(captured, "AllReduce (count 100, type float32, op sum)");
  const auto issued = find_marked_call(board_, 1, 0, true, {tag_of(all_reduce(200))});
  EXPECT_EQ(issued, "AllReduce number 2 (count 200, type float32, op sum)");
  EXPECT_FALSE(find_marked_call(board_, 0, 1, true, {tag_of(all_reduce(100))})) << "another rank's";
  EXPECT_FALSE(find_marked_call(board_, 1, 0, true, {tag_of(all_reduce(300))}));
}

TEST_F(MarkedCalls, AreFoundByAPartOfTheTag) {
  note_calls(board_, 0, Launch{{all_reduce(100)}, {}}, true);
  const uint32_t tag = tag_of(all_reduce(100));
  EXPECT_TRUE(find_marked_call(board_, 0, 1, false, {tag & 0xffff00, 0xffff00}));
  EXPECT_FALSE(find_marked_call(board_, 0, 1, false, {(tag & 0xffff00) ^ 0x100, 0xffff00}));
  EXPECT_FALSE(find_marked_call(board_, 0, 1, false, {tag ^ 1}));
}

TEST_F(MarkedCalls, AreMessagesOfThePairAndDirection) {
  using Direction = MessageWork::Direction;
  const MessageWork sent = message(2, 400, Direction::kSend);
  const MessageWork received = message(2, 800, Direction::kReceive);
  note_calls(board_, 0, Launch{{}, {sent}}, true);
  note_calls(board_, 0, Launch{{}, {received}}, false);
  EXPECT_EQ(find_marked_call(board_, 0, 2, true, {tag_of(sent)}), "Send to rank 2 (count 100, type int32)");
  EXPECT_EQ(find_marked_call(board_, 0, 2, false, {tag_of(received)}),
            "Recv number 1 from rank 2 (count 200, type int32)");
  EXPECT_FALSE(find_marked_call(board_, 0, 2, false, {tag_of(sent)}));
  EXPECT_FALSE(find_marked_call(board_, 0, 1, true, {tag_of(sent)}));
}

TEST_F(MarkedCalls, AreForgottenOnceTooManyCameAfterThem) {
  note_calls(board_, 0, Launch{{all_reduce(1)}, {}}, true);
  for (size_t i = 0; i < 300; ++i) note_calls(board_, 0, Launch{{all_reduce(1000 + i)}, {}}, true);
  EXPECT_FALSE(find_marked_call(board_, 0, 1, true, {tag_of(all_reduce(1))}));
  EXPECT_TRUE(find_marked_call(board_, 0, 1, true, {tag_of(all_reduce(1299))}));
}

}  // namespace
}  // namespace nitinol
