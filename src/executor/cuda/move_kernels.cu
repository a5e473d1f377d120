// The kernels that only move bytes.
#include "executor/cuda/built_kernels.h"
#include "executor/cuda/message_kernels.h"

namespace nitinol::cuda {

const KernelSet& move_kernels() {
  static const KernelSet set = make_kernel_set<DataType::kUint8, Combiner::kNone, false>();
  return set;
}

namespace {

template <class Parameters>
std::array<const void*, kProtocols> message_kernels_for() {
  return {reinterpret_cast<const void*>(&carry_messages<OfMessages<LL16>, Parameters>),
          reinterpret_cast<const void*>(&carry_messages<OfMessages<LL128>, Parameters>),
          reinterpret_cast<const void*>(&carry_messages<OfMessages<Simple>, Parameters>)};
}

/// In lines such messages are faster than by others' libraries without.
template <class Parameters>
std::array<const void*, kProtocols> message_kernels_for_bytes() {
  return {nullptr, reinterpret_cast<const void*>(&carry_messages<OfMessages<LL128>, Parameters, Bounds::kBytes>),
          reinterpret_cast<const void*>(&carry_messages<OfMessages<Simple>, Parameters, Bounds::kBytes>)};
}

}  // namespace

MessageKernels message_kernels_between_vectors() {
  return {message_kernels_for_bytes<FewMessages>(), message_kernels_for_bytes<MoreMessages>(),
          message_kernels_for_bytes<ManyMessages>()};
}

MessageKernels message_kernels() {
  return {message_kernels_for<FewMessages>(), message_kernels_for<MoreMessages>(), message_kernels_for<ManyMessages>()};
}

}  // namespace nitinol::cuda
