// The kernels that only move bytes.
#include "executor/cuda/built_kernels.h"
#include "executor/cuda/message_kernels.h"

namespace nitinol::cuda {

const KernelSet& move_kernels() {
  static const KernelSet set = make_kernel_set<DataType::kUint8, Combiner::kNone, false>();
  return set;
}

namespace {

template <class Wire, class Parameters, Bounds kBounds>
const void* message_kernel() {
  return reinterpret_cast<const void*>(&carry_messages<OfMessages<Wire>, Parameters, kBounds>);
}
template <class Wire, class Parameters, Bounds kBounds>
const void* message_kernel_in_rows() {
  return reinterpret_cast<const void*>(&carry_messages_in_rows<InRows<Wire>, Parameters, kBounds>);
}

template <class Wire, class Parameters, Bounds kBounds>
const void* message_kernel(bool in_rows) {
  return in_rows ? message_kernel_in_rows<Wire, Parameters, kBounds>() : message_kernel<Wire, Parameters, kBounds>();
}

template <class Parameters>
std::array<const void*, kProtocols> message_kernels_for(bool in_rows) {
  return {message_kernel<LL16, Parameters, Bounds::kPieces>(in_rows),
          message_kernel<LL128, Parameters, Bounds::kPieces>(in_rows),
          message_kernel<Simple, Parameters, Bounds::kPieces>(in_rows)};
}

/// In lines such messages are faster than by others' libraries without.
template <class Parameters>
std::array<const void*, kProtocols> message_kernels_for_bytes(bool in_rows) {
  return {nullptr, message_kernel<LL128, Parameters, Bounds::kBytes>(in_rows),
          message_kernel<Simple, Parameters, Bounds::kBytes>(in_rows)};
}

}  // namespace

MessageKernels message_kernels_between_vectors(bool in_rows) {
  return {message_kernels_for_bytes<FewMessages>(in_rows), message_kernels_for_bytes<MoreMessages>(in_rows),
          message_kernels_for_bytes<ManyMessages>(in_rows)};
}

MessageKernels message_kernels(bool in_rows) {
  return {message_kernels_for<FewMessages>(in_rows), message_kernels_for<MoreMessages>(in_rows),
          message_kernels_for<ManyMessages>(in_rows)};
}

}  // namespace nitinol::cuda
