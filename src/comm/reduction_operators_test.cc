#include "comm/reduction_operators.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"

namespace nitinol {
namespace {

TEST(ReductionOperators, AnImmediateScalarIsCopiedWhenTheOperatorIsMade) {
  ReductionOperators operators;
  float scalar = 2.5F;
  const ncclRedOp_t op = operators.create(&scalar, DataType::kFloat32, ncclScalarHostImmediate);
  scalar = 0;
  const Reduction reduction = operators.resolve(op, DataType::kFloat32, "a call");
  float copied = 0;
  std::memcpy(&copied, &reduction.immediate, sizeof(copied));
  EXPECT_EQ(copied, 2.5F);
  EXPECT_EQ(reduction.scalar, Reduction::Scalar::kImmediate);
  EXPECT_EQ(reduction.combine, Combine::kSum);
}

TEST(ReductionOperators, ADeviceScalarIsKeptAsAPointer) {
  ReductionOperators operators;
  double scalar = 1;
  const Reduction reduction =
      operators.resolve(operators.create(&scalar, DataType::kFloat64, ncclScalarDevice), DataType::kFloat64, "a call");
  EXPECT_EQ(reduction.scalar, Reduction::Scalar::kDevice);
  EXPECT_EQ(reduction.pointer, &scalar);
}

TEST(ReductionOperators, BuiltInsResolveForEveryType) {
  const ReductionOperators operators;
  EXPECT_EQ(operators.resolve(ncclMax, DataType::kInt8, "a call").combine, Combine::kMax);
  EXPECT_TRUE(operators.resolve(ncclAvg, DataType::kFloat16, "a call").average);
}

TEST(ReductionOperators, WrongHandlesAreRefused) {
  ReductionOperators operators;
  ReductionOperators others;
  const int32_t one = 1;
  const ncclRedOp_t op = operators.create(&one, DataType::kInt32, ncclScalarHostImmediate);
  EXPECT_THROW(operators.resolve(op, DataType::kUint32, "a call"), Error) << "another type";
  EXPECT_THROW(others.resolve(op, DataType::kInt32, "a call"), Error) << "another communicator";
  EXPECT_THROW(operators.destroy(ncclSum, "a call"), Error) << "a built-in operator";
  EXPECT_THROW(operators.destroy(static_cast<ncclRedOp_t>(-7), "a call"), Error) << "garbage";
  operators.destroy(op, "a call");
  EXPECT_THROW(operators.destroy(op, "a call"), Error) << "destroyed twice";
  EXPECT_THROW(operators.resolve(op, DataType::kInt32, "a call"), Error) << "destroyed";
}

TEST(ReductionOperators, HandlesAreUsedAgain) {
  ReductionOperators operators;
  const int32_t one = 1;
  const ncclRedOp_t first = operators.create(&one, DataType::kInt32, ncclScalarHostImmediate);
  operators.destroy(first, "a call");
  EXPECT_EQ(operators.create(&one, DataType::kInt32, ncclScalarHostImmediate), first);
}

}  // namespace
}  // namespace nitinol
