// The two sides of the mutual proof.
#include "bootstrap/handshake.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace nitinol {
namespace {

constexpr std::array<std::uint8_t, 16> kGreeting = {'n', 'i', 't', 'i', 'n', 'o', 'l', ' ',
                                                    'p', 'e', 'e', 'r', ' ', 'v', '1', 0};
constexpr std::size_t kKeyIdAt = kGreeting.size();
constexpr std::size_t kNonceAt = kKeyIdAt + sizeof(KeyId);

Secret proof(const Secret& key, std::string_view direction, const HelloBytes& hello,
             std::span<const std::uint8_t> nonce) {
  std::array<std::uint8_t, sizeof(HelloBytes) + 32> transcript{};
  std::copy(hello.begin(), hello.end(), transcript.begin());
  std::copy(nonce.begin(), nonce.end(), transcript.begin() + sizeof(HelloBytes));
  return derive_secret(key, direction, transcript);
}

constexpr std::string_view kFromServer = "proof of the server";
constexpr std::string_view kFromClient = "proof of the client";

}  // namespace

ClientHandshake::ClientHandshake(const Secret& key) : key_(key) {
  const KeyId id = key_id(key);
  std::copy(kGreeting.begin(), kGreeting.end(), hello_.begin());
  std::copy(id.begin(), id.end(), hello_.begin() + kKeyIdAt);
  fill_random(std::span(hello_).subspan(kNonceAt));
}

std::optional<ProofBytes> ClientHandshake::answer(const AnswerBytes& answer) const {
  const auto nonce = std::span(answer).first(32);
  Secret claimed;
  std::memcpy(claimed.bytes.data(), answer.data() + 32, 32);
  if (!(claimed == proof(key_, kFromServer, hello_, nonce))) return std::nullopt;
  return proof(key_, kFromClient, hello_, nonce).bytes;
}

std::optional<KeyId> ServerHandshake::hello(const HelloBytes& hello) {
  if (!std::equal(kGreeting.begin(), kGreeting.end(), hello.begin())) return std::nullopt;
  hello_ = hello;
  KeyId id;
  std::memcpy(id.data(), hello.data() + kKeyIdAt, id.size());
  return id;
}

AnswerBytes ServerHandshake::answer(const Secret& key) {
  key_ = key;
  fill_random(nonce_);
  const Secret mine = proof(key_, kFromServer, hello_, nonce_);
  AnswerBytes bytes;
  std::memcpy(bytes.data(), nonce_.data(), 32);
  std::memcpy(bytes.data() + 32, mine.bytes.data(), 32);
  return bytes;
}

bool ServerHandshake::verify(const ProofBytes& claimed) const {
  return Secret{claimed} == proof(key_, kFromClient, hello_, nonce_);
}

}  // namespace nitinol
