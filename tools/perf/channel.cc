// Messages between the tool's processes: a length and that many bytes, from everybody to process 0 and back.
#include "channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <sstream>

#include "library.h"

namespace nitinol::perf {
namespace {

void send_all(int fd, const void* data, size_t size) {
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = send(fd, next, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) throw PerfError(std::string("another process of this run is gone: ") + std::strerror(errno));
    next += sent;
    size -= static_cast<size_t>(sent);
  }
}

void recv_all(int fd, void* data, size_t size) {
  char* next = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = recv(fd, next, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) throw PerfError("another process of this run is gone: it closed its connection");
    if (got < 0) throw PerfError(std::string("another process of this run is gone: ") + std::strerror(errno));
    next += got;
    size -= static_cast<size_t>(got);
  }
}

void send_text(int fd, const std::string& text) {
  const uint64_t size = text.size();
  send_all(fd, &size, sizeof size);
  send_all(fd, text.data(), text.size());
}

std::string recv_text(int fd) {
  uint64_t size = 0;
  recv_all(fd, &size, sizeof size);
  if (size > (1ULL << 30)) throw PerfError("a connection between the processes of this run carries nonsense");
  std::string text(size, '\0');
  recv_all(fd, text.data(), text.size());
  return text;
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.release();
  }
  return *this;
}

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

int Socket::release() {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

Channel::Channel(int process, int processes, std::vector<Socket> sockets)
    : process_(process), processes_(processes), sockets_(std::move(sockets)) {}

std::vector<std::string> Channel::all_gather(const std::string& mine) {
  std::vector<std::string> all{mine};
  if (processes_ == 1) return all;
  if (process_ != 0) {
    const int hub = sockets_.at(0).get();
    send_text(hub, mine);
    all.clear();
    for (int i = 0; i < processes_; ++i) all.push_back(recv_text(hub));
    return all;
  }
  for (const Socket& socket : sockets_) all.push_back(recv_text(socket.get()));
  for (const Socket& socket : sockets_) {
    for (const std::string& text : all) send_text(socket.get(), text);
  }
  return all;
}

std::vector<std::vector<double>> Channel::gather_numbers(const std::vector<double>& mine) {
  const std::string text(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(double));
  std::vector<std::vector<double>> all;
  for (const std::string& other : all_gather(text)) {
    if (other.size() != text.size()) throw PerfError("the processes of this run do not agree on what they measure");
    std::vector<double> numbers(mine.size());
    std::memcpy(numbers.data(), other.data(), other.size());
    all.push_back(std::move(numbers));
  }
  return all;
}

std::vector<double> Channel::max(const std::vector<double>& mine) {
  std::vector<double> result = mine;
  for (const std::vector<double>& other : gather_numbers(mine)) {
    for (size_t i = 0; i < result.size(); ++i) result[i] = std::max(result[i], other[i]);
  }
  return result;
}

std::vector<double> Channel::sum(const std::vector<double>& mine) {
  std::vector<double> result(mine.size(), 0.0);
  for (const std::vector<double>& other : gather_numbers(mine)) {
    for (size_t i = 0; i < result.size(); ++i) result[i] += other[i];
  }
  return result;
}

Channel channel_of_worker(const std::string& worker) {
  std::istringstream in(worker);  // "<process> <processes> <fd> ..."
  int process = 0;
  int processes = 0;
  in >> process >> processes;
  std::vector<Socket> sockets;
  for (int fd = -1; in >> fd;) sockets.emplace_back(fd);
  return {process, processes, std::move(sockets)};
}

}  // namespace nitinol::perf
