// Encoding and decoding of the control messages.
#include "bootstrap/messages.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/process_state.h"
#include "bootstrap/wire.h"

namespace nitinol {
namespace {

constexpr std::size_t kLongestHost = 64;
constexpr std::size_t kLongestSentence = 2000;
constexpr std::int64_t kLongestTimeout = std::int64_t{1000} * 3600 * 24 * 365;

void put(ByteWriter& writer, const PeerIdentity& identity) {
  writer.text(identity.host, kLongestHost);
  writer.integer(identity.pid);
  writer.integer(identity.pid_namespace);
}

PeerIdentity get_identity(ByteReader& reader) {
  PeerIdentity identity;
  identity.host = reader.text(kLongestHost);
  identity.pid = reader.integer<std::int64_t>();
  identity.pid_namespace = reader.integer<std::uint64_t>();
  return identity;
}

int get_int(ByteReader& reader, int least, int most) {
  const auto value = reader.integer<std::int32_t>();
  if (value < least || value > most) reader.reject();
  return value;
}

template <typename T>
std::optional<T> if_complete(const ByteReader& reader, T message) {
  if (!reader.complete()) return std::nullopt;
  return message;
}

ProcessState state_of(const PeerIdentity& identity) {
  if (identity.pid <= 0 || identity.host != this_process().host) return ProcessState::kUnknown;
  return process_state(static_cast<int>(identity.pid), identity.pid_namespace);
}

}  // namespace

PeerIdentity this_process() {
  char host[256] = "?";
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '?';
  return {.host = std::string(host).substr(0, kLongestHost), .pid = getpid(), .pid_namespace = pid_namespace()};
}

bool are_same_process(const PeerIdentity& a, const PeerIdentity& b) {
  return a.pid == b.pid && a.pid_namespace == b.pid_namespace && a.host == b.host;
}

std::string describe_rank(int rank, const PeerIdentity& identity) {
  if (identity.pid == 0) return formatted("rank {}", rank);
  const std::string device = identity.device < 0 ? "" : formatted(", device {}", identity.device);
  return formatted("rank {} (host {}, pid {}{})", rank, identity.host, identity.pid, device);
}

std::string seconds_text(std::chrono::milliseconds time) {
  return time.count() % 1000 == 0 ? formatted("{} s", time.count() / 1000) : formatted("{} ms", time.count());
}

std::string fate_of(const PeerIdentity& identity) {
  const ProcessState state = state_of(identity);
  return state == ProcessState::kUnknown ? "" : formatted("; {}", words_for(state));
}

bool is_stopped(const PeerIdentity& identity) { return state_of(identity) == ProcessState::kStopped; }

bool has_ended(const PeerIdentity& identity) { return state_of(identity) == ProcessState::kDead; }

std::vector<std::byte> encode(const Registration& message) {
  ByteWriter writer;
  writer.integer(static_cast<std::int32_t>(message.rank));
  writer.integer(static_cast<std::int32_t>(message.nranks));
  writer.integer(static_cast<std::int32_t>(message.ids));
  writer.integer(static_cast<std::int32_t>(message.index));
  writer.integer(message.timeout_ms);
  writer.block(message.list.data(), message.list.size());
  message.listener.encode(writer);
  writer.block(message.contact.data(), message.contact.size());
  put(writer, message.identity);
  return writer.take();
}

std::optional<Registration> decode_registration(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Registration message;
  message.rank = get_int(reader, 0, kMostRanks - 1);
  message.nranks = get_int(reader, 1, kMostRanks);
  message.ids = get_int(reader, 1, kMostRanks);
  message.index = get_int(reader, 0, kMostRanks - 1);
  message.timeout_ms = reader.integer<std::int64_t>();
  if (message.timeout_ms < 0 || message.timeout_ms > kLongestTimeout) message.timeout_ms = kLongestTimeout;
  reader.block(message.list.data(), message.list.size());
  if (message.ids > message.nranks || message.index >= message.ids) reader.reject();
  message.listener = SocketAddress::decode(reader);
  reader.block(message.contact.data(), message.contact.size());
  message.identity = get_identity(reader);
  return if_complete(reader, std::move(message));
}

std::vector<std::byte> encode(const RegroupWord& message) {
  std::vector<std::uint8_t> bits;
  for (const int rank : message.excluded) {
    const auto at = static_cast<std::size_t>(rank);
    bits.resize(std::max(bits.size(), at / 8 + 1));
    bits[at / 8] = static_cast<std::uint8_t>(bits[at / 8] | 1U << at % 8);
  }
  ByteWriter writer;
  writer.integer(static_cast<std::uint8_t>(message.state));
  writer.integer(static_cast<std::uint8_t>(message.repairs ? 1 : 0));
  writer.integer(static_cast<std::int32_t>(message.rank));
  writer.integer(message.meeting);
  writer.integer(message.number);
  writer.integer(message.failures);
  writer.integer(static_cast<std::uint16_t>(bits.size()));
  writer.block(bits.data(), bits.size());
  writer.text(message.sentence, kLongestSentence);
  return writer.take();
}

std::optional<RegroupWord> decode_regroup_word(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  RegroupWord message;
  const auto state = reader.integer<std::uint8_t>();
  if (state > static_cast<std::uint8_t>(RegroupWord::State::kLeft)) reader.reject();
  message.state = static_cast<RegroupWord::State>(state);
  const auto repairs = reader.integer<std::uint8_t>();
  if (repairs > 1) reader.reject();
  message.repairs = repairs == 1;
  message.rank = get_int(reader, 0, kMostRegrouped - 1);
  message.meeting = reader.integer<std::uint64_t>();
  message.number = reader.integer<std::uint64_t>();
  message.failures = reader.integer<std::uint64_t>();
  const auto size = reader.integer<std::uint16_t>();
  if (size > kMostRegrouped / 8) reader.reject();
  const auto bits = reader.next(size);
  for (std::size_t at = 0; at < 8 * bits.size(); ++at) {
    if ((std::to_integer<unsigned>(bits[at / 8]) >> at % 8 & 1U) != 0) message.excluded.push_back(static_cast<int>(at));
  }
  message.sentence = reader.text(kLongestSentence);
  return if_complete(reader, std::move(message));
}

std::vector<std::byte> encode(const ParentReply& message) {
  ByteWriter writer;
  writer.integer(static_cast<std::int32_t>(message.rank));
  if (message.rank >= 0) {
    message.listener.encode(writer);
    writer.block(message.contact.data(), message.contact.size());
    put(writer, message.identity);
  }
  return writer.take();
}

std::optional<ParentReply> decode_parent_reply(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  ParentReply message;
  message.rank = get_int(reader, -1, kMostRanks - 1);
  if (reader.ok() && message.rank >= 0) {
    message.listener = SocketAddress::decode(reader);
    reader.block(message.contact.data(), message.contact.size());
    message.identity = get_identity(reader);
  }
  return if_complete(reader, std::move(message));
}

std::vector<std::byte> encode(const Hello& message) {
  ByteWriter writer;
  writer.integer(static_cast<std::int32_t>(message.rank));
  put(writer, message.identity);
  return writer.take();
}

std::optional<Hello> decode_hello(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Hello message;
  message.rank = get_int(reader, 0, kMostRanks - 1);
  message.identity = get_identity(reader);
  return if_complete(reader, std::move(message));
}

void write_failure(ByteWriter& writer, int rank, ncclResult_t result, std::string_view sentence, Parting parting) {
  writer.integer(static_cast<std::int32_t>(rank));
  writer.integer(static_cast<std::int32_t>(result));
  writer.text(sentence, kLongestSentence);
  writer.integer(static_cast<std::uint8_t>(parting));
}

std::vector<std::byte> encode(const Failure& message) {
  ByteWriter writer;
  write_failure(writer, message.rank, message.result, message.sentence, message.parting);
  return writer.take();
}

std::optional<Failure> decode_failure(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Failure message;
  message.rank = get_int(reader, -1, kMostRanks - 1);
  const int result = get_int(reader, ncclUnhandledCudaError, ncclRemoteError);
  if (result < ncclUnhandledCudaError || result > ncclRemoteError) return std::nullopt;
  message.result = static_cast<ncclResult_t>(result);
  message.sentence = reader.text(kLongestSentence);
  const auto parting = reader.integer<std::uint8_t>();
  if (parting > static_cast<std::uint8_t>(Parting::kDeparted)) reader.reject();
  message.parting = static_cast<Parting>(parting);
  return if_complete(reader, std::move(message));
}

}  // namespace nitinol
