// Under mpirun or srun the processes meet through a small file: process 0 listens on a TCP port and writes address,
// port and a random word to the file; the others connect and show the word. The file is gone once all have come.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "channel.h"
#include "library.h"

namespace nitinol::perf {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::seconds(120);

int number_of(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

std::string text_of(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? text : "";
}

struct Address {
  std::string host;
  int port = 0;
  std::string word;
};

std::string random_word() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) throw PerfError("getrandom failed");
  std::string word;
  for (const unsigned char byte : bytes) {
    char hex[3];
    std::snprintf(hex, sizeof hex, "%02x", byte);
    word += hex;
  }
  return word;
}

std::string file_name(const JobEnvironment& job, const std::string& id_file) {
  if (!id_file.empty()) return id_file;
  const std::string folder = text_of("TMPDIR").empty() ? "/tmp" : text_of("TMPDIR");
  return folder + "/nitinol-perf-" + std::to_string(getuid()) + "-" + job.job;
}

// The file appears complete or not at all, and only its owner can read the word.
void write_file(const std::string& name, const Address& address) {
  const std::string draft = name + "." + std::to_string(getpid());
  const std::string text = address.host + " " + std::to_string(address.port) + " " + address.word + "\n";
  const Socket file(open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.get() < 0 || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      std::rename(draft.c_str(), name.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    unlink(draft.c_str());
    throw PerfError("cannot write '" + name + "', where the processes are to meet: " + why);
  }
}

Socket listen_on(bool this_host_only, Address& address) {
  Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(this_host_only ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t size = sizeof at;
  if (listener.get() < 0 || bind(listener.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
      listen(listener.get(), 1024) != 0 || getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    throw PerfError(std::string("cannot listen for the other processes: ") + std::strerror(errno));
  }
  char name[256] = "127.0.0.1";
  if (!this_host_only) gethostname(name, sizeof name - 1);
  address.host = name;
  address.port = ntohs(at.sin_port);
  return listener;
}

// Reads exactly `size` bytes within a second, so that a stranger who connects cannot hold us up.
std::string read_greeting(int fd, size_t size) {
  const timeval limit{.tv_sec = 1, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  std::string text(size, '\0');
  size_t have = 0;
  while (have < size) {
    const ssize_t got = recv(fd, text.data() + have, size - have, 0);
    if (got <= 0) return "";
    have += static_cast<size_t>(got);
  }
  const timeval none{};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
  return text;
}

constexpr size_t kNumberSize = 8;

Channel host_meeting(const JobEnvironment& job, const std::string& name) {
  Address address;
  const Socket listener = listen_on(job.local_processes == job.processes, address);
  const timeval limit{.tv_sec = kPatience.count(), .tv_usec = 0};
  setsockopt(listener.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  address.word = random_word();
  write_file(name, address);
  std::vector<Socket> sockets(static_cast<size_t>(job.processes - 1));
  int missing = job.processes - 1;
  while (missing > 0) {
    Socket guest(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (guest.get() < 0 && errno == EINTR) continue;
    if (guest.get() < 0) {
      unlink(name.c_str());
      throw PerfError(std::to_string(missing) + " of " + std::to_string(job.processes) + " processes never came");
    }
    const std::string greeting = read_greeting(guest.get(), address.word.size() + kNumberSize);
    if (greeting.compare(0, address.word.size(), address.word) != 0) continue;
    const int process = std::atoi(greeting.c_str() + address.word.size());
    if (process < 1 || process >= job.processes || sockets[static_cast<size_t>(process - 1)].get() >= 0) continue;
    sockets[static_cast<size_t>(process - 1)] = std::move(guest);
    --missing;
  }
  unlink(name.c_str());
  return {0, job.processes, std::move(sockets)};
}

Socket connect_to(const Address& address) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found) != 0) return Socket();
  Socket hub(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool connected = hub.get() >= 0 && connect(hub.get(), found->ai_addr, found->ai_addrlen) == 0;
  freeaddrinfo(found);
  return connected ? std::move(hub) : Socket();
}

Channel join_meeting(const JobEnvironment& job, const std::string& name) {
  const Clock::time_point end = Clock::now() + kPatience;
  while (Clock::now() < end) {
    Address address;
    std::ifstream file(name);
    if (file >> address.host >> address.port >> address.word) {
      Socket hub = connect_to(address);  // fails while an earlier job's file still lies there
      if (hub.get() >= 0) {
        char number[kNumberSize + 1];
        std::snprintf(number, sizeof number, "%8d", job.process);
        const std::string greeting = address.word + number;
        if (send(hub.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(greeting.size())) {
          std::vector<Socket> sockets;
          sockets.push_back(std::move(hub));
          return {job.process, job.processes, std::move(sockets)};
        }
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  throw PerfError("process 0 did not show up in '" + name +
                  "'; on several hosts give --id-file on a shared file system");
}

std::string usable_in_file_name(std::string text) {
  for (char& c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return text;
}

}  // namespace

JobEnvironment job_environment() {
  JobEnvironment job;
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) {
    job.process = number_of("OMPI_COMM_WORLD_RANK", 0);
    job.processes = number_of("OMPI_COMM_WORLD_SIZE", 0);
    job.local_processes = number_of("OMPI_COMM_WORLD_LOCAL_SIZE", 0);
    job.job =
        text_of("PMIX_NAMESPACE") + text_of("OMPI_MCA_ess_base_jobid") + text_of("OMPI_MCA_orte_hnp_uri").substr(0, 16);
  } else if (std::getenv("PMI_SIZE") != nullptr) {
    job.process = number_of("PMI_RANK", 0);
    job.processes = number_of("PMI_SIZE", 0);
    job.local_processes = number_of("MPI_LOCALNRANKS", 0);
    job.job = "pmi" + std::to_string(getppid());
  } else if (std::getenv("SLURM_STEP_ID") != nullptr && std::getenv("SLURM_PROCID") != nullptr) {
    job.process = number_of("SLURM_PROCID", 0);
    job.processes = number_of("SLURM_NTASKS", 0);
    job.local_processes = number_of("SLURM_NNODES", 1) == 1 ? job.processes : 0;
    job.job = "slurm" + text_of("SLURM_JOB_ID") + "_" + text_of("SLURM_STEP_ID");
  }
  job.job = usable_in_file_name(job.job);
  return job;
}

Channel meet_by_file(const JobEnvironment& job, const std::string& id_file) {
  if (job.processes == 1) return {};
  const std::string name = file_name(job, id_file);
  return job.process == 0 ? host_meeting(job, name) : join_meeting(job, name);
}

}  // namespace nitinol::perf
