// A bitmap of guarded descriptors, read in the child of a fork where no lock may be taken.
#include "bootstrap/fork_guard.h"

#include <fcntl.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace nitinol {
namespace {

constexpr int kMostDescriptors = 1 << 16;  // higher ones are not guarded
constexpr int kBits = 64;
std::array<std::atomic<std::uint64_t>, kMostDescriptors / kBits> guarded;
std::atomic<void (*)()> child_callback{nullptr};
std::atomic<int> forks{0};

void replace_in_child() {
  forks.fetch_add(1, std::memory_order_relaxed);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (std::size_t word = 0; word < guarded.size(); ++word) {
    std::uint64_t bits = guarded[word].load(std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1) {
      const int fd = static_cast<int>(word) * kBits + __builtin_ctzll(bits);
      if (null >= 0) ::dup3(null, fd, O_CLOEXEC);
    }
    guarded[word].store(0, std::memory_order_relaxed);
  }
  if (null >= 0) ::close(null);
  if (auto* callback = child_callback.load()) callback();
}

void mark(int fd, bool on) {
  static const int installed = pthread_atfork(nullptr, nullptr, replace_in_child);
  (void)installed;
  if (fd < 0 || fd >= kMostDescriptors) return;
  auto& word = guarded[static_cast<std::size_t>(fd / kBits)];
  const std::uint64_t bit = std::uint64_t{1} << (fd % kBits);
  if (on) {
    word.fetch_or(bit);
  } else {
    word.fetch_and(~bit);
  }
}

}  // namespace

GuardedFd::GuardedFd(UniqueFd fd) : fd_(std::move(fd)) { mark(fd_.get(), true); }

GuardedFd& GuardedFd::operator=(GuardedFd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::move(other.fd_);
  }
  return *this;
}

void GuardedFd::reset() {
  mark(fd_.get(), false);
  fd_.reset();
}

UniqueFd GuardedFd::release() {
  mark(fd_.get(), false);
  return std::move(fd_);
}

int count_forks() {
  mark(-1, false);
  return forks_counted();
}

int forks_counted() noexcept { return forks.load(std::memory_order_relaxed); }

void on_fork_in_child(void (*in_child)()) {
  mark(-1, false);
  child_callback.store(in_child);
}

}  // namespace nitinol
