#include "executor/cpu/waiter.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/interruptions_testing.h"
#include "executor/cpu/arena.h"

namespace nitinol::cpu {
namespace {

TEST(Waiter, LooksNowAndThenThoughSignalsComeMoreOften) {
  const std::shared_ptr<Arena> arena = Arena::create(Geometry::of(2, 0), 0, {1, 2}, false);
  Waiter waiter(*arena, Patience{});
  const Interruptions interruptions;
  int looks = 0;
  EXPECT_TRUE(waiter.until([&] { return looks == 3; }, kAnything, [&] { ++looks; }));
}

}  // namespace
}  // namespace nitinol::cpu
