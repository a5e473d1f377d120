// What goes wrong on one rank reaches all others as what it was: which rank, on which host and device, in which call,
// and the error of the system or of CUDA; not as the connections that break because of it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "matches.h"
#include "nccl.h"
#include "scarcity.h"
#include "shared_count.h"

namespace nitinol::testing {
namespace {

constexpr int kProcesses = 4;
constexpr int kVictim = 2;

struct Scene {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* data = nullptr;
};

using Call = std::function<ncclResult_t(Scene& scene)>;

ncclResult_t reduce(Scene& s) { return ncclAllReduce(s.data, s.data, 77, ncclFloat, ncclSum, s.comm, s.stream); }

ncclResult_t split(Scene& s) {
  ncclComm_t child = nullptr;
  const ncclResult_t result = ncclCommSplit(s.comm, 0, 0, &child, nullptr);
  if (child != nullptr) EXPECT_CALL(ncclCommAbort(child));
  return result;
}

void must_say(const std::string& sentence, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (sentence.find(word) != std::string::npos) continue;
    throw std::runtime_error(std::string("'").append(sentence).append("' lacks '").append(word).append("'"));
  }
  for (const char* consequence : {"closed its connection", "reset by peer", "went away"}) {
    if (sentence.find(consequence) != std::string::npos) throw std::runtime_error(sentence + ": a consequence");
  }
}

struct Trouble {
  Call usual;
  Call failing;                    // the victim's
  ncclResult_t code;               // which the victim gets
  std::vector<std::string> words;  // which everybody gets
  bool harms_context = false;      // the victim's: CUDA is of no more use to it
};

/// The victim's place belongs to the words, too.
void must_say_of_the_victim(const std::string& sentence, std::vector<std::string> words) {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  const std::string host(name);
  words.insert(words.end(), {"rank 2 (host " + host.substr(0, host.find('.'))});
  must_say(sentence, words);
  int devices = 0;
  EXPECT_CALL(cudaGetDeviceCount(&devices));
  const std::string place = R"(rank 2 \(host [^ ]+, pid \d+, device )" + std::to_string(kVictim % devices) + R"(\))";
  if (!matches(sentence, place)) {
    throw std::runtime_error("'" + sentence + "' does not name the victim's place");
  }
}

/// Without a word about time: the victim fails at once, and all hear of it.
std::string all_hear(const Trouble& trouble) {
  const SharedCount heard;
  return run_processes(kProcesses, [&](int process, const ncclUniqueId& id) {
    Scene s;
    use_device_of(process);
    EXPECT_CALL(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&s.data), 4096));
    if (ncclCommInitRank(&s.comm, kProcesses, id, process) != ncclSuccess) {  // the victim was through before
      must_say_of_the_victim(ncclGetLastError(nullptr), trouble.words);
      return heard.add();
    }
    if (process == kVictim) {
      const ncclResult_t result = trouble.failing(s);
      if (result != trouble.code) {
        throw std::runtime_error("the victim got " + std::to_string(result) + ": " + ncclGetLastError(nullptr));
      }
      must_say(ncclGetLastError(s.comm), trouble.words);
      heard.wait_for(kProcesses - 1);  // its end would be something to hear of, too
    } else {
      ncclResult_t state = trouble.usual(s);
      while (state == ncclSuccess) {
        EXPECT_CALL(ncclCommGetAsyncError(s.comm, &state));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (state != ncclRemoteError) throw std::runtime_error("another code: " + std::to_string(state));
      must_say_of_the_victim(ncclGetLastError(s.comm), trouble.words);
      heard.add();
    }
    EXPECT_CALL(ncclCommAbort(s.comm));
    if (process != kVictim || !trouble.harms_context) EXPECT_CALL(cudaStreamSynchronize(s.stream));
  });
}

#if defined(NITINOL_VGPU)
constexpr bool kUnusableStreamsHarm = false;
constexpr bool kFullDescriptorsHarm = false;
constexpr bool kMappingTakesAddressSpace = true;

cudaStream_t unusable_stream() {
  cudaStream_t stream = nullptr;
  EXPECT_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  EXPECT_CALL(cudaStreamDestroy(stream));
  return stream;
}
#else
constexpr bool kUnusableStreamsHarm = true;        ///< the kernel runs, where nothing is mapped
constexpr bool kFullDescriptorsHarm = true;        ///< a stream could not be synchronized any more
constexpr bool kMappingTakesAddressSpace = false;  ///< CUDA has some in reserve

/// Of another context on the same GPU: what has been destroyed CUDA takes no look at, it crashes.
cudaStream_t unusable_stream() {
  constexpr unsigned kVersion = 3020;  // of the function as it is called here
  void* create = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  EXPECT_CALL(cudaGetDriverEntryPointByVersion("cuCtxCreate", &create, kVersion, cudaEnableDefault, &found));
  int device = -1;
  EXPECT_CALL(cudaGetDevice(&device));
  void* context = nullptr;
  if (create == nullptr || reinterpret_cast<int (*)(void**, unsigned, int)>(create)(&context, 0, device) != 0) {
    throw std::runtime_error("no second context");
  }
  cudaStream_t stream = nullptr;
  EXPECT_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  EXPECT_CALL(cudaSetDevice(device));
  return stream;
}
#endif

Call without_descriptors(const Call& call) {
  return [call](Scene& s) {
    const FullDescriptors full;
    return call(s);
  };
}

TEST(FirstCause, OfNoDescriptorsToReachAPeer) {
  if (!kDescriptorsCanBeLimited) GTEST_SKIP() << "a sanitizer needs descriptors";
  EXPECT_EQ("", all_hear({reduce,
                          without_descriptors(reduce),
                          ncclSystemError,
                          {"AllReduce (count 77, type float32, op sum)", "Too many open files"}}));
}

TEST(FirstCause, OfNoMemoryToMapAPeer) {
  if (!kMemoryCanBeLimited) GTEST_SKIP() << "a sanitizer needs the memory";
  if (!kMappingTakesAddressSpace) GTEST_SKIP() << "the limit is none to CUDA";
  const Call starved = [](Scene& s) {
    const NothingToMap nothing;
    return reduce(s);
  };
  EXPECT_EQ("", all_hear({reduce,
                          starved,
                          ncclSystemError,
                          {"AllReduce (count 77, type float32, op sum)", "Cannot allocate memory"}}));
}

TEST(FirstCause, OfACudaError) {
  const Call on_an_unusable_stream = [](Scene& s) {
    Scene other = s;
    other.stream = unusable_stream();
    return reduce(other);
  };
  EXPECT_EQ("", all_hear({reduce,
                          on_an_unusable_stream,
                          ncclUnhandledCudaError,
                          {"AllReduce (count 77, type float32, op sum)", "cudaErrorInvalidResourceHandle"},
                          kUnusableStreamsHarm}));
}

TEST(FirstCause, OfNoDescriptorsToSplit) {
  if (!kDescriptorsCanBeLimited) GTEST_SKIP() << "a sanitizer needs descriptors";
  EXPECT_EQ(
      "",
      all_hear({split, without_descriptors(split), ncclSystemError, {"Too many open files"}, kFullDescriptorsHarm}));
}

}  // namespace
}  // namespace nitinol::testing
