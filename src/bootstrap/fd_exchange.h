// Hands file descriptors to other processes of the same host: every process has one Unix listener with an unguessable
// name in the abstract namespace (nothing in the file system), and gives a published descriptor to whoever proves that
// it knows the communicator's secret.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/unique_fd.h"
#include "bootstrap/secret.h"

namespace nitinol {

/// Names one published descriptor within a communicator. Plain bytes: ranks may all_gather it.
struct FdKey {
  std::array<std::uint8_t, 16> bytes{};
  friend auto operator<=>(const FdKey&, const FdKey&) = default;
  static FdKey random();
};

/// The name of a process's listener, of fixed size so that ranks can all_gather it.
struct FdServerName {
  std::array<char, 48> text{};  // terminated by a zero byte; begins with "nitinol-"
  friend auto operator<=>(const FdServerName&, const FdServerName&) = default;
};

struct SharedFd {
  UniqueFd fd;
  std::uint64_t metadata = 0;
};

struct PublishedKeys;

/// One communicator's published descriptors in this process; several ranks of a communicator may each have one, and
/// share what is published. Thread safe.
class FdExchange {
 public:
  /// `secret` is Bootstrap::secret(). Starts the process's listener on first use; throws Error if that fails.
  explicit FdExchange(const Secret& secret);
  ~FdExchange();  // withdraws what it published
  FdExchange(const FdExchange&) = delete;
  FdExchange& operator=(const FdExchange&) = delete;

  /// The name that other processes pass to fetch().
  FdServerName server_name() const;

  /// Takes over the descriptor (duplicate it first to keep it) and gives duplicates away until it is withdrawn.
  void publish(const FdKey& key, UniqueFd fd, std::uint64_t metadata);
  /// `make` is called for each fetch, on the process's network thread: it must be quick and must not wait for anything.
  void publish(const FdKey& key, std::function<SharedFd()> make);
  /// The same for what may take long: `make` runs on a thread of this communicator, one call at a time.
  void publish_on_demand(const FdKey& key, std::function<SharedFd()> make);
  void withdraw(const FdKey& key);

  /// Fetches what another process (or this one) published. Throws Error if the process is gone, does not know the
  /// secret, has not published the key, cannot make what it has (then with its reason), or the deadline passes.
  /// `interrupt` is called now and then, and throws to end the wait.
  SharedFd fetch(const FdServerName& server, const FdKey& key, std::chrono::steady_clock::time_point deadline,
                 const std::function<void()>& interrupt = {}) const;

 private:
  Secret secret_;
  std::shared_ptr<PublishedKeys> published_;
};

}  // namespace nitinol
