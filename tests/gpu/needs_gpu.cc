// Linked to a program of tests that fork before they use CUDA: skips them all where there is no GPU.
#include <gtest/gtest.h>

#include "devices.h"

namespace {

class NeedsGpu : public testing::Environment {
 public:
  void SetUp() override {
    if (nitinol::testing::devices_here() == 0) GTEST_SKIP() << "no GPU here";
  }
};

const testing::Environment* const environment = testing::AddGlobalTestEnvironment(new NeedsGpu);

}  // namespace
