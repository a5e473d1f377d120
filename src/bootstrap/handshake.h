// The proof that opens every connection: both sides show that they know the key, neither gives anything away.
//
//   client -> server   hello:  magic, name of the key, client's nonce
//   server -> client   answer: server's nonce, server's proof
//   client -> server   proof
//
// A proof is keyed BLAKE2b over all that was said before, with a label for the direction. Nothing else is read from a
// peer before its proof has been checked.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "bootstrap/secret.h"

namespace nitinol {

using HelloBytes = std::array<std::uint8_t, 64>;
using AnswerBytes = std::array<std::uint8_t, 64>;
using ProofBytes = std::array<std::uint8_t, 32>;

class ClientHandshake {
 public:
  explicit ClientHandshake(const Secret& key);
  const HelloBytes& hello() const { return hello_; }
  /// The client's proof, or nothing if the server's is wrong.
  std::optional<ProofBytes> answer(const AnswerBytes& answer) const;

 private:
  Secret key_;
  HelloBytes hello_{};
};

class ServerHandshake {
 public:
  /// Which key the client means; nothing if this is no hello.
  std::optional<KeyId> hello(const HelloBytes& hello);
  AnswerBytes answer(const Secret& key);
  bool verify(const ProofBytes& proof) const;

 private:
  Secret key_;
  HelloBytes hello_{};
  std::array<std::uint8_t, 32> nonce_{};
};

}  // namespace nitinol
