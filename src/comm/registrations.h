// The buffers that the user registered with one communicator.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

namespace nitinol {

class Registrations {
 public:
  /// The same range may be added several times; each handle is removed by itself.
  void* add(void* buffer, size_t bytes) {
    auto range = std::make_unique<Range>(Range{buffer, bytes});
    void* const handle = range.get();
    ranges_.emplace(handle, std::move(range));
    return handle;
  }
  /// False if there is no such registration.
  bool remove(void* handle) { return ranges_.erase(handle) > 0; }

 private:
  struct Range {
    void* buffer;
    size_t bytes;
  };
  std::map<void*, std::unique_ptr<Range>> ranges_;
};

}  // namespace nitinol
