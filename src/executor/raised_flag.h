// A word of shared memory that tells others what a rank is doing right now.
#pragma once

#include <atomic>
#include <cstdint>

namespace nitinol {

/// The word is 1 while this lives, then 0. Null: there is none to be told.
class RaisedFlag {
 public:
  explicit RaisedFlag(std::atomic<uint32_t>* word) : word_(word) { set(1); }
  ~RaisedFlag() { set(0); }
  RaisedFlag(const RaisedFlag&) = delete;
  RaisedFlag& operator=(const RaisedFlag&) = delete;

 private:
  void set(uint32_t value) {
    if (word_ != nullptr) word_->store(value);
  }
  std::atomic<uint32_t>* word_;
};

}  // namespace nitinol
