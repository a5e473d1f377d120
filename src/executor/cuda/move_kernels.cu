// The kernels that only move bytes.
#include "executor/cuda/kernels.h"

namespace nitinol::cuda {

ProtocolKernels move_kernels() {
  constexpr auto type = DataType::kUint8;
  constexpr auto how = Combine::kSum;
  return {reinterpret_cast<const void*>(&run_collectives<LL, type, how, false>),
          reinterpret_cast<const void*>(&run_collectives<LL128, type, how, false>),
          reinterpret_cast<const void*>(&run_collectives<Simple, type, how, false>)};
}

std::array<std::array<const void*, 2>, 2> message_kernels() {
  return {{{reinterpret_cast<const void*>(&carry_messages<LL, FewMessages>),
            reinterpret_cast<const void*>(&carry_messages<Simple, FewMessages>)},
           {reinterpret_cast<const void*>(&carry_messages<LL, ManyMessages>),
            reinterpret_cast<const void*>(&carry_messages<Simple, ManyMessages>)}}};
}

}  // namespace nitinol::cuda
