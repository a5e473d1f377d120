// Messages on an authenticated connection: a header of fixed size, then a payload. A sequence number and an operation
// tell what belongs to what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace nitinol {

enum class FrameType : std::uint8_t {
  kRegister = 1,  // rank to root: here I am
  kLookup = 2,    // leader of a block to the root of its parent's block: where is your leader?
  kParent = 3,    // root to rank: the tree parent's address, or that there is none here
  kError = 4,     // root to rank: it will not work, and why
  kDone = 5,      // rank to root: all tree neighbours are connected
  kHello = 6,     // child to parent, first on a tree connection
  kData = 7,      // a part of an operation
  kFail = 8,      // the first failure of the communicator
  kGoodbye = 9,   // this rank leaves properly
  kFetch = 10,    // asks for a published descriptor
  kDescriptor = 11,
  kAsk = 12,  // health monitoring asks another process
  kTell = 13,
  kCompare = 14,  // rank to the root of another id than its own: do you know my list of ids?
  kWhom = 15,     // rank to rank while some meet again: whom do you leave out? The answer has the same form
  kRevoked = 16,  // a rank has revoked the communicator, whose tree stays
  kAbsent = 17,   // rank to root: this one will not come, and why
  kAwaits = 18,   // a rank has come to leave, but waits for others of its process
};
constexpr std::uint8_t kLastFrameType = 18;

/// Which operation a kData frame belongs to; kNone for other frames.
enum class Operation : std::uint8_t {
  kNone = 0,
  kAllGather = 1,
  kAllGatherVariable = 2,
  kBroadcast = 3,
  kBarrier = 4,
  // The same for calls that people know by another name:
  kSplit = 5,    // an all-gather
  kLeave = 6,    // a barrier
  kCompare = 7,  // an all-gather
};
constexpr std::uint8_t kLastOperation = 7;
/// "ncclCommSplit", or "barrier number 5".
std::string operation_text(Operation operation, std::uint64_t sequence);

constexpr std::size_t kFrameHeaderBytes = 16;
constexpr std::size_t kLargestFrame = std::size_t{1} << 30;
constexpr std::size_t kLargestTell = std::size_t{64} << 20;
constexpr std::size_t kLargestControlFrame = 4096;  // everything but these two
/// Most bytes that the payload of a frame may have.
std::size_t largest_payload(FrameType type);

struct Frame {
  FrameType type = FrameType::kData;
  Operation operation = Operation::kNone;
  std::uint64_t sequence = 0;
  std::vector<std::byte> payload;
};
/// One that is no part of an operation.
inline Frame control_frame(FrameType type, std::vector<std::byte> payload = {}) {
  return {type, Operation::kNone, 0, std::move(payload)};
}

class ByteWriter;
void write_header(ByteWriter& writer, const Frame& frame, std::size_t payload_bytes);
std::vector<std::byte> encode_header(const Frame& frame, std::size_t payload_bytes);
std::vector<std::byte> encode_frame(const Frame& frame);

/// Cuts a stream of bytes into frames. Memory grows with what has arrived, never with what a header promises.
class FrameReader {
 public:
  /// False: the stream is no valid one, give it up.
  bool feed(std::span<const std::byte> bytes);
  /// The next complete frame, in order of arrival.
  std::optional<Frame> take();

 private:
  bool start_frame();
  void finish_frame();

  std::vector<std::byte> header_;
  Frame current_;
  std::size_t expected_ = 0;  // payload bytes of the current frame
  bool in_payload_ = false;
  bool broken_ = false;
  std::deque<Frame> ready_;
};

}  // namespace nitinol
