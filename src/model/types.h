// The element types and reductions of the API as plain values that host and device code share.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define NITINOL_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define NITINOL_HOST_DEVICE inline
#endif

namespace nitinol {

/// Element types; the values are those of ncclDataType_t.
enum class DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
  kFloat8E4m3 = 10,
  kFloat8E5m2 = 11,
};
inline constexpr int kDataTypes = 12;

/// Size of one element in bytes.
NITINOL_HOST_DEVICE constexpr size_t bytes_of(DataType type) {
  switch (type) {
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kFloat8E4m3:
    case DataType::kFloat8E5m2: return 1;
    case DataType::kFloat16:
    case DataType::kBfloat16: return 2;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32: return 4;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64: return 8;
  }
  return 0;
}

NITINOL_HOST_DEVICE constexpr bool is_float(DataType type) {
  switch (type) {
    case DataType::kFloat16:
    case DataType::kBfloat16:
    case DataType::kFloat32:
    case DataType::kFloat64:
    case DataType::kFloat8E4m3:
    case DataType::kFloat8E5m2: return true;
    case DataType::kInt8:
    case DataType::kUint8:
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kInt64:
    case DataType::kUint64: return false;
  }
  return false;
}

constexpr bool is_unsigned(DataType type) {
  return type == DataType::kUint8 || type == DataType::kUint32 || type == DataType::kUint64;
}

/// Whether sums are taken in the type itself: 16- and 8-bit floats are added in fp32.
constexpr bool adds_in_own_width(DataType type) { return !is_float(type) || bytes_of(type) >= 4; }

/// How two elements become one. Average is a sum with Reduction::average set.
enum class Combine : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3 };
inline constexpr int kCombines = 4;

/// A reduction: each rank's input is first multiplied by its scalar (if any) and rounded to the element type; the
/// results are combined in rank order, 16- and 8-bit floats in fp32, with one rounding at the end; an average divides
/// the sum by the number of ranks before that rounding (integers truncate). Only sums have scalars or are averages.
struct Reduction {
  Combine combine = Combine::kSum;
  bool average = false;
  enum class Scalar : int { kNone, kImmediate, kDevice } scalar = Scalar::kNone;
  uint64_t immediate = 0;         ///< kImmediate: the scalar's bytes, in the operation's element type
  const void* pointer = nullptr;  ///< kDevice: read while the operation runs

  /// True if the result does not depend on the order in which contributions are combined.
  constexpr bool order_free(DataType type) const {
    return !is_float(type) || combine == Combine::kMax || combine == Combine::kMin;
  }
};

enum class Collective : int {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
};
inline constexpr int kCollectives = 8;

constexpr bool reduces(Collective what) {
  return what == Collective::kAllReduce || what == Collective::kReduce || what == Collective::kReduceScatter;
}

/// Whether each rank has a block of its own, in what it sends or receives or in what the root does.
constexpr bool has_block_per_rank(Collective what) {
  return what == Collective::kAllGather || what == Collective::kReduceScatter || what == Collective::kAllToAll ||
         what == Collective::kGather || what == Collective::kScatter;
}

/// Whether one rank is different: it sends or receives all.
constexpr bool rooted(Collective what) {
  return what == Collective::kBroadcast || what == Collective::kReduce || what == Collective::kGather ||
         what == Collective::kScatter;
}

constexpr const char* name_of(Collective what) {
  switch (what) {
    case Collective::kAllReduce: return "AllReduce";
    case Collective::kBroadcast: return "Broadcast";
    case Collective::kReduce: return "Reduce";
    case Collective::kAllGather: return "AllGather";
    case Collective::kReduceScatter: return "ReduceScatter";
    case Collective::kAllToAll: return "AlltoAll";
    case Collective::kGather: return "Gather";
    case Collective::kScatter: return "Scatter";
  }
  return "?";
}

/// The algorithms; not every one exists for every collective (algorithm/table.h).
enum class Algorithm : int { kOneShot, kTwoShot, kRing, kTree };
inline constexpr int kAlgorithms = 4;

constexpr const char* name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kOneShot: return "OneShot";
    case Algorithm::kTwoShot: return "TwoShot";
    case Algorithm::kRing: return "Ring";
    case Algorithm::kTree: return "Tree";
  }
  return "?";
}

/// How data and its arrival flag travel (GPU executor; virtual GPUs use kSimple only).
enum class Protocol : int { kLL, kLL128, kSimple };
inline constexpr int kProtocols = 3;

constexpr const char* name_of(Protocol protocol) {
  switch (protocol) {
    case Protocol::kLL: return "LL";
    case Protocol::kLL128: return "LL128";
    case Protocol::kSimple: return "Simple";
  }
  return "?";
}

}  // namespace nitinol
