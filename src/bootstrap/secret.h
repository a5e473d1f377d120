// The 256-bit secret of a unique id or communicator, and keys derived from it with keyed BLAKE2b.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace nitinol {

struct Secret {
  std::array<std::uint8_t, 32> bytes{};
  friend bool operator==(const Secret& a, const Secret& b);  // in constant time
};

/// Initialises libsodium once; everything below calls it.
void ensure_crypto();

void fill_random(std::span<std::uint8_t> bytes);
Secret random_secret();

/// A new secret from `secret`, a label that says what it is for, and context bytes. One way.
Secret derive_secret(const Secret& secret, std::string_view label, std::span<const std::uint8_t> context = {});

/// A secret from a text alone: as weak as the text is guessable.
Secret secret_from_text(std::string_view text);

/// What names a secret on the wire without giving anything away: peers find the right key by it.
using KeyId = std::array<std::uint8_t, 16>;
KeyId key_id(const Secret& secret);

}  // namespace nitinol
