// Everything that the bootstrap decodes from outside: ids, addresses, interface lists, the proof, frames and messages.
// The first byte chooses what the rest is taken for.

// LIBRARIES: nitinol_bootstrap
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "bootstrap/exchange.h"
#include "bootstrap/frame.h"
#include "bootstrap/handshake.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/messages.h"
#include "bootstrap/unique_id.h"

namespace {

using namespace nitinol;

void require(bool condition) {
  if (!condition) __builtin_trap();
}

// What decodes must encode to something that decodes to the same bytes.
template <typename Decode>
void round_trip(std::span<const std::byte> bytes, const Decode& decode) {
  const auto message = decode(bytes);
  if (!message) return;
  const auto again = encode(*message);
  const auto second = decode(again);
  require(second && encode(*second) == again);
}

void fuzz_id(std::span<const std::byte> bytes) {
  ncclUniqueId id{};
  std::memcpy(id.internal, bytes.data(), std::min(bytes.size(), sizeof(id.internal)));
  seal(id);  // else hardly anything would pass
  try {
    const UniqueId parsed = parse_unique_id(id);
    require(parse_unique_id(serialise(parsed)) == parsed);
    (void)parsed.root.to_string();
  } catch (const Error&) {
  }
}

void fuzz_text(const std::string& text) {
  if (const auto where = split_host_and_port(text)) require(!where->host.empty() && where->port != 0);
  const auto middle = text.size() / 2;
  (void)matches_interface_list(text.substr(0, middle), text.substr(middle));
}

void fuzz_frames(std::span<const std::byte> bytes) {
  FrameReader reader;
  const std::size_t piece = bytes.empty() ? 1 : static_cast<std::size_t>(bytes[0]) + 1;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    if (!reader.feed(bytes.subspan(at, std::min(piece, bytes.size() - at)))) break;
  }
  while (const auto frame = reader.take()) {
    FrameReader second;
    require(second.feed(encode_frame(*frame)));
    require(second.take().has_value());
  }
}

void fuzz_proof(std::span<const std::byte> bytes) {
  HelloBytes hello{};
  ProofBytes proof{};
  std::memcpy(hello.data(), bytes.data(), std::min(bytes.size(), hello.size()));
  if (bytes.size() > hello.size()) {
    std::memcpy(proof.data(), bytes.data() + hello.size(), std::min(bytes.size() - hello.size(), proof.size()));
  }
  ServerHandshake server;
  if (!server.hello(hello)) return;
  const Secret key = random_secret();
  (void)server.answer(key);
  require(!server.verify(proof));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0] % 10) {
    case 0: fuzz_id(bytes); break;
    case 1: fuzz_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}); break;
    case 2: fuzz_frames(bytes); break;
    case 3: fuzz_proof(bytes); break;
    case 4: round_trip(bytes, decode_registration); break;
    case 5: round_trip(bytes, decode_parent_reply); break;
    case 6: round_trip(bytes, decode_hello); break;
    case 7: round_trip(bytes, decode_failure); break;
    case 8:
      if (const auto blocks = decode_blocks(bytes, 100)) {
        for (const auto& block : *blocks)
          require(block.rank >= 0 && block.rank < 100 && block.data.size() <= bytes.size());
      }
      break;
    case 9: round_trip(bytes, decode_regroup_word); break;
  }
  return 0;
}
