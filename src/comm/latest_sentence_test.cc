#include "comm/latest_sentence.h"

#include <gtest/gtest.h>

#include <string>

namespace nitinol {
namespace {

TEST(LatestSentence, IsNoneBeforeTheFirst) {
  LatestSentence latest;
  EXPECT_EQ(nullptr, latest.get());
  latest.set("one");
  EXPECT_STREQ("one", latest.get());
}

TEST(LatestSentence, OlderOnesMayBeReadWhileFifteenNewerOnesCome) {
  LatestSentence latest;
  latest.set("the one that is read");
  const char* const read = latest.get();
  for (int i = 0; i < 15; ++i) latest.set(("newer " + std::to_string(i)).c_str());
  EXPECT_STREQ("the one that is read", read);
  EXPECT_STREQ("newer 14", latest.get());
}

TEST(LatestSentence, ThatComesAgainAndAgainDisplacesNoOther) {
  LatestSentence latest;
  latest.set("the one that is read");
  const char* const read = latest.get();
  for (int i = 0; i < 100; ++i) latest.set("again");
  EXPECT_STREQ("the one that is read", read);
  EXPECT_STREQ("again", latest.get());
}

}  // namespace
}  // namespace nitinol
