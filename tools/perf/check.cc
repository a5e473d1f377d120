// The host side of checking. A run of equal bytes costs a memcmp; only where that fails are elements looked at one by
// one.
#include "check.h"

#include <algorithm>
#include <cstring>

#include "library.h"

namespace nitinol::perf {
namespace {

constexpr int kPoison = 0xA5;
constexpr size_t kPieceBytes = 8 << 20;

const std::byte* bytes_at(const void* base, size_t offset) { return static_cast<const std::byte*>(base) + offset; }

}  // namespace

void Checker::poison(void* device, size_t bytes) {
  if (bytes > 0) check_cuda(cudaMemsetAsync(device, kPoison, bytes, stream_), "cudaMemsetAsync");
}

void Checker::upload(const std::vector<std::byte>& block, size_t element_size, void* device, size_t count) {
  const size_t bytes = count * element_size;
  const size_t whole_periods = std::max<size_t>(1, kPieceBytes / block.size()) * block.size();
  piece_.resize(std::min(bytes, whole_periods));
  for (size_t done = 0; done < piece_.size(); done += block.size()) {
    std::memcpy(piece_.data() + done, block.data(), std::min(block.size(), piece_.size() - done));
  }
  for (size_t done = 0; done < bytes; done += piece_.size()) {
    const size_t part = std::min(piece_.size(), bytes - done);
    std::byte* to = static_cast<std::byte*>(device) + done;
    check_cuda(cudaMemcpyAsync(to, piece_.data(), part, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
  }
  check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

void Checker::fetch(const void* device, size_t bytes) {
  if (piece_.size() < bytes) piece_.resize(bytes);
  check_cuda(cudaMemcpyAsync(piece_.data(), device, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
  check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

void Checker::complain(std::string sentence) {
  if (complaint_.empty()) complaint_ = std::move(sentence);
}

size_t Checker::count_wrong(Pattern& pattern, const Segment& segment, const void* device) {
  const ElementType& type = pattern.type();
  const bool reduced = segment.source == Segment::kReduced;
  const std::vector<std::byte>& want = reduced ? pattern.reduced() : pattern.input(segment.source);
  size_t wrong = 0;
  for (size_t done = 0; done < segment.count;) {
    const size_t phase = (segment.source_index + done) % kPatternPeriod;
    const size_t part = std::min(segment.count - done, kPieceBytes / type.size);
    fetch(bytes_at(device, (segment.offset + done) * type.size), part * type.size);
    for (size_t i = 0; i < part;) {
      const size_t at = (phase + i) % kPatternPeriod;
      const size_t run = std::min(part - i, kPatternPeriod - at);
      const std::byte* got = piece_.data() + i * type.size;
      if (std::memcmp(got, want.data() + at * type.size, run * type.size) != 0) {
        for (size_t k = 0; k < run; ++k) {
          if (pattern.acceptable(want, at + k, got + k * type.size)) continue;
          if (wrong++ > 0) continue;
          complain("element " + std::to_string(segment.offset + done + i + k) + " is " +
                   element_text(type, got + k * type.size) + " instead of " + pattern.expected_text(want, at + k) +
                   (reduced ? "" : " from rank " + std::to_string(segment.source)));
        }
      }
      i += run;
    }
    done += part;
  }
  return wrong;
}

size_t Checker::count_overwritten(const void* device, size_t bytes) {
  fetch(device, bytes);
  const auto clean = [](std::byte b) { return b == static_cast<std::byte>(kPoison); };
  const size_t wrong =
      bytes - static_cast<size_t>(std::count_if(piece_.begin(), piece_.begin() + static_cast<ptrdiff_t>(bytes), clean));
  if (wrong > 0) complain(std::to_string(wrong) + " bytes behind the end of the receive buffer were overwritten");
  return wrong;
}

std::string Checker::take_complaint() {
  std::string result;
  std::swap(result, complaint_);
  return result;
}

}  // namespace nitinol::perf
