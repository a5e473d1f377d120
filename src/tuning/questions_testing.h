// What tests of choose() ask, and the limits that they ask with.
#pragma once

#include "tuning/choose.h"

namespace nitinol {

inline Limits limits() {
  Limits p;
  p.slot_bytes = {4096, 8192, 65536};
  p.channels = 8;
  p.one_shot_bytes = 16384;
  p.ll_bytes = 1024;
  p.ll128_bytes.fill(32768);
  p.bytes_per_channel = 65536;
  return p;
}

inline Question all_reduce(size_t count, bool order_free = false) {
  return {
      .what = Collective::kAllReduce, .count = count, .type = DataType::kFloat32, .order_free = order_free, .ranks = 8};
}

inline Question reduce(size_t count, int root) {
  Question question = all_reduce(count);
  question.what = Collective::kReduce;
  question.root = root;
  return question;
}

}  // namespace nitinol
