// How what is wrong between ranks is told: the same sentences on virtual GPUs and on GPUs.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/process_state.h"
#include "executor/holder.h"
#include "model/peer.h"
#include "model/signature.h"

namespace nitinol {

/// "rank 3 (host h, pid 17, device 2)".
std::string describe_rank(int rank, const std::string& host, int pid, int device);
std::string describe_rank(int rank, const Peer& who);
/// Of the peer's process, as `self` sees it: its own is running.
ProcessState process_of(const Peer& who, const Peer& self);

/// `mine`, `theirs`: what rank `rank` and the peer call.
std::string mismatch_sentence(int rank, const std::string& mine, const std::string& peer, const std::string& theirs);

/// Rank `rank` calls `mine`, which the peer will never do.
std::string leaver_sentence(int rank, const std::string& mine, const std::string& peer);

/// Rank `rank` is in `mine`, in which the peer will do nothing any more.
std::string stopped_sentence(int rank, const std::string& mine, const std::string& peer);

/// Rank `rank` is in `mine`, of which the peer's process has died.
std::string dead_sentence(int rank, const std::string& mine, const std::string& peer);

/// Of graphs that have outlived their communicator, which are ended as the sentence says.
std::string behind_the_end_of_its_communicator(const std::string& sentence);

/// `mine`, a send or receive of rank `rank`, can never meet its other end at the peer; `reason` begins with "which".
std::string message_sentence(int rank, const std::string& mine, const std::string& peer, const std::string& reason);
/// `first`: the first of the sender's messages to rank `to` that was not received, of `sent` in all.
std::string unreceived_sentence(const std::string& sender, const std::string& receiver, int to, uint64_t sent,
                                const MessageSignature& first);
/// How an operation that makes no progress ends: it fails, as NITINOL_TIMEOUT is over, or it goes on.
enum class Delay { kOver, kGoesOn };
/// `what` rank `rank` is in: "sends and receives make"; `doings`: "not arrived: rank 1 (...): ...".
std::string delay_sentence(int rank, const std::string& what, std::chrono::milliseconds waited, Delay delay,
                           const std::string& doings);
std::string reason_leaving();
std::string reason_collective(const Signature& collective, int rank);
std::string reason_next(const Signature& collective, int rank);

/// "which has it behind AllReduce number 5 (...) on communicator ab01... (there rank 2) in its stream".
std::string reason_held_up(const Holder& holder);
/// "which calls nothing while its program waits on the host for AllReduce number 5 (...) on communicator ...".
std::string reason_on_host(const Holder& holder);
/// `mine` of rank `rank` waits for the peer, `reason` tells what for; and that waits for it, by way of other
/// communicators.
std::string long_circle_sentence(int rank, const std::string& mine, const std::string& peer, const std::string& reason);
/// The same if the peer has not made the call because its program waits on the host.
std::string host_circle_sentence(int rank, const std::string& mine, const std::string& peer, const std::string& reason);

/// What a rank does, as far as others can see.
struct Doings {
  ProcessState process = ProcessState::kUnknown;
  uint64_t begun = 0;                   ///< the number of its last collective
  std::optional<Signature> last{};      ///< that collective, if it is known
  std::optional<bool> running = false;  ///< whether it is in it, if that is known
  bool in_messages = false;             ///< whether it is in a group of sends and receives
  bool reaching = false;                ///< whether its host waits for peers' memory, for its next call
  bool stopped = false;                 ///< whether it carries out nothing any more
  uint64_t launches_ended = 0;          ///< of calls, and of groups of them, as far as they are counted
  uint64_t launches_held = 0;           ///< issued and not begun
  std::optional<Holder> holder{};       ///< behind which those stand, if it is known
};
/// "idle, its last collective was AllReduce number 5 (...)".
std::string words_for_doings(const Doings& doings);
/// "rank 3 (...): its process is stopped (...); idle, its last collective was AllReduce number 5 (...)".
std::string doings_text(const std::string& who, const Doings& doings);

/// What one rank that waits for another is in.
enum class Waiting : uint8_t { kReceive, kSend, kCollective };
/// One of those who wait for each other in a circle, each for the next.
struct CircleStep {
  std::string who;  ///< describe_rank()
  Waiting waiting = Waiting::kReceive;
  std::string call{};  ///< in which it waits; "" if that is not known
};
std::string circle_sentence(const std::vector<CircleStep>& circle);

}  // namespace nitinol
