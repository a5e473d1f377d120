// What is known of the links between GPUs, and of what else their kernels have for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nitinol::cuda {

/// Whether GPUs of this kind are all linked with each other (NVLink) in the hosts they are made for, as far as its name
/// tells: those on cards are not, or only in groups.
bool are_usually_linked(int compute_capability, std::string_view name);

/// Peer::bulk_bytes of a GPU with so much shared memory for a CTA, by kernels that were compiled for a compute
/// capability, which may be an older one than the GPU's.
uint32_t bulk_bytes(int compute_capability, int compiled_for, size_t shared_bytes);

}  // namespace nitinol::cuda
