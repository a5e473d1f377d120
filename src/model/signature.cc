#include "model/signature.h"

#include <array>

#include "base/error.h"

namespace nitinol {
namespace {

constexpr std::array<const char*, kDataTypes> kTypeNames{"int8",    "uint8",    "int32",      "uint32",
                                                         "int64",   "uint64",   "float16",    "float32",
                                                         "float64", "bfloat16", "float8e4m3", "float8e5m2"};
constexpr std::array<const char*, kCombines> kOperatorNames{"sum", "prod", "max", "min"};

}  // namespace

bool Signature::needs(int waiting, int other) const {
  if (count == 0 || waiting == other) return false;
  const auto root = static_cast<int>(call >> 32);
  switch (static_cast<Collective>((call & 0xff) % kCollectives)) {
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll: return true;
    case Collective::kBroadcast:
    case Collective::kScatter: return other == root;
    case Collective::kReduce:
    case Collective::kGather: return waiting == root;
  }
  return false;
}

std::string Signature::text() const {
  const auto what = static_cast<Collective>((call & 0xff) % kCollectives);  // a peer's memory may hold anything
  const auto type = static_cast<DataType>((call >> 8 & 0xff) % kDataTypes);
  const uint64_t elements = reduces(what) ? count : count / bytes_of(type);
  std::string details = formatted("count {}, type {}", elements, kTypeNames[static_cast<size_t>(type)]);
  if (reduces(what)) {
    const char* const name = kOperatorNames[(call >> 16 & 0xff) % kCombines];
    details += formatted(", op {}", (call & kAverage) != 0 ? "avg" : (call & kScaled) != 0 ? "premulsum" : name);
  }
  if (rooted(what)) details += formatted(", root {}", call >> 32);
  return formatted("{}{} ({})", name_of(what), sequence > 0 ? formatted(" number {}", sequence) : "", details);
}

std::string MessageSignature::text(bool sends, int peer) const {
  return formatted("{}{} {} rank {} (count {}, type {})", sends ? "Send" : "Recv",
                   number > 0 ? formatted(" number {}", number) : "", sends ? "to" : "from", peer,
                   bytes / bytes_of(type), kTypeNames[static_cast<size_t>(type)]);
}

}  // namespace nitinol
