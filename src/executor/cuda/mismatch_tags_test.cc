#include "executor/cuda/mismatch_tags.h"

#include <gtest/gtest.h>

namespace nitinol::cuda {
namespace {

TEST(MismatchTags, AreWhole) {
  const Arrived nothing{};
  EXPECT_FALSE(tags_of(nothing));
  const uint32_t own = 0xfedcba00;
  const uint32_t other = 0x12345600;
  const Arrived told{own | 3, other};
  const auto tags = tags_of(told);
  ASSERT_TRUE(tags);
  EXPECT_TRUE(tags->expected.fits(own >> 8) && tags->found.fits(other >> 8));
  EXPECT_FALSE(tags->expected.fits(own >> 8 ^ 1) || tags->found.fits(other >> 8 ^ 1));
  const Arrived expected{own | 3, own};
  EXPECT_FALSE(tags_of(expected)) << "something else of the same slot has not come";
}

TEST(MismatchTags, AreHalvesBesideTheStep) {
  const uint32_t own = 0xfedc0000;
  const uint32_t other = 0x12340000;
  const Arrived told{own | 2, other};
  const auto tags = tags_of(told);
  ASSERT_TRUE(tags);
  EXPECT_TRUE(tags->expected.fits(0xfedc55) && tags->found.fits(0x123455));
  EXPECT_FALSE(tags->expected.fits(0xfedd55) || tags->found.fits(0x123555));
  const Arrived half{own | 2, other - 8};
  EXPECT_FALSE(tags_of(half)) << "the rest of the line is an earlier step's";
}

}  // namespace
}  // namespace nitinol::cuda
