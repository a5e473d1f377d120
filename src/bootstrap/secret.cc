// Derived keys: BLAKE2b keyed with the secret, over the length-prefixed label and the context.
#include "bootstrap/secret.h"

#include <sodium.h>

#include <cstring>

#include "base/error.h"

namespace nitinol {
namespace {

void update(crypto_generichash_state& state, const void* data, std::size_t size) {
  crypto_generichash_update(&state, static_cast<const unsigned char*>(data), size);
}

}  // namespace

bool operator==(const Secret& a, const Secret& b) { return sodium_memcmp(a.bytes.data(), b.bytes.data(), 32) == 0; }

void ensure_crypto() {
  static const int result = sodium_init();
  if (result < 0)
    fail(ncclSystemError, "libsodium found no source of random numbers on this host (is /dev/urandom there?)");
}

void fill_random(std::span<std::uint8_t> bytes) {
  ensure_crypto();
  randombytes_buf(bytes.data(), bytes.size());
}

Secret random_secret() {
  Secret secret;
  fill_random(secret.bytes);
  return secret;
}

Secret derive_secret(const Secret& secret, std::string_view label, std::span<const std::uint8_t> context) {
  ensure_crypto();
  crypto_generichash_state state;
  crypto_generichash_init(&state, secret.bytes.data(), secret.bytes.size(), 32);
  const auto label_size = static_cast<std::uint8_t>(label.size());
  update(state, &label_size, 1);
  update(state, label.data(), label.size());
  update(state, context.data(), context.size());
  Secret derived;
  crypto_generichash_final(&state, derived.bytes.data(), derived.bytes.size());
  return derived;
}

Secret secret_from_text(std::string_view text) {
  ensure_crypto();
  static constexpr std::string_view kKey = "nitinol: secret of an address....";
  Secret secret;
  crypto_generichash(secret.bytes.data(), secret.bytes.size(), reinterpret_cast<const unsigned char*>(text.data()),
                     text.size(), reinterpret_cast<const unsigned char*>(kKey.data()), kKey.size());
  return secret;
}

KeyId key_id(const Secret& secret) {
  const Secret name = derive_secret(secret, "key id");
  KeyId id;
  std::memcpy(id.data(), name.bytes.data(), id.size());
  return id;
}

}  // namespace nitinol
