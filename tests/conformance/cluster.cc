#include "cluster.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <string_view>
#include <thread>

#include "devices.h"
#include "scarcity.h"

namespace nitinol::testing {
namespace {

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  Pipe() {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
    read_end = ends[0];
    write_end = ends[1];
  }
};

void write_all(int fd, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = write(fd, at, bytes);
    if (done <= 0) return;
    at += done;
    bytes -= static_cast<size_t>(done);
  }
}

/// Process 0 makes the id and leaves copies for the others in the pipe.
ncclUniqueId share_id(int process, int processes, const Pipe& ids) {
  ncclUniqueId id{};
  if (process == 0) {
    EXPECT_CALL(ncclGetUniqueId(&id));
    for (int i = 1; i < processes; ++i) write_all(ids.write_end, &id, sizeof(id));
  } else if (read(ids.read_end, &id, sizeof(id)) != static_cast<ssize_t>(sizeof(id))) {
    throw std::runtime_error("no id came from process 0");
  }
  return id;
}

[[noreturn]] void run_child(int process, int processes, const Pipe& ids, const Pipe& errors,
                            const std::function<void(int, const ncclUniqueId&)>& body) {
  int status = 0;
  try {
    body(process, share_id(process, processes, ids));
  } catch (const std::exception& error) {
    const std::string text = "process " + std::to_string(process) + ": " + error.what() + "\n";
    write_all(errors.write_end, text.data(), text.size());
    status = 1;
  }
  std::fflush(nullptr);
  exit(status);
}

/// What the children wrote until all have closed the pipe or patience has run out.
std::string collect(int fd) {
  std::string text;
  const auto deadline = std::chrono::steady_clock::now() + kMostTimeOfProcesses;
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{fd, POLLIN, 0};
    if (left.count() <= 0 || poll(&waiting, 1, static_cast<int>(left.count())) == 0) return text + "timed out\n";
    char buffer[4096];
    const ssize_t bytes = read(fd, buffer, sizeof(buffer));
    if (bytes <= 0) return text;
    text.append(buffer, static_cast<size_t>(bytes));
  }
}

std::string first_line_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

/// Where the threads of a process that hangs are, as far as the system tells.
std::string describe_threads(pid_t pid) {
  std::string text;
  std::error_code ignored;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", ignored)) {
    const std::string stat = first_line_of(thread.path() / "stat");
    const size_t state = stat.rfind(')');
    text += "  " + first_line_of(thread.path() / "comm") + ": state " +
            (state == std::string::npos ? "?" : stat.substr(state + 2, 1)) + ", in " +
            first_line_of(thread.path() / "wchan") + "\n";
  }
  return text;
}

void run_rank(int rank, int ranks, const ncclUniqueId& id, const std::function<void(Rank&)>& body) {
  use_device_of(rank);
  Rank self;
  self.rank = rank;
  self.ranks = ranks;
  EXPECT_CALL(cudaStreamCreateWithFlags(&self.stream, cudaStreamNonBlocking));
  EXPECT_CALL(ncclCommInitRank(&self.comm, ranks, id, rank));
  body(self);
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  EXPECT_CALL(ncclCommDestroy(self.comm));
  EXPECT_CALL(cudaStreamDestroy(self.stream));
}

}  // namespace

void expect_that(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what + " (last error: " + ncclGetLastError(nullptr) + ")");
}

void expect_refusal(ncclResult_t result, ncclResult_t code, const std::string& words) {
  expect_that(result == code, "code " + std::to_string(result) + " instead of " + std::to_string(code));
  const std::string sentence = ncclGetLastError(nullptr);
  expect_that(sentence.find(words) != std::string::npos, "the sentence lacks '" + words + "'");
}

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclInternalError;
  EXPECT_CALL(ncclCommGetAsyncError(comm, &state));
  return state;
}

ncclResult_t settled(ncclResult_t called, ncclComm_t comm) {
  while (called == ncclInProgress) {
    called = state_of(comm);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return called;
}

void expect_place(ncclComm_t comm, int rank, int ranks) {
  int got_rank = -1;
  int got_ranks = -1;
  EXPECT_CALL(ncclCommUserRank(comm, &got_rank));
  EXPECT_CALL(ncclCommCount(comm, &got_ranks));
  expect_that(got_rank == rank && got_ranks == ranks,
              "rank " + std::to_string(got_rank) + " of " + std::to_string(got_ranks));
}

void use_device_of(int rank) {
  int devices = 0;
  EXPECT_CALL(cudaGetDeviceCount(&devices));
  EXPECT_CALL(cudaSetDevice(rank % devices));
}

int devices_here() {
#if defined(NITINOL_VGPU)
  return 8;  // as many as NITINOL_VGPUS says if nobody sets it
#else
  int devices = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename();
    const bool is_numbered = name.size() > 6 && std::isdigit(static_cast<unsigned char>(name[6])) != 0;
    if (name.starts_with("nvidia") && is_numbered) ++devices;
  }
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) return devices;
  const std::string_view list(visible);
  const auto named = list.empty() ? 0 : 1 + static_cast<int>(std::count(list.begin(), list.end(), ','));
  return std::min(devices, named);
#endif
}

void make_communicators(ncclComm_t* comms, int ranks) {
  ncclUniqueId id;
  EXPECT_CALL(ncclGetUniqueId(&id));
  EXPECT_CALL(ncclGroupStart());
  for (int rank = 0; rank < ranks; ++rank) {
    use_device_of(rank);
    EXPECT_CALL(ncclCommInitRank(&comms[rank], ranks, id, rank));
  }
  EXPECT_CALL(ncclGroupEnd());
}

std::vector<ncclComm_t> make_non_blocking(int ranks) {
  std::vector<ncclComm_t> comms(static_cast<size_t>(ranks));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclUniqueId id;
  EXPECT_CALL(ncclGetUniqueId(&id));
  EXPECT_CALL(ncclGroupStart());
  for (int rank = 0; rank < ranks; ++rank) {
    use_device_of(rank);
    EXPECT_CALL(ncclCommInitRankConfig(&comms[static_cast<size_t>(rank)], ranks, id, rank, &config));
  }
  const ncclResult_t begun = ncclGroupEnd();
  for (const ncclComm_t comm : comms) EXPECT_CALL(settled(begun, comm));
  return comms;
}

void expect(ncclResult_t result, const char* call) {
  if (result == ncclSuccess) return;
  throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(result) + ": " + ncclGetLastError(nullptr));
}

void expect(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(result));
}

std::string run_processes(int processes, const std::function<void(int, const ncclUniqueId&)>& body) {
  const Pipe ids;
  const Pipe errors;
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int process = 0; process < processes; ++process) {
    const pid_t child = fork();
    if (child == 0) {
      close(errors.read_end);
      run_child(process, processes, ids, errors, body);
    }
    children.push_back(child);
  }
  close(errors.write_end);
  close(ids.write_end);
  std::string text = collect(errors.read_end);
  const bool late = text.ends_with("timed out\n");
  for (size_t i = 0; i < children.size(); ++i) {
    if (late) text += "process " + std::to_string(i) + " with the threads\n" + describe_threads(children[i]);
    if (late) kill(children[i], SIGKILL);
    int status = 0;
    waitpid(children[i], &status, 0);
    if (WIFSIGNALED(status)) {
      text += "process " + std::to_string(i) + " ended by signal " + std::to_string(WTERMSIG(status)) + "\n";
    } else if (WEXITSTATUS(status) != 0 && text.empty()) {
      text += "process " + std::to_string(i) + " exited with " + std::to_string(WEXITSTATUS(status)) + "\n";
    }
  }
  close(errors.read_end);
  close(ids.read_end);
  return text;
}

std::string run_ranks(const std::vector<int>& ranks_in_process, const std::function<void(Rank&)>& body) {
  const int ranks = std::accumulate(ranks_in_process.begin(), ranks_in_process.end(), 0);
  return run_processes(static_cast<int>(ranks_in_process.size()), [&](int process, const ncclUniqueId& id) {
    const int first = std::accumulate(ranks_in_process.begin(), ranks_in_process.begin() + process, 0);
    std::mutex mutex;
    std::string failures;
    std::vector<std::thread> threads;
    for (int i = 0; i < ranks_in_process[static_cast<size_t>(process)]; ++i) {
      threads.emplace_back([&, rank = first + i] {
        try {
          run_rank(rank, ranks, id, body);
        } catch (const std::exception& error) {
          const std::lock_guard lock(mutex);
          std::fprintf(stderr, "rank %d: %s\n", rank, error.what());  // at once: the other ranks may hang now
          failures += "rank " + std::to_string(rank) + ": " + error.what() + "\n";
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (!failures.empty()) throw std::runtime_error(failures);
  });
}

std::string run_at_once(const std::vector<std::function<std::string()>>& runs) {
  struct Running {
    pid_t process;
    int result;
  };
  std::vector<Running> all;
  std::fflush(nullptr);
  for (const auto& run : runs) {
    const Pipe result;
    const pid_t child = fork();
    if (child == 0) {
      const std::string text = run();
      write_all(result.write_end, text.data(), text.size());
      std::fflush(nullptr);
      _exit(0);
    }
    close(result.write_end);
    all.push_back({child, result.read_end});
  }
  std::string text;
  for (const Running& one : all) {
    text += collect(one.result);
    close(one.result);
    int status = 0;
    waitpid(one.process, &status, 0);
    if (status != 0) text += "a run ended with status " + std::to_string(status) + "\n";
  }
  return text;
}

}  // namespace nitinol::testing
