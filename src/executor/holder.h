// What keeps a rank from its next launch: a call on another communicator.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "executor/host_call.h"
#include "executor/label.h"
#include "model/signature.h"

namespace nitinol {

/// A call that others stand behind.
struct Holder {
  std::array<uint64_t, 2> communicator{};  ///< its identity,
  int rank = 0;                            ///< and the rank in it
  Signature call;                          ///< sequence 0: sends and receives
  PeerMessage message{};                   ///< then: one of them; number 0: not known
  HostCall host_call = HostCall::kNone;    ///< or what it is instead
};

/// The holder of a rank as it stands in shared memory: told by one thread at a time, and read by any.
class SharedHolder {
 public:
  SharedLabel label;  ///< of the call; what follows holds while it is set

  void tell(uint64_t of_call, const Holder& holder) {
    communicator_[0].store(holder.communicator[0]);
    communicator_[1].store(holder.communicator[1]);
    rank_.store(holder.rank);
    sequence_.store(holder.call.sequence);
    count_.store(holder.call.count);
    call_.store(holder.call.call);
    message_.store(holder.message.message.packed());
    message_number_.store(holder.message.message.number);
    host_call_.store(holder.host_call);
    message_peer_.store(2 * static_cast<int64_t>(holder.message.peer) + (holder.message.sends ? 1 : 0));
    label.set(of_call);
  }
  Holder holder() const {
    const int64_t peer = message_peer_.load();
    return {{communicator_[0].load(), communicator_[1].load()},
            rank_.load(),
            {sequence_.load(), count_.load(), call_.load()},
            {(peer & 1) != 0, static_cast<int>(peer >> 1),
             MessageSignature::unpacked(message_number_.load(), message_.load())},
            host_call_.load()};
  }

 private:
  std::array<std::atomic<uint64_t>, 2> communicator_;
  std::atomic<int32_t> rank_;
  std::atomic<uint64_t> sequence_;
  std::atomic<uint64_t> count_;
  std::atomic<uint64_t> call_;
  std::atomic<HostCall> host_call_;
  std::atomic<uint64_t> message_;
  std::atomic<uint64_t> message_number_;
  std::atomic<int64_t> message_peer_;  ///< twice that, and whether it is sent
};

}  // namespace nitinol
