// For the start of helper threads: the application's signals are none of their business, and threads begin with the
// mask of whoever starts them.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace nitinol {

/// While it lives, the calling thread receives no signals.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace nitinol
