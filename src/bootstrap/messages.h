// What the frames carry besides operations' data. Each decoder takes bytes from outside and returns nothing if they are
// wrong.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/address.h"
#include "bootstrap/liveness.h"
#include "bootstrap/secret.h"

namespace nitinol {

/// Where a rank lives, for error sentences.
struct PeerIdentity {
  std::string host;
  std::int64_t pid = 0;
  std::uint64_t pid_namespace = 0;  // in which the pid counts
  int device = -1;                  // a rank's, if it is known; not sent with the rest
};
PeerIdentity this_process();
bool are_same_process(const PeerIdentity& a, const PeerIdentity& b);
/// "rank 3 (host h, pid 123, device 2)"
std::string describe_rank(int rank, const PeerIdentity& identity);
/// "30 s", or "1500 ms" of what is no whole number of seconds.
std::string seconds_text(std::chrono::milliseconds time);
/// To be put behind a sentence about the process: "; its process is stopped (SIGSTOP, or a debugger)". Nothing for one
/// that cannot be seen from here.
std::string fate_of(const PeerIdentity& identity);
/// Whether the process is of this host, and stopped.
bool is_stopped(const PeerIdentity& identity);
/// Whether it is of this host, and has ended.
bool has_ended(const PeerIdentity& identity);

constexpr int kMostRanks = 1 << 24;

/// Random bytes in the key of a rank's listener: a rank is reached only by those it or its root has told them.
using Contact = std::array<std::uint8_t, 16>;

struct Registration {
  int rank = 0;
  int nranks = 0;
  int ids = 1;    // how many ids share the communicator
  int index = 0;  // which of them this root serves
  std::int64_t timeout_ms = 0;
  KeyId list{};  // names the list of ids
  SocketAddress listener;
  Contact contact{};
  PeerIdentity identity;
};

/// The answer to a Registration or a lookup: the tree parent. rank -1: this root knows of none (its block's leader).
struct ParentReply {
  int rank = -1;
  SocketAddress listener;
  Contact contact{};
  PeerIdentity identity;
};

/// First message on a tree connection.
struct Hello {
  int rank = 0;
  PeerIdentity identity;
};

/// Where a rank stands with the meetings of some ranks of its communicator (regroup_desk.h): asked and answered alike.
struct RegroupWord {
  enum class State : std::uint8_t {
    kMeets,   // in one
    kFailed,  // its last one failed because the ranks exclude different ones
    kIdle,    // in none
    kLeft,    // in none, and has left the communicator
  };
  State state = State::kIdle;
  bool repairs = false;  // it meets because the communicator has been revoked
  int rank = 0;
  std::uint64_t meeting = 0;    // counts this rank's; the rest is about its last one
  std::uint64_t number = 0;     // of the meetings with this list
  std::uint64_t failures = 0;   // of its meetings because of lists that differ, as far as it has heard
  std::vector<int> excluded{};  // in order
  std::string sentence{};       // why it failed
};
/// Ranks of more than a list in a frame can hold.
constexpr int kMostRegrouped = 8192;

std::vector<std::byte> encode(const RegroupWord& message);
std::optional<RegroupWord> decode_regroup_word(std::span<const std::byte> bytes);

std::vector<std::byte> encode(const Registration& message);
std::vector<std::byte> encode(const ParentReply& message);
std::vector<std::byte> encode(const Hello& message);
std::vector<std::byte> encode(const Failure& message);
/// The same of a failure whose sentence may be anywhere.
void write_failure(ByteWriter& writer, int rank, ncclResult_t result, std::string_view sentence,
                   Parting parting = Parting::kFailed);
std::optional<Registration> decode_registration(std::span<const std::byte> bytes);
std::optional<ParentReply> decode_parent_reply(std::span<const std::byte> bytes);
std::optional<Hello> decode_hello(std::span<const std::byte> bytes);
std::optional<Failure> decode_failure(std::span<const std::byte> bytes);

}  // namespace nitinol
