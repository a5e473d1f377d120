// A frame made in place, and sent without the network thread.
#include "bootstrap/absence.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <new>
#include <thread>

#include "base/error.h"
#include "bootstrap/connection.h"
#include "bootstrap/messages.h"
#include "bootstrap/root.h"
#include "bootstrap/wire.h"

namespace nitinol {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = 2s;
constexpr auto kPause = 10ms;

// A root of one communicator is there as long as its process. One that serves an address may be through with the last
// communicator first, or come with its rank.
Absence::Answer tell_root(const Absence& absence, const UniqueId& id, Deadline deadline) {
  while (true) {
    const Absence::Answer answer = absence.tell(id.root, root_key(id.secret), deadline);
    if (answer == Absence::Answer::kHeard || !id.from_address) return answer;
    std::this_thread::sleep_for(kPause);
    if (Clock::now() >= deadline) return answer;
  }
}

/// Whether the root listens, and there is memory to connect to it.
bool is_told(const Absence& absence, const UniqueId& id, Deadline deadline) {
  try {
    return tell_root(absence, id, deadline) != Absence::Answer::kNone;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

const UniqueId& parsed(const UniqueId& id) { return id; }
UniqueId parsed(const ncclUniqueId& id) { return parse_unique_id(id); }

template <typename Id>
void tell_all(std::span<const Id> ids, int rank, const std::exception& thrown) noexcept {
  if (code_of(thrown) == ncclInvalidArgument) return;
  try {
    const Absence absence(rank, thrown, "before it had joined");
    const Deadline deadline = Clock::now() + kPatience;
    for (const Id& each : ids) {
      const UniqueId& id = parsed(each);
      if (!is_told(absence, id, deadline) && lacks_memory(thrown)) report_lack_to_own_root(id.secret);
      if (id.from_address) return;  // the others are the same
    }
  } catch (const std::exception&) {
    // Then they hear of it when their time is over.
  }
}

}  // namespace

Absence::Absence(int rank, const std::exception& thrown, const char* where,
                 const std::optional<KeyId>& meeting) noexcept {
  std::array<char, 64> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  std::array<char, 400> sentence{};
  std::snprintf(sentence.data(), sentence.size(), "rank %d (host %s, pid %d) failed %s: %s", rank, host.data(),
                static_cast<int>(getpid()), where, lacks_memory(thrown) ? "out of memory" : thrown.what());
  const ncclResult_t told = code_of(thrown) == ncclInvalidUsage ? ncclInvalidUsage : ncclRemoteError;
  std::array<std::byte, 480> payload_room{};
  ByteWriter payload(payload_room);
  if (meeting) payload.block(meeting->data(), meeting->size());
  write_failure(payload, rank, told, sentence.data());
  ByteWriter frame(room_);
  Frame header;
  header.type = FrameType::kAbsent;
  write_header(frame, header, payload.written().size());
  frame.block(payload.written().data(), payload.written().size());
  frame_ = std::span(room_).first(frame.written().size());
}

// Whoever hears it closes the connection, without a word.
Absence::Answer Absence::tell(const SocketAddress& to, const Secret& key, Deadline deadline) const {
  const UniqueFd fd = try_to_connect(to, key, deadline, {});
  if (!fd) return Answer::kNone;
  if (::send(fd.get(), frame_.data(), frame_.size(), kNeverWait) != static_cast<ssize_t>(frame_.size())) {
    return Answer::kComeAgain;
  }
  while (true) {
    char word = 0;
    const auto got = ::recv(fd.get(), &word, 1, kNeverWait);
    if (got >= 0) return got == 0 ? Answer::kHeard : Answer::kComeAgain;
    if (errno != EAGAIN && errno != EINTR) return Answer::kHeard;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left <= 0ms) return Answer::kHeard;
    pollfd entry{fd.get(), POLLIN, 0};
    ::poll(&entry, 1, static_cast<int>(left.count()));
  }
}

void report_absence(std::span<const UniqueId> ids, int rank, const std::exception& thrown) noexcept {
  tell_all(ids, rank, thrown);
}

void report_absence(std::span<const ncclUniqueId> ids, int rank, const std::exception& thrown) noexcept {
  tell_all(ids, rank, thrown);
}

}  // namespace nitinol
