// How the tool's processes talk to each other beside the library under test: process 0 is the hub of a star of sockets.
#pragma once

#include <string>
#include <vector>

namespace nitinol::perf {

/// A file descriptor that closes itself.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();
  int get() const { return fd_; }
  int release();

 private:
  int fd_;
};

class Channel {
 public:
  /// For a single process.
  Channel() = default;
  /// Process 0 gives a socket for each other process in their order, every other process one that leads to process 0.
  Channel(int process, int processes, std::vector<Socket> sockets);

  int process() const { return process_; }
  int processes() const { return processes_; }

  /// Everybody's text, in the order of processes. Throws PerfError when another process is gone.
  std::vector<std::string> all_gather(const std::string& mine);

  /// Element-wise over all processes.
  std::vector<double> max(const std::vector<double>& mine);
  std::vector<double> sum(const std::vector<double>& mine);

 private:
  std::vector<std::vector<double>> gather_numbers(const std::vector<double>& mine);

  int process_ = 0;
  int processes_ = 1;
  std::vector<Socket> sockets_;
};

/// What mpirun or srun tells a process by its environment; processes is 0 when it was started otherwise.
struct JobEnvironment {
  int process = 0;
  int processes = 0;
  int local_processes = 0;
  std::string job;  // the same in all processes of a job and different from other jobs
};
JobEnvironment job_environment();

/// Meets the other processes of the job through a file that process 0 writes and removes again.
Channel meet_by_file(const JobEnvironment& job, const std::string& id_file);

/// The channel of a process that the tool started itself; `worker` is the value of its --worker option.
Channel channel_of_worker(const std::string& worker);

}  // namespace nitinol::perf
