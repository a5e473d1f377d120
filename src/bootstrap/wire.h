// Bounds-checked encoding of messages: little-endian integers, byte blocks, short texts. A reader that runs past its
// end, or meets a value out of range, stays failed and returns zeros; callers check ok() once at the end.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nitinol {

class ByteWriter {
 public:
  ByteWriter() = default;
  /// Into this memory, and takes none; what finds no room in there is left out.
  explicit ByteWriter(std::span<std::byte> room) : room_(room), is_limited_(true) {}

  template <typename T>
  void integer(T value) {
    const auto bits = static_cast<std::uint64_t>(value);
    std::array<std::byte, sizeof(T)> bytes;
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<std::byte>(bits >> (8 * i));
    block(bytes.data(), bytes.size());
  }
  void block(const void* data, std::size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    if (!is_limited_) {
      bytes_.insert(bytes_.end(), begin, begin + size);
    } else if (size <= room_.size() - filled_) {
      std::copy_n(begin, size, room_.begin() + static_cast<std::ptrdiff_t>(filled_));
      filled_ += size;
    }
  }
  void text(std::string_view text, std::size_t longest) {
    text = text.substr(0, longest);
    integer(static_cast<std::uint16_t>(text.size()));
    block(text.data(), text.size());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }
  /// In limited memory.
  std::span<const std::byte> written() const { return room_.first(filled_); }

 private:
  std::vector<std::byte> bytes_;
  std::span<std::byte> room_;
  std::size_t filled_ = 0;
  bool is_limited_ = false;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  T integer() {
    std::uint64_t bits = 0;
    const auto part = next(sizeof(T));
    for (std::size_t i = 0; i < part.size(); ++i) bits |= static_cast<std::uint64_t>(part[i]) << (8 * i);
    return static_cast<T>(bits);
  }
  void block(void* data, std::size_t size) {
    const auto part = next(size);
    if (!part.empty()) std::memcpy(data, part.data(), part.size());
  }
  /// The next `size` bytes, or nothing.
  std::span<const std::byte> next(std::size_t size) {
    if (!ok_ || size > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const auto part = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return part;
  }
  /// A text of at most `longest` bytes; control characters become '?', since texts end in logs.
  std::string text(std::size_t longest) {
    const auto size = integer<std::uint16_t>();
    if (size > longest) ok_ = false;
    const auto part = next(size);
    std::string result(part.size(), '\0');
    for (std::size_t i = 0; i < part.size(); ++i) {
      const auto c = static_cast<unsigned char>(part[i]);
      result[i] = c < 0x20 || c == 0x7f ? '?' : static_cast<char>(c);
    }
    return result;
  }

  void reject() { ok_ = false; }
  bool ok() const { return ok_; }
  /// Everything was read and nothing was wrong.
  bool complete() const { return ok_ && bytes_.empty(); }
  std::size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

}  // namespace nitinol
