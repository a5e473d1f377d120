// The wires: how a thread's share of a transfer lies in a slot, and how the reader knows that it is there.
//   LL8     lines of 16 bytes {data, flag, data, flag}: half the bandwidth, no waiting for anything but the data
//   LL16    lines of 16 bytes with one flag, and the tag once in three lines: two thirds of the bandwidth. CUDA keeps
//           accesses of 16 bytes whole on every path (CUDA C++ Programming Guide, "Mapped Memory"). It is there for
//           what LL128 does elsewhere, and counts as the protocol LL
//   LL128   lines of 128 bytes that a warp stores at once, the last 8 of them the flag: 15/16 of the bandwidth; needs
//           a path that keeps 128-byte stores whole (NVLink, or one GPU)
//   Simple  bare data; a word elsewhere counts the slots that are complete
// With LL and LL128 the tag of the call (Signature::tag) stands in a second flag, as much of it as there is room for:
// data of another call than the receiver's is not taken for its own. With Simple anything that told whose the data is
// took one or two percent of the time of large operations (a label for the first step of each call, which the clerk
// reads).
// A unit is what one thread (LL128: one warp) moves at a time.
#pragma once

#include "algorithm/parts.h"
#include "executor/cuda/layout.h"
#include "executor/cuda/ptx.h"

namespace nitinol::cuda {

/// A queue slot that takes part in a transfer, with the flags that mark its data.
struct __align__(16) Endpoint {
  char* slot;
  uint32_t flag;  ///< the transfer's step
  uint32_t second;
};

/// As they stand in a slot.
struct Flags {
  uint32_t first;
  uint32_t second;
};

struct LL8 {
  static constexpr bool kMessages = false;
  static constexpr Protocol kProtocol = Protocol::kLL;
  static constexpr WireShape kShape = kShapeOfLL8;
  static constexpr bool kPerWarp = false;
  static constexpr bool kCounted = false;  ///< arrival is told by a counter, not by the data
  static constexpr bool kSmall = false;    ///< CTAs have few workers, so that two fit on a multiprocessor
  static constexpr bool kApart = false;    ///< a CTA carries out one part of the program (algorithm/parts.h)
  static constexpr int kWords = 2;         ///< payload of a thread and unit, in 4-byte words
  static constexpr int kPieces = 1;        ///< contiguous runs of user data that this is
  static constexpr int kBatch = 1;         ///< units in flight per thread when data only moves
  /// Units in flight per thread when data of several ranks is reduced. With 8 registers are short: reductions of 1 to
  /// 64 KB took 10 % longer; with 2 between 4 and 8 ranks 2 to 6 % longer.
  static constexpr int kFlight = 4;

  // The second flag is the step, too, with as much of the tag as fits added to its upper half.
  static constexpr uint32_t kMarkedBytes = 2;  ///< of a call's mark (Work::mark), from the highest down
  struct Raw {
    uint4 line;
  };
  __device__ __forceinline__ static uint32_t second_flag(uint32_t flag, uint32_t marked) { return flag + marked; }
  /// The other way round.
  __device__ __forceinline__ static uint32_t mark_in(uint32_t flag, uint32_t second) { return second - flag; }
  __device__ __forceinline__ static uint32_t offset(uint32_t unit, int, int) { return unit * kShape.bytes; }
  __device__ __forceinline__ static bool has(int, int) { return true; }
  __device__ __forceinline__ static Raw fetch(const char* slot, uint32_t unit, int) {
    return Raw{load_live(slot + unit * kShape.stored)};
  }
  __device__ __forceinline__ static bool ready(const Raw& raw, const Endpoint& from, int) {
    return raw.line.y == from.flag && raw.line.w == from.second;
  }
  /// The flags of a unit, where this lane has any.
  __device__ __forceinline__ static Flags flags_in(const Raw& raw) { return {raw.line.y, raw.line.w}; }
  __device__ __forceinline__ static bool has_flags(int) { return true; }
  __device__ __forceinline__ static void open(const Raw& raw, int, uint32_t (&words)[kWords]) {
    words[0] = raw.line.x;
    words[1] = raw.line.z;
  }
  __device__ __forceinline__ static void put(const Endpoint& to, uint32_t, uint32_t unit, int,
                                             const uint32_t (&words)[kWords]) {
    store_live(to.slot + unit * kShape.stored, make_uint4(words[0], to.flag, words[1], to.second));
  }
};

struct LL16 {
  static constexpr bool kMessages = false;
  static constexpr Protocol kProtocol = Protocol::kLL;
  static constexpr WireShape kShape = kShapeOfLL16;
  static constexpr bool kPerWarp = true;
  static constexpr bool kCounted = false;
  static constexpr bool kSmall = false;
  static constexpr bool kApart = false;
  static constexpr int kWords = 8;
  static constexpr int kPieces = 2;
  static constexpr int kBatch = 2;
  static constexpr int kFlight = 2;

  // A unit is three lines for each lane, which lie apart, so that a warp stores 512 bytes without a gap.
  static constexpr uint32_t kMarkedBytes = 3;
  static constexpr uint32_t kLinesApart = 512;
  __device__ __forceinline__ static uint32_t second_flag(uint32_t, uint32_t marked) { return marked; }
  __device__ __forceinline__ static uint32_t mark_in(uint32_t, uint32_t second) { return second; }
  struct Raw {
    uint4 line[3];
  };
  __device__ __forceinline__ static uint32_t offset(uint32_t unit, int lane, int piece) {
    return unit * kShape.bytes + piece * 512 + lane * 16;
  }
  __device__ __forceinline__ static bool has(int, int) { return true; }
  __device__ __forceinline__ static Raw fetch(const char* slot, uint32_t unit, int lane) {
    const char* line = slot + unit * kShape.stored + lane * 16;
    return Raw{{load_live(line), load_live(line + kLinesApart), load_live(line + 2 * kLinesApart)}};
  }
  __device__ __forceinline__ static bool ready(const Raw& raw, const Endpoint& from, int) {
    const bool mine = raw.line[0].w == from.flag && raw.line[1].w == from.flag && raw.line[2].w == from.flag &&
                      raw.line[2].z == from.second;
    return __all_sync(0xffffffffU, mine);
  }
  __device__ __forceinline__ static Flags flags_in(const Raw& raw) { return {raw.line[2].w, raw.line[2].z}; }
  __device__ __forceinline__ static bool has_flags(int) { return true; }
  __device__ __forceinline__ static void open(const Raw& raw, int, uint32_t (&words)[kWords]) {
    words[0] = raw.line[0].x;
    words[1] = raw.line[0].y;
    words[2] = raw.line[0].z;
    words[3] = raw.line[1].x;
    words[4] = raw.line[1].y;
    words[5] = raw.line[1].z;
    words[6] = raw.line[2].x;
    words[7] = raw.line[2].y;
  }
  __device__ __forceinline__ static void put(const Endpoint& to, uint32_t marked, uint32_t unit, int lane,
                                             const uint32_t (&words)[kWords]) {
    char* line = to.slot + unit * kShape.stored + lane * 16;
    store_live(line, make_uint4(words[0], words[1], words[2], to.flag));
    store_live(line + kLinesApart, make_uint4(words[3], words[4], words[5], to.flag));
    store_live(line + 2 * kLinesApart, make_uint4(words[6], words[7], marked, to.flag));
  }
};

struct LL128 {
  static constexpr bool kMessages = false;
  static constexpr Protocol kProtocol = Protocol::kLL128;
  static constexpr WireShape kShape = kShapeOfLL128;
  static constexpr bool kPerWarp = true;
  static constexpr bool kCounted = false;
  static constexpr bool kSmall = false;
  static constexpr bool kApart = false;
  static constexpr int kWords = 8;
  static constexpr int kPieces = 2;
  static constexpr int kBatch = 2;
  static constexpr int kFlight = 2;  ///< with 4 a quarter to two thirds longer from 256 KB on

  // A unit is 8 lines, stored by two instructions of 16 bytes per lane. Every eighth lane stores the flags, in the
  // lines of the first instruction with the tag behind them; its first piece is cut in two halves, one beside each
  // flag, and it has no second piece. So all pieces are 16 bytes of user data.
  static constexpr uint32_t kMarkedBytes = 3;
  __device__ __forceinline__ static uint32_t second_flag(uint32_t, uint32_t marked) { return marked; }
  __device__ __forceinline__ static uint32_t mark_in(uint32_t, uint32_t second) { return second; }
  struct Raw {
    uint4 line[2];
  };
  __device__ __forceinline__ static bool has_flags(int lane) { return lane % 8 == 7; }
  __device__ __forceinline__ static uint32_t offset(uint32_t unit, int lane, int piece) {
    return unit * kShape.bytes + (piece == 0 ? lane * 16 : 512 + (lane - lane / 8) * 16);
  }
  __device__ __forceinline__ static bool has(int lane, int piece) { return piece == 0 || !has_flags(lane); }
  __device__ __forceinline__ static Raw fetch(const char* slot, uint32_t unit, int lane) {
    const char* line = slot + unit * kShape.stored + lane * 16;
    return Raw{{load_live(line), load_live(line + 512)}};
  }
  __device__ __forceinline__ static bool ready(const Raw& raw, const Endpoint& from, int lane) {
    const bool mine = raw.line[0].z == from.flag && raw.line[1].z == from.flag && raw.line[0].w == from.second;
    return __all_sync(0xffffffffU, mine || !has_flags(lane));
  }
  __device__ __forceinline__ static Flags flags_in(const Raw& raw) { return {raw.line[0].z, raw.line[0].w}; }
  __device__ __forceinline__ static void open(const Raw& raw, int lane, uint32_t (&words)[kWords]) {
    const bool flagged = has_flags(lane);
    words[0] = raw.line[0].x;
    words[1] = raw.line[0].y;
    words[2] = flagged ? raw.line[1].x : raw.line[0].z;
    words[3] = flagged ? raw.line[1].y : raw.line[0].w;
    words[4] = raw.line[1].x;
    words[5] = raw.line[1].y;
    words[6] = raw.line[1].z;
    words[7] = raw.line[1].w;
  }
  __device__ __forceinline__ static void put(const Endpoint& to, uint32_t marked, uint32_t unit, int lane,
                                             const uint32_t (&words)[kWords]) {
    const bool flagged = has_flags(lane);
    char* line = to.slot + unit * kShape.stored + lane * 16;
    store_live(line, make_uint4(words[0], words[1], flagged ? to.flag : words[2], flagged ? marked : words[3]));
    store_live(line + 512, make_uint4(flagged ? words[2] : words[4], flagged ? words[3] : words[5],
                                      flagged ? to.flag : words[6], flagged ? 0 : words[7]));
  }
};

struct Simple {
  static constexpr bool kMessages = false;
  static constexpr Protocol kProtocol = Protocol::kSimple;
  static constexpr WireShape kShape = kShapeOfSimple;
  static constexpr bool kPerWarp = false;
  static constexpr bool kCounted = true;
  static constexpr uint32_t kMarkedBytes = 0;
  __device__ __forceinline__ static uint32_t second_flag(uint32_t, uint32_t) { return 0; }
  static constexpr bool kSmall = false;
  static constexpr bool kApart = false;
  static constexpr int kWords = 4;
  static constexpr int kPieces = 1;
  static constexpr int kBatch = 8;
  static constexpr int kFlight = 8;

  struct Raw {
    uint4 line;
  };
  __device__ __forceinline__ static uint32_t offset(uint32_t unit, int, int) { return unit * kShape.bytes; }
  __device__ __forceinline__ static bool has(int, int) { return true; }
  __device__ __forceinline__ static Raw fetch(const char* slot, uint32_t unit, int) {
    return Raw{load_16(slot + unit * kShape.stored)};
  }
  __device__ __forceinline__ static bool ready(const Raw&, const Endpoint&, int) { return true; }
  __device__ __forceinline__ static void open(const Raw& raw, int, uint32_t (&words)[kWords]) {
    words[0] = raw.line.x;
    words[1] = raw.line.y;
    words[2] = raw.line.z;
    words[3] = raw.line.w;
  }
  __device__ __forceinline__ static void put(const Endpoint& to, uint32_t, uint32_t unit, int,
                                             const uint32_t (&words)[kWords]) {
    store_16(to.slot + unit * kShape.stored, make_uint4(words[0], words[1], words[2], words[3]));
  }
};

/// Simple, but with small CTAs.
struct Small : Simple {
  static constexpr bool kSmall = true;
};

/// The same, with CTAs of their own for each part of a rank's program.
template <bool kReduces>
struct Apart : Small {
  static constexpr bool kApart = true;
  static constexpr bool kReducesApart = kReduces;
  static constexpr algorithm::Division kDivision = algorithm::division_of(kReduces);
};

/// The same, but with all parts of a channel in one CTA: workers carry out one, movers (mover.h) the others.
template <bool kReduces>
struct Joined : Apart<kReduces> {
  static constexpr algorithm::Division kDivision = algorithm::Division::kByPeer;
};
template <class Wire>
inline constexpr bool joins_parts = false;
template <bool kReduces>
inline constexpr bool joins_parts<Joined<kReduces>> = true;

/// Any of the first four in kernels that carry messages and nothing else.
template <class Base>
struct OfMessages : Base {
  static constexpr bool kMessages = true;
  static constexpr bool kInRows = false;
};
/// The same, with a row of threads for each of several lanes.
template <class Base>
struct InRows : OfMessages<Base> {
  static constexpr bool kInRows = true;
};

/// Whether the CTAs may carry several channels each (kMostRows in kernel_shapes.h).
template <class Wire>
inline constexpr bool shares_cta = Wire::kSmall && !Wire::kApart;
template <class Base>
inline constexpr bool shares_cta<InRows<Base>> = true;

}  // namespace nitinol::cuda
