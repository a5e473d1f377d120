// Inputs and expected results.
#include "pattern.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace nitinol::perf {
namespace {

constexpr std::array<const char*, 7> kNames{"none", "sum", "prod", "max", "min", "avg", "mulsum"};

uint64_t mix(uint64_t rank, uint64_t index) {
  uint64_t x = index * 0x9e3779b97f4a7c15ULL + rank * 0xd1b54a32d192ed03ULL + 0x2545f4914f6cdd1dULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// All integers up to this one are exact in the type.
double exact_integers(const ElementType& type) { return std::ldexp(1.0, type.mantissa_bits + 1); }

double signed_by(uint64_t bits, double magnitude) { return (bits >> 63) != 0 ? -magnitude : magnitude; }

// Ranks take turns when there are more of them than the budget of the type allows to contribute at one index.
bool takes_part(int rank, size_t index, int ranks, int most) {
  return ranks <= most || (static_cast<size_t>(rank) + index) % static_cast<size_t>(ranks) < static_cast<size_t>(most);
}

double combine(Reduction reduction, double left, double right) {
  switch (reduction) {
    case Reduction::kProd: return left * right;
    case Reduction::kMax: return std::max(left, right);
    case Reduction::kMin: return std::min(left, right);
    case Reduction::kNone:
    case Reduction::kSum:
    case Reduction::kAvg:
    case Reduction::kMulSum: break;
  }
  return left + right;
}

// On 64 bits, extended by sign or zero; the low bits of sums and products are right for narrower types too.
uint64_t combine(Reduction reduction, const ElementType& type, uint64_t left, uint64_t right) {
  const bool is_signed = type.kind == ElementKind::kSigned;
  const bool less = is_signed ? static_cast<int64_t>(left) < static_cast<int64_t>(right) : left < right;
  switch (reduction) {
    case Reduction::kProd: return left * right;
    case Reduction::kMax: return less ? right : left;
    case Reduction::kMin: return less ? left : right;
    case Reduction::kNone:
    case Reduction::kSum:
    case Reduction::kAvg:
    case Reduction::kMulSum: break;
  }
  return left + right;
}

}  // namespace

const char* reduction_name(Reduction reduction) { return kNames.at(static_cast<size_t>(reduction)); }

Reduction find_reduction(const std::string& name) {
  const auto found = std::ranges::find(kNames, name);
  return found == kNames.end() ? Reduction::kNone : static_cast<Reduction>(found - kNames.begin());
}

ncclRedOp_t builtin_op(Reduction reduction) {
  switch (reduction) {
    case Reduction::kProd: return ncclProd;
    case Reduction::kMax: return ncclMax;
    case Reduction::kMin: return ncclMin;
    case Reduction::kAvg: return ncclAvg;
    case Reduction::kNone:
    case Reduction::kSum:
    case Reduction::kMulSum: break;
  }
  return ncclSum;
}

int mul_sum_factor(int rank) { return 1 + rank % 2; }

Pattern::Pattern(const ElementType& type, Reduction reduction, int ranks)
    : type_(type), reduction_(reduction), ranks_(ranks), inputs_(static_cast<size_t>(ranks)) {
  const bool power_of_two = std::has_single_bit(static_cast<unsigned>(ranks));
  exact_ = !(reduction == Reduction::kAvg && type.kind == ElementKind::kFloat && (!power_of_two || ranks > 64));
}

const std::vector<std::byte>& Pattern::input(int rank) {
  const std::lock_guard lock(mutex_);
  std::vector<std::byte>& input = inputs_.at(static_cast<size_t>(rank));
  if (input.empty()) input = make_input(rank);
  return input;
}

const std::vector<std::byte>& Pattern::reduced() {
  const std::lock_guard lock(mutex_);
  if (reduced_.empty()) make_reduced();
  return reduced_;
}

std::vector<std::byte> Pattern::make_input(int rank) const {
  std::vector<std::byte> block(kPatternPeriod * type_.size);
  for (size_t i = 0; i < kPatternPeriod; ++i) {
    std::byte* out = block.data() + i * type_.size;
    if (reduction_ == Reduction::kNone || type_.kind != ElementKind::kFloat) {
      encode_integer(type_, integer_input(rank, i), out);
    } else {
      encode_float(type_, float_input(rank, i), out);
    }
  }
  return block;
}

// Copies move any bits; sums and products of integers wrap, so any value will do; averages must not overflow.
unsigned long long Pattern::integer_input(int rank, size_t index) const {
  const uint64_t bits = mix(static_cast<uint64_t>(rank), index);
  if (reduction_ == Reduction::kProd) return bits | 1;  // odd: the product never collapses to zero
  if (reduction_ != Reduction::kAvg) return bits;
  const int value_bits = static_cast<int>(type_.size * 8) - (type_.kind == ElementKind::kSigned ? 1 : 0);
  const uint64_t most = (~0ULL >> (64 - value_bits)) / static_cast<uint64_t>(ranks_);
  if (most == 0) return 0;
  const uint64_t magnitude = (bits & ~0ULL >> 1) % most + 1;
  const bool negative = type_.kind == ElementKind::kSigned && bits >> 63 != 0;
  return negative ? 0 - magnitude : magnitude;
}

double Pattern::float_input(int rank, size_t index) const {
  const uint64_t bits = mix(static_cast<uint64_t>(rank), index);
  const double budget = exact_integers(type_);
  if (reduction_ == Reduction::kProd) {  // powers of two; at most four of them differ from one
    const double magnitude = takes_part(rank, index, ranks_, 4) ? std::ldexp(1.0, static_cast<int>(bits % 3) - 1) : 1;
    return signed_by(bits, magnitude);
  }
  if (reduction_ == Reduction::kMax || reduction_ == Reduction::kMin) {
    const uint64_t most = static_cast<uint64_t>(std::min(budget, 1e9));
    return signed_by(bits, 1.0 + static_cast<double>(bits % most));
  }
  const double factors = reduction_ == Reduction::kMulSum ? 2 : 1;
  const double share = budget / factors;
  if (!takes_part(rank, index, ranks_, static_cast<int>(std::min(share, 1e6)))) return 0;
  const uint64_t most = std::max<uint64_t>(1, static_cast<uint64_t>(std::min(share / ranks_, 1e9)));
  return signed_by(bits, 1.0 + static_cast<double>(bits % most));
}

void Pattern::make_reduced() {
  for (int rank = 0; rank < ranks_; ++rank) {
    std::vector<std::byte>& input = inputs_[static_cast<size_t>(rank)];
    if (input.empty()) input = make_input(rank);
  }
  if (!exact_) {
    averages_.resize(kPatternPeriod);
    tolerances_.resize(kPatternPeriod);
  }
  reduced_.resize(kPatternPeriod * type_.size);
  for (size_t i = 0; i < kPatternPeriod; ++i) reduce_element(i, reduced_.data() + i * type_.size);
}

void Pattern::reduce_element(size_t index, std::byte* out) {
  const bool is_float = type_.kind == ElementKind::kFloat;
  double value = 0;
  double magnitudes = 0;
  uint64_t bits = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::byte* in = inputs_[static_cast<size_t>(rank)].data() + index * type_.size;
    const int factor = reduction_ == Reduction::kMulSum ? mul_sum_factor(rank) : 1;
    if (is_float) {
      const double x = decode_float(type_, in) * factor;
      value = rank == 0 ? x : combine(reduction_, value, x);
      magnitudes += std::fabs(x);
    } else {
      const uint64_t x = static_cast<uint64_t>(decode_integer(type_, in)) * static_cast<uint64_t>(factor);
      bits = rank == 0 ? x : combine(reduction_, type_, bits, x);
    }
  }
  if (reduction_ == Reduction::kAvg) {
    value /= ranks_;
    const bool is_signed = type_.kind == ElementKind::kSigned;
    bits =
        is_signed ? static_cast<uint64_t>(static_cast<int64_t>(bits) / ranks_) : bits / static_cast<uint64_t>(ranks_);
  }
  if (!exact_) {  // every input may have been scaled and rounded by itself
    averages_[index] = value;
    tolerances_[index] = std::ldexp(magnitudes, -type_.mantissa_bits);
  } else if (is_float) {
    encode_float(type_, value, out);
  } else {
    encode_integer(type_, bits, out);
  }
}

bool Pattern::acceptable(const std::vector<std::byte>& expected, size_t index, const std::byte* got) const {
  const std::byte* want = expected.data() + index * type_.size;
  if (&expected != &reduced_) return std::memcmp(got, want, type_.size) == 0;
  if (type_.kind != ElementKind::kFloat) return std::memcmp(got, want, type_.size) == 0;
  const double value = decode_float(type_, got);
  if (exact_) return value == decode_float(type_, want);
  return std::fabs(value - averages_[index]) <= tolerances_[index];
}

std::string Pattern::expected_text(const std::vector<std::byte>& expected, size_t index) const {
  if (&expected == &reduced_ && !exact_) return "about " + std::to_string(averages_[index]);
  return element_text(type_, expected.data() + index * type_.size);
}

std::shared_ptr<Pattern> PatternStore::get(const ElementType& type, Reduction reduction, int ranks) {
  const std::lock_guard lock(mutex_);
  const std::string key = std::string(type.name) + "/" + reduction_name(reduction) + "/" + std::to_string(ranks);
  if (key != key_) {
    latest_ = std::make_shared<Pattern>(type, reduction, ranks);
    key_ = key;
  }
  return latest_;
}

}  // namespace nitinol::perf
