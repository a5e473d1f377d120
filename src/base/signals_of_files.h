// Errors of files that come with a signal, which by itself ends the program.
#pragma once

#include <signal.h>

#include <cerrno>
#include <ctime>

namespace nitinol {

/// While it lives this thread gets neither the signal for files that become too large nor that for pipes without a
/// reader.
class SignalsOfFiles {
 public:
  SignalsOfFiles() {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGXFSZ);
    sigaddset(&blocked, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~SignalsOfFiles() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsOfFiles(const SignalsOfFiles&) = delete;
  SignalsOfFiles& operator=(const SignalsOfFiles&) = delete;

  /// Whatever a call failed with: its signal never comes. Returns the error.
  int take(int error) const {
    if (error == EFBIG) drop(SIGXFSZ);
    if (error == EPIPE) drop(SIGPIPE);
    return error;
  }

 private:
  void drop(int signal) const {
    if (sigismember(&before_, signal) != 0) return;  // the program may be waiting for it
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    const timespec at_once{};
    sigtimedwait(&only, nullptr, &at_once);
  }

  sigset_t before_{};
};

}  // namespace nitinol
