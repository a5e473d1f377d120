#include "executor/stream_places.h"

#include <gtest/gtest.h>

namespace nitinol {
namespace {

/// None of another test.
StreamName stream(int number) { return {0x5000ULL + static_cast<unsigned long long>(number), 0}; }

TEST(StreamPlaces, TellWhoStandsBehindWhom) {
  StreamPlaces a;
  StreamPlaces b;
  a.add(1, stream(1));
  a.add(2, stream(1));
  b.add(1, stream(1));
  a.add(3, stream(1));
  EXPECT_TRUE(b.find(1)->behind(*a.find(1)));
  EXPECT_TRUE(b.find(1)->behind(*a.find(2)));
  EXPECT_FALSE(b.find(1)->behind(*a.find(3)));
  EXPECT_TRUE(a.find(3)->behind(*b.find(1)));
  EXPECT_FALSE(a.find(2)->behind(*a.find(1)));  // one rank's are in order anyway
}

TEST(StreamPlaces, OfDifferentStreamsSayNothing) {
  StreamPlaces a;
  StreamPlaces b;
  a.add(1, stream(2));
  b.add(1, stream(3));
  EXPECT_FALSE(b.find(1)->behind(*a.find(1)));
  a.add(2, StreamName{});
  b.add(2, StreamName{});
  EXPECT_FALSE(b.find(2)->behind(*a.find(2)));
  b.add(3, stream(2));
  EXPECT_TRUE(b.find(3)->behind(*a.find(1)));
}

TEST(StreamPlaces, OfALaunchThatJoinsOthersCountInThoseToo) {
  StreamPlaces a;
  StreamPlaces b;
  b.add(1, stream(7));
  a.add(1, stream(6));
  a.join(1, stream(7));
  a.join(1, stream(8));
  b.add(2, stream(7));
  b.add(3, stream(8));
  a.add(2, stream(6));
  b.add(4, stream(7));
  EXPECT_TRUE(any_behind(a.find_all(1), b.find_all(1)));
  EXPECT_TRUE(any_behind(b.find_all(2), a.find_all(1)));
  EXPECT_TRUE(any_behind(b.find_all(3), a.find_all(1)));
  EXPECT_FALSE(any_behind(a.find_all(1), b.find_all(2)));
  EXPECT_FALSE(any_behind(b.find_all(4), a.find_all(2))) << "only the launch before joined it";
  a.join(2, StreamName{});
  EXPECT_EQ(a.find_all(2).size(), 1U);
}

TEST(StreamPlaces, KnowTheLastFewChanges) {
  StreamPlaces a;
  EXPECT_FALSE(a.find(1));
  for (uint64_t launch = 1; launch <= 2000; ++launch) a.add(launch, stream(static_cast<int>(4 + launch / 10 % 2)));
  EXPECT_TRUE(a.find(1));  // 200 changes
  for (uint64_t launch = 2001; launch <= 4000; ++launch) a.add(launch, stream(static_cast<int>(4 + launch / 10 % 2)));
  EXPECT_FALSE(a.find(1));
  EXPECT_EQ(a.find(3995)->stream, a.find(3975)->stream);
  EXPECT_NE(a.find(3995)->stream, a.find(3985)->stream);
}

}  // namespace
}  // namespace nitinol
