// Stands in for libFuzzer where that is missing: runs a fuzz target over every file of the folders named, then over
// simple variations of them (cuts, single bytes changed), always the same ones.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

std::size_t runs = 0;

void run(const std::string& input) {
  // A copy of exactly this size, so that a sanitizer sees reads beyond its end.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  ++runs;
}

void run_variations(const std::string& input) {
  constexpr std::size_t kMost = 512;
  const std::size_t step = input.size() / kMost + 1;
  for (std::size_t at = 0; at < input.size(); at += step) {
    run(input.substr(0, at));
    run(input.substr(at));
    for (const unsigned char change : {0x01, 0x80, 0xff}) {
      std::string changed = input;
      changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ change);
      run(changed);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  run("");
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      std::fprintf(stderr, "%s is not a folder\n", argv[i]);
      return 2;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string input((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      run(input);
      run_variations(input);
    }
  }
  std::printf("%zu inputs\n", runs);
  return 0;
}
