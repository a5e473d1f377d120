// Where the memory around a pointer ends.
#pragma once

#include <cstddef>
#include <optional>

#if defined(NITINOL_CUDA)
#include <cuda.h>

#include "device/driver_function.h"
#else
#include "vgpu.h"
#endif

namespace nitinol {

/// The bytes from `pointer` to the end of what was allocated with it, of memory that was mapped to the end of the range
/// of addresses that was reserved for it; nothing if CUDA does not tell.
inline std::optional<size_t> bytes_to_end_of_memory(const void* pointer) {
#if defined(NITINOL_CUDA)
  static const auto ask = driver_function<decltype(&::cuPointerGetAttribute)>("cuPointerGetAttribute");
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  CUdeviceptr start = 0;
  size_t size = 0;
  const bool told = ask != nullptr && ask(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) == CUDA_SUCCESS &&
                    ask(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) == CUDA_SUCCESS;
  if (!told || address < start || address - start >= size) return std::nullopt;
  return size - (address - start);
#else
  size_t size = 0;
  if (vgpuMemoryShareable(pointer, nullptr, nullptr, &size) == 0) return std::nullopt;
  return size;
#endif
}

}  // namespace nitinol
