// The main program of all tests: GoogleTest's, but that tests are run again that failed while the machine stood still.
//
// Many tests set deadlines of a second, and expect that they strike where a rank has come to harm. Where a host takes
// the processors away for longer they strike anywhere, which says nothing of the library. What fails on a machine that
// runs has failed.
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kStall{250};
constexpr int kAttempts = 4;
constexpr int kMostWatchers = 4;
constexpr const char* kAttemptName = "TEST_ATTEMPT";

/// For how long at a time the processors were away. A process watches each: threads would be in the way of tests that
/// fork.
class StallWatch {
 public:
  StallWatch() {
    void* const page = mmap(nullptr, sizeof(Worst), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;  // then a failure is one
    worst_ = new (page) Worst{};
    cpu_set_t all;
    CPU_ZERO(&all);
    if (sched_getaffinity(0, sizeof all, &all) != 0) return;
    for (int cpu = 0; cpu < CPU_SETSIZE && watchers_.size() < kMostWatchers; ++cpu) {
      if (CPU_ISSET(cpu, &all)) start(cpu);
    }
  }
  ~StallWatch() {
    for (const pid_t watcher : watchers_) {
      kill(watcher, SIGKILL);
      waitpid(watcher, nullptr, 0);
    }
  }
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  milliseconds worst() const { return milliseconds(worst_ != nullptr ? worst_->load() : 0); }

 private:
  using Worst = std::atomic<int64_t>;

  void start(int cpu) {
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child > 0) watchers_.push_back(child);
    if (child != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) _exit(0);
    watch();
  }
  [[noreturn]] void watch() {
    while (true) {
      const auto start = steady_clock::now();
      std::this_thread::sleep_for(milliseconds(10));
      const int64_t took = std::chrono::duration_cast<milliseconds>(steady_clock::now() - start).count();
      int64_t worst = worst_->load();
      while (took > worst && !worst_->compare_exchange_weak(worst, took)) {
      }
    }
  }

  Worst* worst_ = nullptr;  ///< in milliseconds, shared with the watchers
  std::vector<pid_t> watchers_;
};

int attempt() {
  const char* const text = std::getenv(kAttemptName);
  return text != nullptr ? std::atoi(text) : 1;
}

/// Does not return but where it fails to.
void run_again(const std::vector<std::string>& arguments, milliseconds stalled) {
  std::printf("[ STALLED  ] The machine stood still for %lld ms meanwhile: once more.\n",
              static_cast<long long>(stalled.count()));
  std::fflush(stdout);
  setenv(kAttemptName, std::to_string(attempt() + 1).c_str(), 1);
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  execv("/proc/self/exe", pointers.data());
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  testing::InitGoogleMock(&argc, argv);
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
  int result = 0;
  milliseconds stalled{};
  {
    const StallWatch watch;
    result = RUN_ALL_TESTS();
    stalled = watch.worst();
  }
  if (result != 0 && stalled >= kStall && attempt() < kAttempts) run_again(arguments, stalled);
  return result;
}
