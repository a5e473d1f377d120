// Processes that see no others and have numbers of their own, as in a container.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>

namespace nitinol::testing {

/// Runs `body` in a process that has the number 1 and sees no others; its exit status, 0 if `body` returns. Nothing:
/// the system forbids it. Of a process with one thread, whose further children would be in that namespace, too.
inline std::optional<int> status_in_a_container(const std::function<void()>& body) {
  constexpr int kNoNamespace = 77;
  constexpr int kKilled = 78;
  const int kinds = CLONE_NEWPID | CLONE_NEWNS;
  if (unshare(kinds) != 0 && unshare(CLONE_NEWUSER | kinds) != 0) return std::nullopt;
  const pid_t child = fork();
  if (child == 0) {
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("proc", "/proc", "proc", 0, nullptr) != 0) {
      _exit(kNoNamespace);
    }
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : kKilled;
  if (code == kNoNamespace) return std::nullopt;
  return code;
}

inline bool there_are_containers() {
  const pid_t child = fork();
  if (child == 0) _exit(status_in_a_container([] {}) == 0 ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace nitinol::testing
