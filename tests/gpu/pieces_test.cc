// Pieces of copies on their way through shared memory, without a GPU: a warp's lanes are threads of the host, and its
// copy unit takes as long as it may. From any address to any other all arrives, and nothing else is read or written.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "executor/cuda/ptx.h"
#if !defined(__noinline__)
#define __noinline__ __attribute__((noinline))
#endif
#include "executor/cuda/pieces.h"

namespace nitinol::gpu_testing {
namespace {

using cuda::copy_unit;
using cuda::kBulkAlignment;
using cuda::kPieceStages;
using cuda::PieceStages;

constexpr uint32_t kPiece = 128;
constexpr char kPoison = 0x5a;
constexpr size_t kMargin = 64;  ///< around what is copied

struct Chunk {
  size_t begin;
  uint32_t bytes;
};

/// Memory that begins with a multiple of kBulkAlignment.
class Aligned {
 public:
  explicit Aligned(size_t bytes)
      : bytes_((bytes + kBulkAlignment - 1) / kBulkAlignment * kBulkAlignment),
        memory_(static_cast<char*>(std::aligned_alloc(kBulkAlignment, bytes_)), &std::free) {
    std::fill_n(memory_.get(), bytes_, kPoison);
  }
  char* get() const { return memory_.get(); }
  size_t size() const { return bytes_; }

 private:
  size_t bytes_;
  std::unique_ptr<char, decltype(&std::free)> memory_;
};

/// As a mover does: two pieces are on their way into their stages while the one before them is stored.
void copy_chunks(char* to, const char* from, const std::vector<Chunk>& chunks, PieceStages stages) {
  struct Piece {
    char* to;
    uint32_t within;
    uint32_t bytes;
  };
  std::deque<Piece> filling;
  const auto store_oldest = [&] {
    stages.await_filled();
    stages.store(filling.front().to, filling.front().within, filling.front().bytes);
    filling.pop_front();
  };
  for (const Chunk& chunk : chunks) {
    for (uint32_t at = 0; at < chunk.bytes; at += kPiece) {
      const uint32_t now = std::min(kPiece, chunk.bytes - at);
      const size_t place = chunk.begin + at;
      filling.push_back({to + place, stages.fill<2>(from + place, now, at == 0, chunk.bytes - at - now), now});
      if (filling.size() > 2) store_oldest();
    }
  }
  while (!filling.empty()) store_oldest();
  if (threadIdx.x == 0) cuda::await_bulk_stores<0>();
}

/// Copies as many bytes in chunks, out of a buffer that begins so far behind a multiple of kBulkAlignment into another.
/// Returns what went wrong.
std::string copy(const std::vector<uint32_t>& chunk_bytes, size_t from_shift, size_t to_shift) {
  std::vector<Chunk> chunks;
  size_t all = 0;
  for (const uint32_t bytes : chunk_bytes) {
    chunks.push_back({all, bytes});
    all += bytes;
  }
  const Aligned source(kMargin + from_shift + all + kMargin);
  const Aligned sink(kMargin + to_shift + all + kMargin);
  char* const from = source.get() + kMargin + from_shift;
  char* const to = sink.get() + kMargin + to_shift;
  std::mt19937 random(7);
  for (size_t i = 0; i < all; ++i) from[i] = static_cast<char>(random());

  std::string wrong;
  copy_unit.complain = [&](const char* what) { wrong = what; };
  copy_unit.on_load = [&](const char* begin, uint32_t bytes) {
    if (begin < from || begin + bytes > from + all) wrong = "what is no part of the buffer is read";
  };
  const Aligned stages(kPieceStages * cuda::stage_bytes(kPiece));
  std::array<uint64_t, kPieceStages> barriers{};
  std::vector<std::thread> lanes;
  for (unsigned lane = 0; lane < 32; ++lane) {
    lanes.emplace_back([&, lane] {
      threadIdx.x = lane;
      copy_chunks(to, from, chunks, PieceStages(stages.get(), cuda::stage_bytes(kPiece), barriers.data()));
    });
  }
  for (std::thread& lane : lanes) lane.join();

  std::vector<char> expected(sink.size(), kPoison);
  std::copy_n(from, all, expected.begin() + (to - sink.get()));
  if (!std::equal(expected.begin(), expected.end(), sink.get())) wrong += " other bytes than they should be";
  return wrong;
}

TEST(Pieces, OfOneChunkGoFromAnyToAnyAddress) {
  for (size_t from = 0; from < 16; from += 3) {
    for (const size_t to : {0, 1, 4, 8, 14}) {
      for (const uint32_t bytes : {1U, 16U, 17U, 128U, 131U, 144U, 645U}) {
        ASSERT_EQ("", copy({bytes}, from, to)) << bytes << " bytes from " << from << " to " << to;
      }
    }
  }
}

TEST(Pieces, OfManyChunksUseStagesAgainOnceTheyAreRead) {
  for (const size_t from : {0, 4, 15}) {
    for (const size_t to : {0, 4, 2}) {
      ASSERT_EQ("", copy({640, 16, 1, 256, 1000, 384, 7, 2048}, from, to)) << "from " << from << " to " << to;
    }
  }
}

TEST(Pieces, ReadNothingBehindTheBuffer) {
  for (uint32_t rest = 1; rest < 20; rest += 3) {
    for (size_t from = 0; from < 16; ++from) {
      ASSERT_EQ("", copy({4 * kPiece + rest}, from, 0)) << rest << " bytes in the last piece, from " << from;
    }
  }
}

}  // namespace
}  // namespace nitinol::gpu_testing
