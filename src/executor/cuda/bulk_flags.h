// Where the flags of the protocol for large messages lie. Its queue set has the slots of a connection as channels:
//   filled    [slot][peer]  the last step that `peer` has put into the slot, counted from 1; written by `peer`
//   credits   [slot][peer]  the last of R's steps in the slot that `peer` has consumed; written by `peer`
//   state     [slot][peer]  how many CTAs are done with the slot; in slot 0 also R's steps from one operation to the
//   next
#pragma once

#include "executor/cuda/parameters.h"

namespace nitinol::cuda {

struct BulkFlags {
  const QueueView& view;

  NITINOL_HOST_DEVICE char* own() const { return view.region[view.rank]; }
  NITINOL_HOST_DEVICE int slot_of(uint32_t step) const {
    return static_cast<int>(step & (static_cast<uint32_t>(view.layout.channels) - 1));
  }

  NITINOL_HOST_DEVICE uint32_t* filled(int peer, uint32_t step) const {
    return view.layout.filled(own(), slot_of(step), peer);
  }
  NITINOL_HOST_DEVICE uint32_t* filled_at(int peer, uint32_t step) const {
    return view.layout.filled(view.region[peer], slot_of(step), view.rank);
  }
  NITINOL_HOST_DEVICE uint32_t* credit(int peer, uint32_t step) const {
    return view.layout.credit(own(), slot_of(step), peer);
  }
  NITINOL_HOST_DEVICE uint32_t* credit_at(int peer, uint32_t step) const {
    return view.layout.credit(view.region[peer], slot_of(step), view.rank);
  }

  /// CTAs that have consumed, or filled, their part of the slot.
  NITINOL_HOST_DEVICE uint32_t* consumers(int peer, uint32_t step) const { return &state(slot_of(step), peer)->sent; }
  NITINOL_HOST_DEVICE uint32_t* producers(int peer, uint32_t step) const {
    return &state(slot_of(step), peer)->received;
  }
  /// CTAs that are through with the operation.
  NITINOL_HOST_DEVICE uint32_t* finished() const { return &state(0, view.rank)->sent; }
  NITINOL_HOST_DEVICE uint32_t* steps_sent(int peer) const { return &state(0, peer)->posted; }
  NITINOL_HOST_DEVICE uint32_t* steps_received(int peer) const { return &state(0, peer)->credit; }

  NITINOL_HOST_DEVICE char* incoming(int peer, uint32_t step) const {
    return view.layout.slot(own(), view.rank, peer, slot_of(step), 0);
  }
  NITINOL_HOST_DEVICE char* outgoing(int peer, uint32_t step) const {
    return view.layout.slot(view.region[peer], peer, view.rank, slot_of(step), 0);
  }

 private:
  NITINOL_HOST_DEVICE ConnectionState* state(int slot, int peer) const {
    return view.layout.state(view.counters, slot, peer);
  }
};

}  // namespace nitinol::cuda
