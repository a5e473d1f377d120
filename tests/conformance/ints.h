// Device memory whose elements are all alike.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "cluster.h"
#include "device_memory.h"

namespace nitinol::testing {

/// A device array of ints.
class Ints {
 public:
  explicit Ints(int count, int value = -1) : count_(count) {
    EXPECT_CALL(cudaMalloc(reinterpret_cast<void**>(&data_), sizeof(int) * static_cast<size_t>(count_)));
    fill(value);
  }
  ~Ints() { static_cast<void>(cudaFree(data_)); }
  Ints(const Ints&) = delete;
  Ints& operator=(const Ints&) = delete;
  int* data() const { return data_; }
  void fill(int value) const {
    const std::vector<int> values(static_cast<size_t>(count_), value);
    EXPECT_CALL(copy_to_device(data_, values.data(), sizeof(int) * values.size()));
  }
  /// Throws unless elements [from, from + count) are all `value`.
  void must_be(int value, int from, int count, const char* what) const {
    std::vector<int> values(static_cast<size_t>(count_));
    EXPECT_CALL(cudaMemcpy(values.data(), data_, sizeof(int) * values.size(), cudaMemcpyDeviceToHost));
    for (int i = from; i < from + count; ++i) {
      const int got = values[static_cast<size_t>(i)];
      if (got != value) {
        throw std::runtime_error(std::string(what) + ": element " + std::to_string(i) + " is " + std::to_string(got) +
                                 ", should be " + std::to_string(value));
      }
    }
  }
  void must_be(int value, const char* what) const { must_be(value, 0, count_, what); }

 private:
  int count_;
  int* data_ = nullptr;
};

}  // namespace nitinol::testing
