// The reduction operators that a communicator's user created (ncclRedOpCreatePreMulSum).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/types.h"
#include "nccl.h"

namespace nitinol {

class ReductionOperators {
 public:
  ReductionOperators();

  /// Copies an immediate scalar from `scalar`; keeps the pointer of a device scalar.
  ncclRedOp_t create(const void* scalar, DataType type, ncclScalarResidence_t residence);
  /// Throws Error(ncclInvalidArgument) for built-in, foreign, garbage or destroyed operators.
  void destroy(ncclRedOp_t op, const char* function);

  /// What the operator means for elements of `type`. Throws Error(ncclInvalidArgument) as destroy does, and if it was
  /// made for another type.
  const Reduction& resolve(ncclRedOp_t op, DataType type, const char* function) const;

 private:
  struct Operator {
    Reduction reduction;
    DataType type = DataType::kUint8;
  };
  size_t index_of(ncclRedOp_t op, const char* function) const;

  uint32_t salt_;  ///< in every handle's upper bits, so that another communicator's handle is recognised
  std::vector<std::optional<Operator>> operators_;
};

}  // namespace nitinol
