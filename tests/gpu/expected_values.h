// What collectives must give, computed on the host element by element with the rules of model/arithmetic.h.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "model/arithmetic.h"
#include "model/plan.h"

namespace nitinol::gpu_testing {

using Bytes = std::vector<unsigned char>;

template <class Visit>
void with_type(DataType type, Visit&& visit) {
  switch (type) {
    case DataType::kInt8: return visit(std::integral_constant<DataType, DataType::kInt8>{});
    case DataType::kUint8: return visit(std::integral_constant<DataType, DataType::kUint8>{});
    case DataType::kInt32: return visit(std::integral_constant<DataType, DataType::kInt32>{});
    case DataType::kUint32: return visit(std::integral_constant<DataType, DataType::kUint32>{});
    case DataType::kInt64: return visit(std::integral_constant<DataType, DataType::kInt64>{});
    case DataType::kUint64: return visit(std::integral_constant<DataType, DataType::kUint64>{});
    case DataType::kFloat16: return visit(std::integral_constant<DataType, DataType::kFloat16>{});
    case DataType::kFloat32: return visit(std::integral_constant<DataType, DataType::kFloat32>{});
    case DataType::kFloat64: return visit(std::integral_constant<DataType, DataType::kFloat64>{});
    case DataType::kBfloat16: return visit(std::integral_constant<DataType, DataType::kBfloat16>{});
    case DataType::kFloat8E4m3: return visit(std::integral_constant<DataType, DataType::kFloat8E4m3>{});
    case DataType::kFloat8E5m2: return visit(std::integral_constant<DataType, DataType::kFloat8E5m2>{});
  }
}

template <DataType type>
typename Arithmetic<type>::Element element_at(const Bytes& bytes, size_t index) {
  typename Arithmetic<type>::Element element;
  std::memcpy(&element, bytes.data() + index * sizeof(element), sizeof(element));
  return element;
}

/// Floats of moderate size with some special ones; anything for integers. `exact`: numbers whose sums are exact in any
/// order.
inline Bytes random_elements(DataType type, size_t count, bool exact, std::mt19937& random) {
  Bytes bytes(count * bytes_of(type));
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  if (!is_float(type)) return bytes;
  with_type(type, [&](auto tag) {
    using A = Arithmetic<tag.value>;
    using Element = typename A::Element;
    for (size_t i = 0; i < count; ++i) {
      if (!exact && random() % 16 == 0) continue;              // any bits: infinities, subnormals, NaN
      const int range = bytes_of(type) == 1 && exact ? 1 : 4;  // 8-bit floats count no further than 8
      const int value = static_cast<int>(random() % static_cast<unsigned>(2 * range + 1)) - range;
      const double scaled = exact ? value : value * 0.37;
      const Element element = A::from_accumulator(static_cast<typename A::Accumulator>(scaled));
      std::memcpy(bytes.data() + i * sizeof(Element), &element, sizeof(Element));
    }
  });
  return bytes;
}

/// Elements [first, first + count) of the inputs reduced in rank order; of one, without a scalar, as they are.
inline Bytes reduced(DataType type, const Reduction& reduction, const std::vector<Bytes>& inputs, size_t first,
                     size_t count) {
  Bytes out(count * bytes_of(type));
  if (inputs.size() == 1 && reduction.scalar == Reduction::Scalar::kNone) {
    std::memcpy(out.data(), inputs[0].data() + first * bytes_of(type), out.size());
    return out;
  }
  with_type(type, [&](auto tag) {
    using A = Arithmetic<tag.value>;
    using Element = typename A::Element;
    using Accumulator = typename A::Accumulator;
    Element scalar;
    std::memcpy(&scalar, &reduction.immediate, sizeof(scalar));
    for (size_t i = 0; i < count; ++i) {
      Accumulator total{};
      for (size_t rank = 0; rank < inputs.size(); ++rank) {
        Element element = element_at<tag.value>(inputs[rank], first + i);
        if (reduction.scalar != Reduction::Scalar::kNone) element = premultiply<tag.value>(element, scalar);
        const Accumulator wide = A::to_accumulator(element);
        if (rank == 0) {
          total = wide;
        } else {
          switch (reduction.combine) {
            case Combine::kSum: total = combine<Combine::kSum>(total, wide); break;
            case Combine::kProduct: total = combine<Combine::kProduct>(total, wide); break;
            case Combine::kMax: total = combine<Combine::kMax>(total, wide); break;
            case Combine::kMin: total = combine<Combine::kMin>(total, wide); break;
          }
        }
      }
      if (reduction.average) total = average(total, static_cast<int>(inputs.size()));
      const Element result = A::from_accumulator(total);
      std::memcpy(out.data() + i * sizeof(Element), &result, sizeof(Element));
    }
  });
  return out;
}

/// Blocks of a rank's input and output buffers, in units of count.
inline size_t input_blocks(Collective what, int ranks, bool is_root) {
  const auto n = static_cast<size_t>(ranks);
  switch (what) {
    case Collective::kReduceScatter:
    case Collective::kAllToAll: return n;
    case Collective::kScatter: return is_root ? n : 0;
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kAllGather:
    case Collective::kGather: return 1;
    case Collective::kBroadcast: return is_root ? 1 : 0;
  }
  return 0;
}
inline size_t output_blocks(Collective what, int ranks, bool is_root) {
  const auto n = static_cast<size_t>(ranks);
  switch (what) {
    case Collective::kAllGather:
    case Collective::kAllToAll: return n;
    case Collective::kGather: return is_root ? n : 0;
    case Collective::kReduce: return is_root ? 1 : 0;
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kScatter:
    case Collective::kBroadcast: return 1;
  }
  return 0;
}

/// The output of `rank`.
inline Bytes expected_output(const CollectiveWork& work, int rank, const std::vector<Bytes>& inputs) {
  const size_t block = work.count * bytes_of(work.type);
  const auto part = [&](const Bytes& from, size_t index) {
    return Bytes(from.begin() + static_cast<std::ptrdiff_t>(index * block),
                 from.begin() + static_cast<std::ptrdiff_t>((index + 1) * block));
  };
  const auto me = static_cast<size_t>(rank);
  const auto root = static_cast<size_t>(work.root);
  Bytes out;
  switch (work.what) {
    case Collective::kAllReduce: return reduced(work.type, work.reduction, inputs, 0, work.count);
    case Collective::kReduce: return me == root ? reduced(work.type, work.reduction, inputs, 0, work.count) : out;
    case Collective::kReduceScatter: return reduced(work.type, work.reduction, inputs, me * work.count, work.count);
    case Collective::kBroadcast: return inputs[root];
    case Collective::kScatter: return part(inputs[root], me);
    case Collective::kAllToAll:
      for (const Bytes& input : inputs) {
        const Bytes one = part(input, me);
        out.insert(out.end(), one.begin(), one.end());
      }
      return out;
    case Collective::kAllGather:
    case Collective::kGather:
      if (work.what == Collective::kGather && me != root) return out;
      for (const Bytes& input : inputs) out.insert(out.end(), input.begin(), input.end());
      return out;
  }
  return out;
}

}  // namespace nitinol::gpu_testing
