// The connecting side: reaches an address, repeats as the settings say, and proves the key. Runs in the caller's
// thread, which sleeps in poll() and is interruptible.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/unique_fd.h"
#include "bootstrap/address.h"
#include "bootstrap/options.h"
#include "bootstrap/secret.h"

namespace nitinol {

using Deadline = std::chrono::steady_clock::time_point;

/// Called at least every 100 ms while something waits; throws to give up.
using Interrupt = std::function<void()>;

/// Whether nobody listens at a place, and that is no chance: it has refused every connection for so long.
class Refusals {
 public:
  explicit Refusals(std::chrono::milliseconds patience) : patience_(patience) {}
  bool are_steady(bool refused_now);

 private:
  std::chrono::milliseconds patience_;
  bool refuses_ = false;
  Deadline since_{};
};

struct ConnectArguments {
  SocketAddress to;
  Secret key;
  std::string peer;  // for sentences: "the root of the unique id", "rank 3 (host h, pid p)"
  const BootstrapOptions& options;
  Deadline deadline;
  const Interrupt& interrupt;
  std::function<std::string()> fate{};  // what has become of the peer, for the sentence; may be empty
  std::string unserved{};               // why the process that listens there may not know the key; empty: it must
  // Where nobody listens now nobody ever will: how long that is to be seen, and what throws then. Empty: somebody may.
  std::chrono::milliseconds patience_with_refusals{};
  std::function<void()> in_vain{};
};

/// A proven TCP connection. Throws Error(ncclSystemError), or what `interrupt` throws.
UniqueFd connect_to_peer(const ConnectArguments& arguments);

/// One attempt; nothing if it fails, and then `refused` says whether it was because nobody listens there. Throws what
/// `interrupt` throws.
UniqueFd try_to_connect(const SocketAddress& to, const Secret& key, Deadline deadline, const Interrupt& interrupt,
                        bool* refused = nullptr);

/// Waits until `events` of poll() are there; throws Error(ncclSystemError) at the deadline.
void wait_for_fd(int fd, short events, Deadline deadline, const Interrupt& interrupt);

/// Proves `key` on a fresh connection and checks the server's proof. An empty text if that went well, else what was
/// wrong.
std::string prove_as_client(int fd, const Secret& key, Deadline deadline, const Interrupt& interrupt);

/// Sleeps, interruptibly, and not beyond the deadline.
void sleep_interruptibly(std::chrono::milliseconds duration, Deadline deadline, const Interrupt& interrupt);

}  // namespace nitinol
