// Plain values that ranks and processes send each other as they are: signatures, what ranks tell about themselves,
// questions and answers about health, and the lines of the client that asks.
// LIBRARIES: nitinol_ras nitinol_bootstrap nitinol_model nitinol_base
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "bootstrap/address.h"
#include "bootstrap/wire.h"
#include "diagnostics/ras/command.h"
#include "diagnostics/ras/messages.h"
#include "model/peer.h"
#include "model/signature.h"

namespace {

using namespace nitinol;

void require(bool condition) {
  if (!condition) std::abort();
}

template <typename T>
T value_of(std::span<const std::byte> bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof(T)));
  return value;
}

void fuzz_peer(std::span<const std::byte> bytes) {
  Peer peer = value_of<Peer>(bytes);
  tidy(peer);
  for (const char c : std::string_view(peer.host_name.data())) require(c >= ' ' && c <= '~');
  require(std::strlen(peer.handle_server.data()) < peer.handle_server.size());
  ByteReader reader(std::as_bytes(std::span(peer.meeting_point)));
  const SocketAddress address = SocketAddress::decode(reader);
  if (reader.ok()) static_cast<void>(address.to_string());
}

template <typename Decode>
void round_trip(std::span<const std::byte> bytes, const Decode& decode) {
  const auto message = decode(bytes);
  if (!message) return;
  const auto again = decode(encode(*message));
  require(again && encode(*again) == encode(*message));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  switch (data[0] % 5) {
    case 0: require(!value_of<Signature>(bytes).text().empty()); break;
    case 1: fuzz_peer(bytes); break;
    case 2: round_trip(bytes, ras::decode_ask); break;
    case 3: round_trip(bytes, ras::decode_tell); break;
    case 4: static_cast<void>(ras::parse_command({reinterpret_cast<const char*>(bytes.data()), bytes.size()})); break;
  }
  return 0;
}
