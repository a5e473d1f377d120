// What processes of a job ask and tell each other about their health. Decoders take bytes from outside and return
// nothing if they are wrong.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "diagnostics/ras/report.h"

namespace nitinol::ras {

/// In one frame of FrameType::kAsk.
struct Ask {
  enum class What : std::uint8_t { kReport, kReportAndDumps };
  static constexpr std::size_t kMostHops = 16;
  static constexpr std::size_t kMostKnown = 200;

  What what = What::kReport;
  bool dumps_as_text = false;
  std::uint32_t patience_ms = 0;      ///< how long the asker waits
  std::vector<std::uint64_t> hops;    ///< processes to pass it on to, the last one is to answer; empty: the receiver
  std::vector<CommunicatorId> known;  ///< whose rosters need not be told
  friend bool operator==(const Ask&, const Ask&) = default;
};

/// In one frame of FrameType::kTell.
struct Tell {
  std::string trouble;   ///< the process that was to answer was not reached: why; then but for the next nothing counts
  bool hung_up = false;  ///< somebody was, though
  ProcessReport report;
  std::vector<RankDump> dumps;
  friend bool operator==(const Tell&, const Tell&) = default;
};

std::vector<std::byte> encode(const Ask& message);
std::vector<std::byte> encode(const Tell& message);
std::optional<Ask> decode_ask(std::span<const std::byte> bytes);
std::optional<Tell> decode_tell(std::span<const std::byte> bytes);

}  // namespace nitinol::ras
