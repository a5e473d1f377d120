// The kernels that only move bytes.
#include "executor/cuda/kernels.h"

namespace nitinol::cuda {

const KernelSet& move_kernels() {
  static const KernelSet set = make_kernel_set<DataType::kUint8, Combine::kSum, false>();
  return set;
}

std::array<std::array<const void*, 2>, 2> message_kernels() {
  return {{{reinterpret_cast<const void*>(&carry_messages<LL, FewMessages>),
            reinterpret_cast<const void*>(&carry_messages<Simple, FewMessages>)},
           {reinterpret_cast<const void*>(&carry_messages<LL, ManyMessages>),
            reinterpret_cast<const void*>(&carry_messages<Simple, ManyMessages>)}}};
}

}  // namespace nitinol::cuda
