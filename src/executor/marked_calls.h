// Finds on the call board which call data belongs to that carries its tag.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "executor/call_board.h"

namespace nitinol {

/// Bits of a tag (Signature::tag, of a call without its number) as far as they are known.
struct SeenTag {
  uint32_t bits = 0;
  uint32_t known = 0xffffff;

  bool fits(uint32_t tag) const { return ((tag ^ bits) & known) == 0; }
};

/// The newest call of rank `rank` with the tag, captured ones first: a collective, or a message to rank `peer`, or from
/// it. Nothing if there is none any more.
std::optional<std::string> find_marked_call(const CallBoard& board, int rank, int peer, bool sends, SeenTag tag);

}  // namespace nitinol
