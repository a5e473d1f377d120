// Filling buffers and comparing them with what is expected, on the host, piece by piece.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <vector>

#include "operation.h"
#include "pattern.h"

namespace nitinol::perf {

/// Room behind every receive buffer that must stay as it was.
inline constexpr size_t kGuardBytes = 512;

class Checker {
 public:
  explicit Checker(cudaStream_t stream) : stream_(stream) {}

  /// Fills with bytes that no result looks like.
  void poison(void* device, size_t bytes);
  /// Fills with the first `count` elements of a periodic pattern.
  void upload(const std::vector<std::byte>& block, size_t element_size, void* device, size_t count);

  /// Number of wrong elements in a segment of the buffer at `device`; notes the first one.
  size_t count_wrong(Pattern& pattern, const Segment& segment, const void* device);
  /// Number of bytes that are no longer poison.
  size_t count_overwritten(const void* device, size_t bytes);

  /// The first difference found since the last call, as a sentence; empty when there was none.
  std::string take_complaint();

 private:
  void fetch(const void* device, size_t bytes);
  void complain(std::string sentence);

  cudaStream_t stream_;
  std::vector<std::byte> piece_;
  std::string complaint_;
};

}  // namespace nitinol::perf
