// Who waits for whom in which call.
#include "model/signature.h"

#include <gtest/gtest.h>

namespace nitinol {
namespace {

Signature signature_of(Collective what, size_t count = 8) {
  CollectiveWork work;
  work.what = what;
  work.count = count;
  work.root = 2;
  return Signature::of(work, 3);
}

TEST(Signature, KnowsWhoCannotDoWithoutWhom) {
  for (const Collective what :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter, Collective::kAllToAll}) {
    EXPECT_TRUE(signature_of(what).needs(0, 1));
    EXPECT_FALSE(signature_of(what).needs(1, 1));
    EXPECT_FALSE(signature_of(what, 0).needs(0, 1));
  }
  for (const Collective what : {Collective::kBroadcast, Collective::kScatter}) {
    EXPECT_TRUE(signature_of(what).needs(0, 2));
    EXPECT_FALSE(signature_of(what).needs(0, 1));
    EXPECT_FALSE(signature_of(what).needs(2, 1));
  }
  for (const Collective what : {Collective::kReduce, Collective::kGather}) {
    EXPECT_TRUE(signature_of(what).needs(2, 1));
    EXPECT_FALSE(signature_of(what).needs(0, 2));
  }
}

TEST(Signature, HasATextWithAndWithoutItsNumber) {
  EXPECT_EQ(signature_of(Collective::kBroadcast).text(), "Broadcast number 3 (count 8, type uint8, root 2)");
  Signature plain = signature_of(Collective::kBroadcast);
  plain.sequence = 0;
  EXPECT_EQ(plain.text(), "Broadcast (count 8, type uint8, root 2)");
}

}  // namespace
}  // namespace nitinol
