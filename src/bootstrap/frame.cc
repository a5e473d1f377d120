// Encoding and cutting of frames. Header: payload length (4 bytes), type (1), operation (1), zero (2), sequence (8).
#include "bootstrap/frame.h"

#include <algorithm>

#include "base/error.h"
#include "bootstrap/wire.h"

namespace nitinol {

std::string operation_text(Operation operation, std::uint64_t sequence) {
  switch (operation) {
    case Operation::kNone: return "no operation";
    case Operation::kAllGather: return formatted("all_gather number {} of making the communicator", sequence);
    case Operation::kAllGatherVariable:
      return formatted("all_gather_variable number {} of making the communicator", sequence);
    case Operation::kBroadcast: return formatted("broadcast number {} of making the communicator", sequence);
    case Operation::kBarrier: return formatted("barrier number {} of making the communicator", sequence);
    case Operation::kSplit: return "ncclCommSplit";
    case Operation::kLeave: return "ncclCommFinalize or ncclCommDestroy";
    case Operation::kCompare: return "a collective (NITINOL_CHECK=strict compares them)";
  }
  return "?";
}

std::size_t largest_payload(FrameType type) {
  if (type == FrameType::kData) return kLargestFrame;
  return type == FrameType::kTell ? kLargestTell : kLargestControlFrame;
}

void write_header(ByteWriter& writer, const Frame& frame, std::size_t payload_bytes) {
  writer.integer(static_cast<std::uint32_t>(payload_bytes));
  writer.integer(static_cast<std::uint8_t>(frame.type));
  writer.integer(static_cast<std::uint8_t>(frame.operation));
  writer.integer(std::uint16_t{0});
  writer.integer(frame.sequence);
}

std::vector<std::byte> encode_header(const Frame& frame, std::size_t payload_bytes) {
  ByteWriter writer;
  write_header(writer, frame, payload_bytes);
  return writer.take();
}

std::vector<std::byte> encode_frame(const Frame& frame) {
  auto bytes = encode_header(frame, frame.payload.size());
  bytes.insert(bytes.end(), frame.payload.begin(), frame.payload.end());
  return bytes;
}

bool FrameReader::feed(std::span<const std::byte> bytes) {
  while (!broken_ && !bytes.empty()) {
    auto& target = in_payload_ ? current_.payload : header_;
    const std::size_t wanted = (in_payload_ ? expected_ : kFrameHeaderBytes) - target.size();
    const auto part = bytes.first(std::min(wanted, bytes.size()));
    target.insert(target.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
    if (part.size() < wanted) continue;
    if (in_payload_) {
      finish_frame();
    } else if (!start_frame()) {
      broken_ = true;
    }
  }
  return !broken_;
}

bool FrameReader::start_frame() {
  ByteReader reader(header_);
  expected_ = reader.integer<std::uint32_t>();
  const auto type = reader.integer<std::uint8_t>();
  const auto operation = reader.integer<std::uint8_t>();
  const auto zero = reader.integer<std::uint16_t>();
  current_.sequence = reader.integer<std::uint64_t>();
  header_.clear();
  if (type == 0 || type > kLastFrameType || operation > kLastOperation || zero != 0) return false;
  current_.type = static_cast<FrameType>(type);
  current_.operation = static_cast<Operation>(operation);
  if (expected_ > largest_payload(current_.type)) return false;
  in_payload_ = true;
  if (expected_ == 0) finish_frame();
  return true;
}

void FrameReader::finish_frame() {
  ready_.push_back(std::move(current_));
  current_ = Frame();
  in_payload_ = false;
}

std::optional<Frame> FrameReader::take() {
  if (ready_.empty()) return std::nullopt;
  Frame frame = std::move(ready_.front());
  ready_.pop_front();
  return frame;
}

}  // namespace nitinol
