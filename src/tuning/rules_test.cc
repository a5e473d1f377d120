#include "tuning/rules.h"

#include <gtest/gtest.h>

#include <array>
#include <initializer_list>
#include <string>

#include "base/error.h"

namespace nitinol {
namespace {

constexpr uint32_t bit(Algorithm algorithm) { return 1U << static_cast<int>(algorithm); }

uint32_t algorithms(const char* text, Collective what) {
  Rules rules = Rules::any();
  restrict_algorithms(text, rules);
  return rules.algorithms[static_cast<size_t>(what)];
}

TEST(AlgorithmRules, NamesWithoutAFunctionHoldForAllListedFunctions) {
  for (const Collective what : {Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce,
                                Collective::kAllGather, Collective::kReduceScatter}) {
    EXPECT_EQ(algorithms("Ring,TREE", what), bit(Algorithm::kRing) | bit(Algorithm::kTree));
  }
  EXPECT_EQ(algorithms("ring", Collective::kAllToAll), Rules::kAny);
}

TEST(AlgorithmRules, AFunctionsOwnSectionWinsOverTheFirst) {
  const char* text = "ring,collnetdirect;allreduce:tree,collnetdirect;broadcast:ring";
  EXPECT_EQ(algorithms(text, Collective::kAllReduce), bit(Algorithm::kTree));
  EXPECT_EQ(algorithms(text, Collective::kBroadcast), bit(Algorithm::kRing));
  EXPECT_EQ(algorithms(text, Collective::kReduce), bit(Algorithm::kRing));
}

TEST(AlgorithmRules, FunctionsThatAreNotNamedKeepEverything) {
  EXPECT_EQ(algorithms("allreduce:^tree", Collective::kAllReduce), ~bit(Algorithm::kTree));
  EXPECT_EQ(algorithms("allreduce:^tree", Collective::kReduce), Rules::kAny);
}

TEST(AlgorithmRules, AnAlgorithmThatDoesNotExistHereAllowsNothing) {
  EXPECT_EQ(algorithms("NVLS", Collective::kAllReduce), 0U);
}

TEST(AlgorithmRules, UnknownWordsAreRefusedAndChangeNothing) {
  for (const char* text : {"rings", "", "ring;tree", "allreduce:", "alltoall:ring", "ring,,tree", "^"}) {
    Rules rules = Rules::any();
    EXPECT_THROW(restrict_algorithms(text, rules), Error) << text;
    EXPECT_EQ(rules.algorithms[0], Rules::kAny) << text;
    EXPECT_FALSE(rules.algorithms_named[0]) << text;
  }
}

std::string refusal_of(const char* text) {
  Rules rules = Rules::any();
  try {
    restrict_algorithms(text, rules);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(AlgorithmRules, WhoWritesAnUnknownWordIsToldTheKnownOnes) {
  EXPECT_EQ(refusal_of("AllReduce:direct"),
            "NCCL_ALGO: unknown word 'direct'; there are oneshot, twoshot, ring, tree, collnetdirect, collnetchain, "
            "nvls, nvlstree, pat");
  EXPECT_EQ(refusal_of("AlltoAll:Ring"),
            "NCCL_ALGO: unknown function 'AlltoAll'; there are broadcast, reduce, allgather, reducescatter, allreduce");
}

TEST(ProtocolRules, NamesSelectProtocols) {
  Rules rules = Rules::any();
  restrict_protocols("^LL128;allreduce:Simple", rules);
  EXPECT_EQ(rules.protocols[static_cast<size_t>(Collective::kReduce)], ~(1U << static_cast<int>(Protocol::kLL128)));
  EXPECT_EQ(rules.protocols[static_cast<size_t>(Collective::kAllReduce)], 1U << static_cast<int>(Protocol::kSimple));
}

}  // namespace
}  // namespace nitinol
