// The buffers that the user registered with one communicator.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

namespace nitinol {

class Registrations {
 public:
  /// The same range may be added several times; each handle is removed by itself. None comes twice in a process: who
  /// removes one again ends nobody else's.
  void* add(void* buffer, size_t bytes) {
    static std::atomic<uintptr_t> last{0};
    void* const handle = reinterpret_cast<void*>(++last * kHandlesApart);
    ranges_.emplace(handle, Range{buffer, bytes});
    return handle;
  }
  /// False if there is no such registration.
  bool remove(void* handle) { return ranges_.erase(handle) > 0; }

 private:
  static constexpr uintptr_t kHandlesApart = 64;  ///< as those of objects
  struct Range {
    void* buffer;
    size_t bytes;
  };
  std::map<void*, Range> ranges_;
};

}  // namespace nitinol
