// The only word of a rank that could not even join the others, who may wait for it: it had no memory for that, say.
// Takes none itself. (So it does not reach a root with a link-local address, which needs an interface's name.)
#pragma once

#include <array>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>

#include "bootstrap/address.h"
#include "bootstrap/connect.h"
#include "bootstrap/secret.h"
#include "bootstrap/unique_id.h"
#include "nccl.h"

namespace nitinol {

/// Tells the roots of the ids that this rank does not come, and why, so that all ranks that are there or come hear it.
/// Not of an invalid argument: the rank may call again with the same ids. Nothing happens if one of them is no id.
/// Takes a round trip, and two seconds at most.
void report_absence(std::span<const UniqueId> ids, int rank, const std::exception& thrown) noexcept;
void report_absence(std::span<const ncclUniqueId> ids, int rank, const std::exception& thrown) noexcept;

/// The word itself.
class Absence {
 public:
  /// `where` it failed, to be put behind the rank. `meeting`: which the word is about, where it is not told to a root.
  Absence(int rank, const std::exception& thrown, const char* where, const std::optional<KeyId>& meeting = {}) noexcept;

  enum class Answer { kNone, kHeard, kComeAgain };
  /// To whoever listens there, for whom the key stands.
  Answer tell(const SocketAddress& to, const Secret& key, Deadline deadline) const;

 private:
  std::array<std::byte, 512> room_{};
  std::span<const std::byte> frame_;
};

}  // namespace nitinol
