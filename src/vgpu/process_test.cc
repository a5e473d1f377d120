// Virtual GPUs in several processes: memory handles, fork, the environment, and the end of a process. Each child is
// this program again, running one of the tests that are disabled here.
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "container.h"
#include "scarcity.h"
#include "vgpu/test_support.h"

extern char** environ;

namespace nitinol::vgpu::test {
namespace {

constexpr const char* kHandleVariable = "VGPU_TEST_HANDLE";

std::string to_hex(const cudaIpcMemHandle_t& handle) {
  std::string text;
  for (const char c : handle.reserved) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    text += two;
  }
  return text;
}

cudaIpcMemHandle_t from_hex(const char* text) {
  cudaIpcMemHandle_t handle;
  for (size_t i = 0; i < sizeof handle.reserved; ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(std::string(text + 2 * i, 2), nullptr, 16));
  }
  return handle;
}

// This program, to run one disabled test with one more environment variable.
class Program {
 public:
  explicit Program(const std::string& test, std::string variable = "")
      : filter_("--gtest_filter=*." + test), variable_(std::move(variable)) {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (std::strncmp(*entry, "GTEST_", 6) != 0) environment_.push_back(*entry);
    }
    if (!variable_.empty()) environment_.insert(environment_.begin(), variable_.data());
    environment_.push_back(nullptr);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Each true if it passed.
  bool passes_in_child() {
    pid_t child = 0;
    return posix_spawn(&child, kPath, nullptr, nullptr, arguments_, environment_.data()) == 0 && passed(child);
  }
  pid_t start_in_a_container() {
    const pid_t child = fork();
    if (child == 0) {
      _exit(testing::status_in_a_container([this] { execve(kPath, arguments_, environment_.data()); }).value_or(1));
    }
    return child;
  }
  static bool passed(pid_t child) {
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  static constexpr const char* kPath = "/proc/self/exe";
  std::string name_ = kPath;
  std::string disabled_ = "--gtest_also_run_disabled_tests";
  std::string filter_;
  std::string variable_;
  char* arguments_[4] = {name_.data(), filter_.data(), disabled_.data(), nullptr};
  std::vector<char*> environment_;
};

bool passes_in_child(const std::string& test, const std::string& variable = "") {
  return Program(test, variable).passes_in_child();
}

cudaIpcMemHandle_t handle_from_environment() { return from_hex(std::getenv(kHandleVariable)); }

TEST(Ipc, DISABLED_OpenAndChange) {
  char* pointer = nullptr;
  void* again = nullptr;
  ASSERT_CUDA(cudaSetDevice(3));
  ASSERT_CUDA(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&pointer), handle_from_environment(),
                                   cudaIpcMemLazyEnablePeerAccess));
  ASSERT_CUDA(cudaIpcOpenMemHandle(&again, handle_from_environment(), cudaIpcMemLazyEnablePeerAccess));
  EXPECT_EQ(again, pointer);
  cudaPointerAttributes attributes;
  ASSERT_CUDA(cudaPointerGetAttributes(&attributes, pointer + 5000));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 3);
  EXPECT_EQ(vgpuMemoryShareable(pointer, nullptr, nullptr, nullptr), 0);
  char value = 0;
  ASSERT_CUDA(cudaMemcpy(&value, pointer + 4999, 1, cudaMemcpyDeviceToHost));
  EXPECT_EQ(value, 17);
  ASSERT_CUDA(cudaMemset(pointer, 34, 10000));
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_CUDA_ERROR(cudaFree(pointer), cudaErrorInvalidValue);
  EXPECT_CUDA(cudaIpcCloseMemHandle(pointer));
  EXPECT_CUDA(cudaIpcCloseMemHandle(pointer));
  EXPECT_CUDA_ERROR(cudaIpcCloseMemHandle(pointer), cudaErrorInvalidValue);
}

TEST(Ipc, MemoryIsSharedWithAnotherProcess) {
  DeviceArray<char> before(100);
  DeviceArray<char> array(10000);
  array.set(std::vector<char>(10000, 17));
  cudaIpcMemHandle_t handle;
  ASSERT_CUDA(cudaIpcGetMemHandle(&handle, array.get() + 10));
  EXPECT_TRUE(passes_in_child("DISABLED_OpenAndChange", std::string(kHandleVariable) + "=" + to_hex(handle)));
  EXPECT_THAT(array.values(), ::testing::Each(34));
}

TEST(Ipc, SmallMemoryIsSharedToo) {
  DeviceArray<char> padding(300);
  DeviceArray<char> array(10000 - 4096);
  cudaIpcMemHandle_t handle;
  ASSERT_CUDA(cudaIpcGetMemHandle(&handle, padding.get()));
  EXPECT_TRUE(passes_in_child("DISABLED_OpenSmall", std::string(kHandleVariable) + "=" + to_hex(handle)));
  EXPECT_THAT(padding.values(), ::testing::Each(5));
}

TEST(Ipc, DISABLED_OpenSmall) {
  void* pointer = nullptr;
  ASSERT_CUDA(cudaIpcOpenMemHandle(&pointer, handle_from_environment(), cudaIpcMemLazyEnablePeerAccess));
  EXPECT_CUDA_ERROR(cudaMemset(pointer, 5, 301), cudaErrorInvalidValue);
  ASSERT_CUDA(cudaMemset(pointer, 5, 300));
  ASSERT_CUDA(cudaIpcCloseMemHandle(pointer));
}

TEST(Ipc, DISABLED_OpenStale) {
  void* pointer = nullptr;
  EXPECT_CUDA_ERROR(cudaIpcOpenMemHandle(&pointer, handle_from_environment(), cudaIpcMemLazyEnablePeerAccess),
                    cudaErrorMapBufferObjectFailed);
}

TEST(Ipc, RefusesWrongHandles) {
  DeviceArray<char> array(100);
  cudaIpcMemHandle_t handle;
  ASSERT_CUDA(cudaIpcGetMemHandle(&handle, array.get()));
  void* pointer = nullptr;
  EXPECT_CUDA_ERROR(cudaIpcOpenMemHandle(&pointer, handle, cudaIpcMemLazyEnablePeerAccess),
                    cudaErrorDeviceUninitialized);
  EXPECT_CUDA_ERROR(cudaIpcOpenMemHandle(&pointer, handle, 0), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaIpcOpenMemHandle(&pointer, cudaIpcMemHandle_t{}, cudaIpcMemLazyEnablePeerAccess),
                    cudaErrorInvalidValue);
  int local = 0;
  EXPECT_CUDA_ERROR(cudaIpcGetMemHandle(&handle, &local), cudaErrorInvalidValue);
  EXPECT_CUDA_ERROR(cudaIpcCloseMemHandle(array.get()), cudaErrorInvalidValue);
  ASSERT_CUDA(cudaIpcGetMemHandle(&handle, array.get()));
  handle.reserved[32] = static_cast<char>(handle.reserved[32] + 1);  // another file's name
  EXPECT_TRUE(passes_in_child("DISABLED_OpenStale", std::string(kHandleVariable) + "=" + to_hex(handle)));
  cudaGetLastError();
}

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() { EXPECT_EQ(pipe(ends), 0); }
  ~Pipe() {
    for (const int end : ends) close(end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
};

constexpr const char* kPipesVariable = "VGPU_TEST_PIPES";

// Tells the handle and waits until the memory has been used.
TEST(Ipc, DISABLED_Lend) {
  EXPECT_EQ(getpid(), 1);
  int handles = -1;
  int word = -1;
  ASSERT_EQ(std::sscanf(std::getenv(kPipesVariable), "%d %d", &handles, &word), 2);
  DeviceArray<char> array(10000);
  array.set(std::vector<char>(10000, 17));
  cudaIpcMemHandle_t handle;
  ASSERT_CUDA(cudaIpcGetMemHandle(&handle, array.get()));
  ASSERT_EQ(write(handles, &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
  char end = 0;
  EXPECT_EQ(read(word, &end, 1), 1);
  EXPECT_THAT(array.values(), ::testing::Each(34));
}

// The one that lends and one that opens are both process 1 of their namespaces, where neither sees the other.
TEST(Ipc, ProcessesOfOtherNamespacesAreNotTakenForThisOneAndServeWhereTheyCanBeSeen) {
  if (testing::kAddressSanitizer) GTEST_SKIP() << "its look for leaks needs a process that this one can see";
  if (!testing::there_are_containers()) GTEST_SKIP() << "this system lets us have no processes of our own";
  Pipe handles;
  Pipe word;
  Program lender("DISABLED_Lend", std::string(kPipesVariable) + "=" + std::to_string(handles.ends[1]) + " " +
                                      std::to_string(word.ends[0]));
  const pid_t lending = lender.start_in_a_container();
  close(std::exchange(handles.ends[1], -1));  // if it ends, no handle is waited for
  cudaIpcMemHandle_t handle;
  ASSERT_EQ(read(handles.ends[0], &handle, sizeof handle), static_cast<ssize_t>(sizeof handle));
  Program opener("DISABLED_OpenStale", std::string(kHandleVariable) + "=" + to_hex(handle));
  EXPECT_TRUE(Program::passed(opener.start_in_a_container()));
  char* pointer = nullptr;
  EXPECT_CUDA(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&pointer), handle, cudaIpcMemLazyEnablePeerAccess));
  if (pointer != nullptr) {
    char value = 0;
    EXPECT_CUDA(cudaMemcpy(&value, pointer + 9999, 1, cudaMemcpyDeviceToHost));
    EXPECT_EQ(value, 17);
    EXPECT_CUDA(cudaMemset(pointer, 34, 10000));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_CUDA(cudaIpcCloseMemHandle(pointer));
  }
  EXPECT_EQ(write(word.ends[1], "", 1), 1);
  EXPECT_TRUE(Program::passed(lending));
}

// Runs the function in a forked child; true if it returned true.
template <typename Function>
bool holds_in_fork(Function function) {
  const pid_t child = fork();
  if (child == 0) _exit(function() ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool works() {
  void* pointer = nullptr;
  int count = 0;
  const VgpuKernel kernel{[](void* p) { ++*static_cast<int*>(p); }, &count, nullptr};
  return cudaMalloc(&pointer, 100) == cudaSuccess && vgpuLaunchKernel(nullptr, &kernel) == cudaSuccess &&
         cudaDeviceSynchronize() == cudaSuccess && count == 1 && cudaFree(pointer) == cudaSuccess;
}

TEST(Fork, DISABLED_BeforeAndAfterUse) {
  EXPECT_TRUE(holds_in_fork(works));
  EXPECT_TRUE(works());
  // By then the engine's thread has started and sleeps: gcc's address sanitizer leaves its heap locked in the child of
  // a fork that finds another thread there.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(holds_in_fork([] {
    void* pointer = nullptr;
    return cudaMalloc(&pointer, 100) == cudaErrorInitializationError;
  }));
}

TEST(Fork, AChildMayUseTheRuntimeOnlyIfTheParentHadNot) { EXPECT_TRUE(passes_in_child("DISABLED_BeforeAndAfterUse")); }

TEST(Files, DISABLED_WithoutStandardStreams) {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(stream);
  std::vector<char> contents(4096);
  void* memory = nullptr;
  EXPECT_CUDA(cudaMalloc(&memory, contents.size()));
  EXPECT_CUDA(cudaMemset(memory, 0, contents.size()));
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) EXPECT_LT(write(stream, "printed", 7), 0);
  EXPECT_CUDA(cudaMemcpy(contents.data(), memory, contents.size(), cudaMemcpyDeviceToHost));
  EXPECT_EQ(contents, std::vector<char>(contents.size()));
}

TEST(Files, ThatMemoryLiesInDoNotStandInForStreamsThatTheProgramHasClosed) {
  EXPECT_TRUE(passes_in_child("DISABLED_WithoutStandardStreams"));
}

TEST(Files, DISABLED_OfAFewMegabytesAtMost) {
  const rlimit most{8 << 20, 8 << 20};
  EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &most), 0);
  void* memory = nullptr;
  EXPECT_CUDA_ERROR(cudaMalloc(&memory, 16 << 20), cudaErrorMemoryAllocation);
  EXPECT_CUDA(cudaMalloc(&memory, 1 << 20));
  EXPECT_CUDA(cudaMemset(memory, 1, 1 << 20));
  EXPECT_CUDA(cudaFree(memory));
}

TEST(Files, ThatMayNotBeLargeAreALackOfMemoryAndNotTheEndOfTheProcess) {
  EXPECT_TRUE(passes_in_child("DISABLED_OfAFewMegabytesAtMost"));
}

long resident_bytes() {
  long size = 0;
  long resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(Files, DISABLED_OfAProgramThatLocksItsMemory) {
  const rlimit most{3UL << 30, 3UL << 30};
  EXPECT_EQ(setrlimit(RLIMIT_AS, &most), 0);  // or all that there is may be used up, if this fails
  EXPECT_EQ(mlockall(MCL_FUTURE), 0);
  if (mmap(nullptr, 64 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) {
    GTEST_SKIP() << "this user may lock little";
  }
  const long before = resident_bytes();
  void* memory = nullptr;
  EXPECT_CUDA(cudaMalloc(&memory, 1 << 20));
  EXPECT_CUDA(cudaMemset(memory, 1, 1 << 20));
  EXPECT_CUDA(cudaDeviceSynchronize());
  EXPECT_LT(resident_bytes() - before, 256 << 20);
}

TEST(Files, ThatMemoryLiesInAreFilledAsTheyAreUsedThoughTheProgramLocksItsMemory) {
  if (!testing::kMemoryCanBeLimited) GTEST_SKIP() << "a sanitizer's own memory cannot be locked";
  EXPECT_TRUE(passes_in_child("DISABLED_OfAProgramThatLocksItsMemory"));
}

TEST(Environment, DISABLED_ThreeDevices) {
  int count = 0;
  EXPECT_CUDA(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 3);
  EXPECT_CUDA_ERROR(cudaSetDevice(3), cudaErrorInvalidDevice);
}

TEST(Environment, DISABLED_EightDevices) {
  int count = 0;
  EXPECT_CUDA(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 8);
}

TEST(Environment, IsIgnoredWhereItMakesNoSense) {
  for (const char* value : {"", "0", "-1", "1025", "many", "4x", " 3", "0x"}) {
    EXPECT_TRUE(passes_in_child("DISABLED_EightDevices", std::string("NITINOL_VGPUS=") + value)) << value;
  }
}

TEST(Environment, SaysHowManyDevicesThereAre) {
  for (const char* value : {"3", "003", "0x3"}) {
    EXPECT_TRUE(passes_in_child("DISABLED_ThreeDevices", std::string("NITINOL_VGPUS=") + value)) << value;
  }
}

Gate* g_never = nullptr;

TEST(Exit, DISABLED_WithWorkPending) {
  g_never = new Gate;
  for (int i = 0; i < 4; ++i) {
    cudaStream_t stream = nullptr;
    ASSERT_CUDA(cudaStreamCreate(&stream));
    Gate started;
    if (i % 2 == 0) enqueue(stream, [&] { started.open(); });
    enqueue_gate(stream, *g_never);
    enqueue(stream, [] {});
    if (i % 2 == 0) started.wait();
  }
}

TEST(Exit, WithWorkPendingIsClean) { EXPECT_TRUE(passes_in_child("DISABLED_WithWorkPending")); }

struct UsesTheRuntimeLate {
  ~UsesTheRuntimeLate() {
    if (stream == nullptr) return;
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
    cudaFree(memory);
  }
  cudaStream_t stream = nullptr;
  void* memory = nullptr;
};
UsesTheRuntimeLate g_late;
thread_local UsesTheRuntimeLate t_late;

TEST(Exit, DISABLED_WithCallsFromDestructors) {
  for (UsesTheRuntimeLate* late : {&g_late, &t_late}) {
    ASSERT_CUDA(cudaStreamCreate(&late->stream));
    ASSERT_CUDA(cudaMalloc(&late->memory, 1000));
    ASSERT_CUDA(cudaMemsetAsync(late->memory, 1, 1000, late->stream));
  }
}

TEST(Exit, CallsFromDestructorsAreHarmless) { EXPECT_TRUE(passes_in_child("DISABLED_WithCallsFromDestructors")); }

TEST(Exit, ThreadsMayEndWithWorkInTheirOwnStream) {
  int ran = 0;
  std::thread([&] { enqueue(cudaStreamPerThread, [&] { ran = 1; }); }).join();
  ASSERT_CUDA(cudaDeviceSynchronize());
  EXPECT_EQ(ran, 1);
}

}  // namespace
}  // namespace nitinol::vgpu::test
