// Ways to take something away from this process that the library may need.
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

namespace nitinol::testing {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
inline constexpr bool kAddressSanitizer = __has_feature(address_sanitizer);
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
inline constexpr bool kThreadSanitizer = __has_feature(thread_sanitizer);
#else
inline constexpr bool kThreadSanitizer = false;
#endif

inline constexpr bool kSanitized = kAddressSanitizer || kThreadSanitizer;

/// Whether it is known that all of a program's threads wait: this sanitizer has one of its own.
inline constexpr bool kThreadsAreKnown = !kThreadSanitizer;
/// Whether it is known for which stream a thread waits on the host.
#if defined(NITINOL_VGPU)
inline constexpr bool kStreamsAreKnown = true;
#else
inline constexpr bool kStreamsAreKnown = false;
#endif

/// A sanitizer's own memory does not bear limits.
inline constexpr bool kMemoryCanBeLimited = !kSanitized;
/// The one for undefined behaviour, which comes with that for addresses, tries memory out with pipes.
inline constexpr bool kDescriptorsCanBeLimited = !kAddressSanitizer;
/// New descriptors get the numbers of sockets that were closed behind the library's back, which closes them once more:
/// sanitizers' pipes too, which then raise SIGPIPE; and it is a race between the numbers' users.
inline constexpr bool kSocketsCanBeClosed = !kSanitized;

/// By netlink it lists network interfaces; it ends a process in which such a socket is closed meanwhile.
inline bool is_of_the_c_library(int socket) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_NETLINK;
}

/// Behind a sanitizer's back, and without a descriptor of its own: to close what is in use elsewhere is meant to be
/// wrong.
inline void close_all_sockets() {
  constexpr int kMostDescriptors = 4096;
  for (int fd = 0; fd < kMostDescriptors; ++fd) {
    char target[64] = {};
    const bool is_link = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target, sizeof(target) - 1) > 0;
    if (is_link && std::string(target).starts_with("socket:") && !is_of_the_c_library(fd)) syscall(SYS_close, fd);
  }
}

/// Until it goes: no thread can be started, as no address space holds the stack it would get.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t huge;
    pthread_getattr_default_np(&before_);
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 60);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

/// Until it goes: this process gets no more of something than so much.
class Limit {
 public:
  Limit(decltype(RLIMIT_AS) resource, rlim_t most) : resource_(resource) {
    getrlimit(resource_, &before_);
    const rlimit less{most, before_.rlim_max};
    setrlimit(resource_, &less);
  }
  ~Limit() { setrlimit(resource_, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  decltype(RLIMIT_AS) resource_;
  rlimit before_{};
};

/// Until it goes: no descriptor can be opened, whatever is closed meanwhile. Those of the standard streams are open.
class FullDescriptors {
  Limit limit_{RLIMIT_NOFILE, STDERR_FILENO + 1};
};

/// Until it goes: no more descriptors than so many can be opened.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) : limit_(RLIMIT_NOFILE, first_beyond(more)) {}

 private:
  static rlim_t first_beyond(int more) {
    std::vector<int> open;
    while (static_cast<int>(open.size()) < more) open.push_back(dup(STDERR_FILENO));
    const int last = open.back();  // the system gives the lowest number that is free
    for (const int fd : open) close(fd);
    return static_cast<rlim_t>(last) + 1;
  }
  Limit limit_;
};

inline rlim_t mapped_bytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

/// Until it goes: nothing large can be mapped, no thread be started, unless another gives back as much. Small pieces of
/// the heap are still there.
class NoMemory {
  Limit limit_{RLIMIT_AS, mapped_bytes() + (64 << 10)};
};

/// Until it goes: nothing can be mapped, whatever is given back meanwhile, and the heap does not grow.
class NothingToMap {
  Limit limit_{RLIMIT_AS, mapped_bytes() / 2};
};

}  // namespace nitinol::testing
