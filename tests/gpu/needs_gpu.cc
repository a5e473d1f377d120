// Linked to a program of tests that fork before they use CUDA: skips them all where there is no GPU. Looks for the
// devices' files, since CUDA must not be touched before a fork.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <string>

namespace {

bool has_gpu() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("nvidia") && name.size() > 6 && std::isdigit(static_cast<unsigned char>(name[6])) != 0) {
      return true;
    }
  }
  return false;
}

class NeedsGpu : public testing::Environment {
 public:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU here";
  }
};

const testing::Environment* const environment = testing::AddGlobalTestEnvironment(new NeedsGpu);

}  // namespace
