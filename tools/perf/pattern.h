// The data that operations are fed with and the results they must give. Inputs depend on rank and index alone and are
// chosen so that every reduction is exact in its type whatever the order of summation; only averages over a
// rank count that is no power of two may round.
//
// Both repeat with a period that is a prime number, so that a block in the wrong place does not look right, and so that
// a buffer of any size is filled and checked at the speed of memcpy and memcmp.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "element.h"

namespace nitinol::perf {

enum class Reduction { kNone, kSum, kProd, kMax, kMin, kAvg, kMulSum };

const char* reduction_name(Reduction reduction);
/// By name (sum, prod, max, min, avg, mulsum); kNone when there is none.
Reduction find_reduction(const std::string& name);
ncclRedOp_t builtin_op(Reduction reduction);

/// The factor by which rank `rank` multiplies its input in mulsum.
int mul_sum_factor(int rank);

inline constexpr size_t kPatternPeriod = 16381;

/// One element type and reduction for a number of ranks. Thread-safe; computes on first use.
class Pattern {
 public:
  Pattern(const ElementType& type, Reduction reduction, int ranks);

  const ElementType& type() const { return type_; }

  /// kPatternPeriod elements that rank `rank` contributes.
  const std::vector<std::byte>& input(int rank);
  /// kPatternPeriod elements of the result.
  const std::vector<std::byte>& reduced();

  /// False when results may differ from reduced() by rounding.
  bool exact() const { return exact_; }
  /// Tells whether `got` is an acceptable value of element `index` of `expected`, one of the two vectors above.
  bool acceptable(const std::vector<std::byte>& expected, size_t index, const std::byte* got) const;
  std::string expected_text(const std::vector<std::byte>& expected, size_t index) const;

 private:
  std::vector<std::byte> make_input(int rank) const;
  void make_reduced();
  void reduce_element(size_t index, std::byte* out);
  double float_input(int rank, size_t index) const;
  unsigned long long integer_input(int rank, size_t index) const;

  const ElementType& type_;
  Reduction reduction_;
  int ranks_;
  bool exact_;
  std::mutex mutex_;
  std::vector<std::vector<std::byte>> inputs_;
  std::vector<std::byte> reduced_;
  std::vector<double> averages_;  // unrounded, when not exact
  std::vector<double> tolerances_;
};

/// Hands all threads of a process the same pattern; keeps the latest one only.
class PatternStore {
 public:
  std::shared_ptr<Pattern> get(const ElementType& type, Reduction reduction, int ranks);

 private:
  std::mutex mutex_;
  std::string key_;
  std::shared_ptr<Pattern> latest_;
};

}  // namespace nitinol::perf
