// Jobs with health monitoring in tests: ports of their own, and a client that speaks to one process.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster.h"
#include "pipe.h"

namespace nitinol::testing {

/// Whether ranks are on virtual GPUs, which tell when operations begin and end, and have plans of their own.
#if defined(NITINOL_VGPU)
constexpr bool kVirtualGpus = true;
#else
constexpr bool kVirtualGpus = false;
#endif

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

/// A port that nobody else gets: bound, but not listened at, beside which monitoring may listen.
class Port {
 public:
  Port() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int one = 1;
    setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    if (::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) throw std::runtime_error("bind");
    getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    number_ = ntohs(address.sin_port);
  }
  int number() const { return number_; }
  std::string address() const { return "localhost:" + std::to_string(number_); }

 private:
  Socket socket_;
  int number_ = 0;
};

/// Connects as soon as somebody listens.
inline Socket connect_to(int port) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (true) {
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = loopback(port);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return socket;
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("nobody listens");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

inline void say(const Socket& socket, const std::string& text) {
  [[maybe_unused]] const auto sent = ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
}

/// All that comes until the other side closes.
inline std::string hear(const Socket& socket) {
  std::string text;
  char buffer[4096];
  while (true) {
    pollfd waiting{socket.get(), POLLIN, 0};
    if (poll(&waiting, 1, 60'000) == 0) throw std::runtime_error("no answer; so far: " + text);
    const ssize_t got = ::recv(socket.get(), buffer, sizeof(buffer), 0);
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
  }
}

/// What the process behind the port answers.
inline std::string ask(int port, const std::string& commands) {
  const Socket socket = connect_to(port);
  say(socket, commands);
  return hear(socket);
}

inline nlohmann::json ask_json(int port, const std::string& timeout = "20") {
  const std::string answer = ask(port, "TIMEOUT " + timeout + "\nSET FORMAT json\nSTATUS\n");
  if (answer.substr(0, 6) != "OK\nOK\n") throw std::runtime_error("'" + answer + "' does not begin with two OK");
  return nlohmann::json::parse(answer.substr(6));
}

/// Asks until what is said fulfils the condition.
inline nlohmann::json ask_until(int port, const std::function<bool(const nlohmann::json&)>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(90);
  while (true) {
    nlohmann::json job = ask_json(port, "1");
    if (condition(job)) return job;
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("in the end it says " + job.dump(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

inline void must_contain(const std::string& text, std::initializer_list<std::string> words) {
  for (const std::string& word : words) {
    if (text.find(word) != std::string::npos) continue;
    std::string sentence = "lacking: '";
    sentence.append(word).append("' in '").append(text).append("'");
    throw std::runtime_error(sentence);
  }
}

inline void must_equal(const nlohmann::json& is, const nlohmann::json& wanted, const char* what) {
  if (is != wanted) throw std::runtime_error(std::string(what) + " is " + is.dump() + ", not " + wanted.dump());
}

/// What a process writes, processes that wait for it read: one byte each.
class Gate {
 public:
  void open(int passages = 1) const {
    const std::string bytes(static_cast<size_t>(passages), 'x');
    pipe_.put(bytes.data(), bytes.size());
  }
  void pass() const {
    char byte = 0;
    get(byte);
  }
  template <typename T>
  void put(const T& value) const {
    pipe_.put(&value, sizeof(value));
  }
  template <typename T>
  void get(T& value) const {
    if (!pipe_.get(&value, sizeof(value))) throw std::runtime_error("nobody has written to the pipe");
  }

 private:
  Pipe pipe_;
};

/// Where processes wait for each other, each once.
class Meeting {
 public:
  explicit Meeting(size_t processes) : gates_(processes) {}
  void meet(int self, const std::vector<int>& all) const {
    for (const int other : all) {
      if (other != self) gates_[static_cast<size_t>(other)].open();
    }
    for (size_t i = 1; i < all.size(); ++i) gates_[static_cast<size_t>(self)].pass();
  }

 private:
  std::vector<Gate> gates_;
};

/// A communicator of one rank per process, with a small buffer, whose process answers at a port of its own.
struct RasRank {
  int process = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* data = nullptr;

  RasRank(int number, int processes, const ncclUniqueId& id, const std::string& address) : process(number) {
    setenv("NCCL_RAS_ADDR", address.c_str(), 1);
    EXPECT_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data), 4096));
    EXPECT_CALL(ncclCommInitRank(&comm, processes, id, number));
  }
  void reduce(size_t count) { EXPECT_CALL(ncclAllReduce(data, data, count, ncclFloat, ncclSum, comm, stream)); }
  void wait() { EXPECT_CALL(cudaStreamSynchronize(stream)); }
  void end() {
    EXPECT_CALL(ncclCommDestroy(comm));
    release();
  }
  void abort() {
    EXPECT_CALL(ncclCommAbort(comm));
    release();
  }

 private:
  void release() {
    EXPECT_CALL(cudaStreamSynchronize(stream));
    EXPECT_CALL(cudaFree(data));
    EXPECT_CALL(cudaStreamDestroy(stream));
  }
};

}  // namespace nitinol::testing
