// A shrink that is to fail, and what is said of it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "cluster.h"
#include "nccl.h"

namespace nitinol::testing {

/// Leaves out one rank, in abort mode. Looked at behind the call, as others may wait for its end.
class ShrinkAttempt {
 public:
  ShrinkAttempt(ncclComm_t comm, int excluded) {
    const auto begin = std::chrono::steady_clock::now();
    code_ = ncclCommShrink(comm, &excluded, 1, &smaller_, nullptr, NCCL_SHRINK_ABORT);
    took_ = std::chrono::steady_clock::now() - begin;
    sentence_ = ncclGetLastError(nullptr);
  }

  ncclResult_t code() const { return code_; }
  /// Throws unless it has, with a sentence that has the words.
  void must_have_failed(std::chrono::seconds longest, const std::vector<std::string>& words) const {
    expect_that(code_ != ncclSuccess && smaller_ == nullptr, "shrunk all the same");
    expect_that(took_ < longest, "it took too long");
    for (const std::string& word : words) {
      expect_that(sentence_.find(word) != std::string::npos, "'" + sentence_ + "' lacks '" + word + "'");
    }
  }

 private:
  ncclResult_t code_ = ncclSuccess;
  ncclComm_t smaller_ = nullptr;
  std::chrono::steady_clock::duration took_{};
  std::string sentence_;
};

}  // namespace nitinol::testing
