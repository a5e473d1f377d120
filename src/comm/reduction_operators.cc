#include "comm/reduction_operators.h"

#include <atomic>
#include <cstring>

#include "base/error.h"

namespace nitinol {
namespace {

// A handle is ncclNumOps + (salt << kIndexBits | index), below ncclMaxRedOp.
constexpr int kIndexBits = 14;
constexpr uint32_t kSaltMask = (1U << 16) - 1;
constexpr uint32_t kMostOperators = 1U << kIndexBits;

uint32_t next_salt() {
  static std::atomic<uint32_t> counter{0};
  return counter.fetch_add(1, std::memory_order_relaxed) & kSaltMask;
}

}  // namespace

ReductionOperators::ReductionOperators() : salt_(next_salt()) {}

ncclRedOp_t ReductionOperators::create(const void* scalar, DataType type, ncclScalarResidence_t residence) {
  Operator made;
  made.type = type;
  if (residence == ncclScalarHostImmediate) {
    made.reduction.scalar = Reduction::Scalar::kImmediate;
    std::memcpy(&made.reduction.immediate, scalar, bytes_of(type));
  } else {
    made.reduction.scalar = Reduction::Scalar::kDevice;
    made.reduction.pointer = scalar;
  }
  size_t index = 0;
  while (index < operators_.size() && operators_[index]) ++index;
  if (index == kMostOperators) fail(ncclInvalidUsage, "{} reduction operators exist; destroy some", index);
  if (index == operators_.size()) operators_.emplace_back();
  operators_[index] = made;
  return static_cast<ncclRedOp_t>(ncclNumOps + (salt_ << kIndexBits | static_cast<uint32_t>(index)));
}

size_t ReductionOperators::index_of(ncclRedOp_t op, const char* function) const {
  const auto value = static_cast<int64_t>(op);
  if (value < 0 || value > ncclMaxRedOp) fail(ncclInvalidArgument, "{} : operator is garbage.", function);
  if (value < ncclNumOps) fail(ncclInvalidArgument, "{} : operator is a NCCL builtin.", function);
  const auto handle = static_cast<uint32_t>(value - ncclNumOps);
  const size_t index = handle & (kMostOperators - 1);
  if (handle >> kIndexBits != salt_)
    fail(ncclInvalidArgument, "{} : operator {} belongs to another communicator", function, value);
  if (index >= operators_.size() || !operators_[index])
    fail(ncclInvalidArgument, "{} : operator {} does not exist", function, value);
  return index;
}

void ReductionOperators::destroy(ncclRedOp_t op, const char* function) { operators_[index_of(op, function)].reset(); }

const Reduction& ReductionOperators::resolve(ncclRedOp_t op, DataType type, const char* function) const {
  static constexpr Reduction kSum{.combine = Combine::kSum};
  static constexpr Reduction kProduct{.combine = Combine::kProduct};
  static constexpr Reduction kMax{.combine = Combine::kMax};
  static constexpr Reduction kMin{.combine = Combine::kMin};
  static constexpr Reduction kAverage{.combine = Combine::kSum, .average = true};
  switch (static_cast<int>(op)) {
    case ncclSum: return kSum;
    case ncclProd: return kProduct;
    case ncclMax: return kMax;
    case ncclMin: return kMin;
    case ncclAvg: return kAverage;
    default: break;
  }
  const Operator& made = *operators_[index_of(op, function)];
  if (made.type != type) {
    fail(ncclInvalidArgument, "{} : the operator was made for data type {}, not {}", function,
         static_cast<int>(made.type), static_cast<int>(type));
  }
  return made.reduction;
}

}  // namespace nitinol
