// Making, packing and unpacking unique ids.
#include "bootstrap/unique_id.h"

#include <unistd.h>

#include <cstring>
#include <span>

#include "base/error.h"
#include "base/host.h"
#include "base/process_state.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/root.h"
#include "bootstrap/wire.h"

namespace nitinol {
namespace {

constexpr std::uint64_t kMagic = 0x3244'494c'4f4e'4954;  // "TINOLID2"
constexpr std::size_t kSecretAt = 8 + 1;
constexpr std::size_t kContent = kSecretAt + 32 + 19 + 16 + 8 + 8 + 8;
static_assert(kContent + sizeof(std::uint64_t) <= NCCL_UNIQUE_ID_BYTES);

/// Of the content, the secret as well.
std::uint64_t check_of(const ncclUniqueId& bytes) {
  const auto content = std::span(reinterpret_cast<const std::uint8_t*>(bytes.internal), kContent);
  Secret secret;
  std::memcpy(secret.bytes.data(), content.data() + kSecretAt, secret.bytes.size());
  const Secret hash = derive_secret(secret, "check of an id", content);
  std::uint64_t check = 0;
  std::memcpy(&check, hash.bytes.data(), sizeof(check));
  return check;
}

/// An interface has another name on another host.
std::string without_zone(const std::string& text) {
  const size_t zone = text.find('%');
  const size_t end = text.find(']', zone == std::string::npos ? 0 : zone);
  if (zone == std::string::npos || end == std::string::npos) return text;
  return text.substr(0, zone) + text.substr(end);
}

UniqueId id_from_address(const BootstrapOptions& options) {
  const std::string& text = *options.comm_id;
  const auto where = split_host_and_port(text);
  if (!where) {
    fail(ncclInvalidArgument, "NCCL_COMM_ID is '{}': write ipv4:port, [ipv6]:port or hostname:port", text);
  }
  UniqueId id;
  id.from_address = true;
  id.root = resolve(*where, options.family);
  id.secret = secret_from_text(without_zone(text));
  return id;
}

}  // namespace

UniqueId make_unique_id(const BootstrapOptions& options) {
  if (options.comm_id) return id_from_address(options);
  UniqueId id;
  id.secret = random_secret();
  fill_random(id.random);
  id.root = start_root(id.secret, bootstrap_interface(options).address,
                       {.life = RootLife::kOneCommunicator,
                        .patience_with_cause = options.patience_with_cause,
                        .warn_after = options.warn_after});
  id.maker = getpid();
  id.maker_namespace = pid_namespace();
  id.network = network_identity();
  return id;
}

ncclUniqueId serialise(const UniqueId& id) {
  ByteWriter writer;
  writer.integer(kMagic);
  writer.integer(static_cast<std::uint8_t>(id.from_address ? 1 : 0));
  writer.block(id.secret.bytes.data(), id.secret.bytes.size());
  id.root.encode(writer);
  writer.block(id.random.data(), id.random.size());
  writer.integer(id.maker);
  writer.integer(id.maker_namespace);
  writer.integer(id.network);
  const auto bytes = writer.take();
  if (bytes.size() != kContent) fail(ncclInternalError, "a unique id of {} bytes", bytes.size());
  ncclUniqueId result;
  std::memset(&result, 0, sizeof(result));
  std::memcpy(result.internal, bytes.data(), bytes.size());
  seal(result);
  return result;
}

void seal(ncclUniqueId& bytes) {
  const std::uint64_t check = check_of(bytes);
  std::memcpy(bytes.internal + kContent, &check, sizeof(check));
}

UniqueId parse_unique_id(const ncclUniqueId& bytes) {
  ByteReader reader(std::as_bytes(std::span(bytes.internal)));
  const auto magic = reader.integer<std::uint64_t>();
  const auto from_address = reader.integer<std::uint8_t>();
  UniqueId id;
  id.from_address = from_address == 1;
  reader.block(id.secret.bytes.data(), id.secret.bytes.size());
  id.root = SocketAddress::decode(reader);
  reader.block(id.random.data(), id.random.size());
  id.maker = reader.integer<std::int64_t>();
  id.maker_namespace = reader.integer<std::uint64_t>();
  id.network = reader.integer<std::uint64_t>();
  std::uint64_t check = 0;
  reader.block(&check, sizeof(check));
  if (id.maker < 0 || (id.from_address && id.maker != 0)) reader.reject();
  if (!reader.ok() || magic != kMagic || from_address > 1 || id.root.port == 0) {
    fail(ncclInvalidArgument,
         "these 128 bytes are no unique id of this library: pass all ranks the bytes that ncclGetUniqueId wrote, "
         "unchanged, from "
         "the same library");
  }
  if (check != check_of(bytes)) {
    fail(ncclInvalidArgument,
         "this unique id was damaged on its way: some of its 128 bytes are not those that ncclGetUniqueId wrote");
  }
  return id;
}

KeyId name_of_list(std::span<const UniqueId> ids) {
  ByteWriter writer;
  for (const UniqueId& id : ids) {
    const KeyId name = key_id(id.secret);
    writer.block(name.data(), name.size());
  }
  const auto names = writer.take();
  return key_id(derive_secret(ids.front().secret, "list of ids",
                              {reinterpret_cast<const std::uint8_t*>(names.data()), names.size()}));
}

std::uint64_t short_hash(const UniqueId& id) {
  const Secret hash = derive_secret(id.secret, "name in logs", id.random);
  std::uint64_t value = 0;
  std::memcpy(&value, hash.bytes.data(), sizeof(value));
  return value;
}

}  // namespace nitinol
