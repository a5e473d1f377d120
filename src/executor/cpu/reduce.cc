#include "executor/cpu/reduce.h"

namespace nitinol::cpu {

namespace {

std::vector<ReduceVariant> find_variants() {
  std::vector<ReduceVariant> variants{{"baseline", &kReduceBaseline}};
#if defined(__x86_64__)
  __builtin_cpu_init();
  // Processors with AVX2 have the older F16C, which not every compiler lets us ask for.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
  if (avx2) variants.push_back({"AVX2", &kReduceAvx2});
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd")) {
    variants.push_back({"AVX-512", &kReduceAvx512});
  }
#endif
  return variants;
}

}  // namespace

const std::vector<ReduceVariant>& reduce_variants() {
  static const auto& variants = *new std::vector(find_variants());  // kernels may still run when the process exits
  return variants;
}

const ReduceTable& reduce_table() {
  static const ReduceTable& table = *reduce_variants().back().table;
  return table;
}

}  // namespace nitinol::cpu
