// Every operation with every type and reduction, over layouts of ranks in processes and threads, in and out of place,
// in sizes from none to many chunks. Results are compared byte for byte, and nothing beside them may be written.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cluster.h"
#include "device_memory.h"
#include "elements.h"
#include "scarcity.h"

namespace nitinol::testing {
namespace {

constexpr uint8_t kPoison = 0xa5;
constexpr size_t kGuard = 64;  // bytes before and behind what an operation may write

struct Case {
  Collective what = Collective::kAllReduce;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
  bool scaled = false;  // PreMulSum
  int root = 0;
  size_t count = 0;
  size_t shift = 0;  // elements by which buffers are moved off their alignment
  bool in_place = false;
  std::string text() const {
    return std::string(name_of(what)) + " type " + std::to_string(type) + " op " + std::to_string(op) +
           (scaled ? " scaled" : "") + " root " + std::to_string(root) + " count " + std::to_string(count) + " shift " +
           std::to_string(shift) + (in_place ? " in place" : "");
  }
};

/// Device memory that serves all cases of a rank: freeing it may wait for the device, which ranks may share, and so for
/// a rank that waits for this one.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t most_bytes) : bytes_(most_bytes + 2 * kGuard) {
    EXPECT_CALL(cudaMalloc(&memory_, bytes_));
  }
  ~DeviceBuffer() { static_cast<void>(cudaFree(memory_)); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  uint8_t* data() const { return static_cast<uint8_t*>(memory_) + kGuard; }
  /// From now on it counts as `bytes` large, with guards around, all poisoned.
  void renew(size_t bytes) {
    bytes_ = bytes + 2 * kGuard;
    EXPECT_CALL(set_on_device(memory_, kPoison, bytes_));
  }
  void write(size_t offset, const Buffer& from) const {
    if (!from.empty()) EXPECT_CALL(copy_to_device(data() + offset, from.data(), from.size()));
  }
  Buffer read_all() const {
    Buffer all(bytes_);
    EXPECT_CALL(cudaMemcpy(all.data(), memory_, bytes_, cudaMemcpyDeviceToHost));
    return all;
  }

 private:
  void* memory_ = nullptr;
  size_t bytes_;
};

/// How many blocks of `count` elements a rank's buffers hold.
int send_blocks(Collective what, int ranks) {
  return what == Collective::kReduceScatter || what == Collective::kAllToAll || what == Collective::kScatter ? ranks
                                                                                                             : 1;
}
int receive_blocks(Collective what, int ranks) {
  return what == Collective::kAllGather || what == Collective::kAllToAll || what == Collective::kGather ? ranks : 1;
}

bool receives(const Case& c, int rank) {
  return (c.what != Collective::kReduce && c.what != Collective::kGather) || rank == c.root;
}

Buffer block(const Buffer& from, size_t bytes, int index) {
  const auto begin = from.begin() + static_cast<ptrdiff_t>(bytes) * index;
  return {begin, begin + static_cast<ptrdiff_t>(bytes)};
}

std::vector<Buffer> all_inputs(const Case& c, int ranks, uint32_t seed) {
  std::vector<Buffer> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(make_input(c.type, c.count * static_cast<size_t>(send_blocks(c.what, ranks)), rank, seed));
  }
  return inputs;
}

Buffer expected_output(const Case& c, const std::vector<Buffer>& inputs, int rank) {
  const int ranks = static_cast<int>(inputs.size());
  const size_t bytes = c.count * size_of(c.type);
  std::vector<uint64_t> scalars;
  for (int i = 0; c.scaled && i < ranks; ++i) scalars.push_back(make_scalar(c.type, i));
  Buffer result;
  const auto append = [&](const Buffer& piece) { result.insert(result.end(), piece.begin(), piece.end()); };
  switch (c.what) {
    case Collective::kAllReduce:
    case Collective::kReduce: return reduce(c.type, c.op, inputs, scalars);
    case Collective::kReduceScatter: return block(reduce(c.type, c.op, inputs, scalars), bytes, rank);
    case Collective::kBroadcast: return inputs[static_cast<size_t>(c.root)];
    case Collective::kScatter: return block(inputs[static_cast<size_t>(c.root)], bytes, rank);
    case Collective::kAllGather:
    case Collective::kGather:
      for (const Buffer& input : inputs) append(input);
      return result;
    case Collective::kAllToAll:
      for (const Buffer& input : inputs) append(block(input, bytes, rank));
      return result;
  }
  return result;
}

void call(const Case& c, const Rank& self, const void* send, void* receive, ncclRedOp_t op) {
  switch (c.what) {
    case Collective::kAllReduce:
      return EXPECT_CALL(ncclAllReduce(send, receive, c.count, c.type, op, self.comm, self.stream));
    case Collective::kReduce:
      return EXPECT_CALL(ncclReduce(send, receive, c.count, c.type, op, c.root, self.comm, self.stream));
    case Collective::kReduceScatter:
      return EXPECT_CALL(ncclReduceScatter(send, receive, c.count, c.type, op, self.comm, self.stream));
    case Collective::kBroadcast:
      return EXPECT_CALL(ncclBroadcast(send, receive, c.count, c.type, c.root, self.comm, self.stream));
    case Collective::kAllGather:
      return EXPECT_CALL(ncclAllGather(send, receive, c.count, c.type, self.comm, self.stream));
    case Collective::kAllToAll:
      return EXPECT_CALL(ncclAlltoAll(send, receive, c.count, c.type, self.comm, self.stream));
    case Collective::kGather:
      return EXPECT_CALL(ncclGather(send, receive, c.count, c.type, c.root, self.comm, self.stream));
    case Collective::kScatter:
      return EXPECT_CALL(ncclScatter(send, receive, c.count, c.type, c.root, self.comm, self.stream));
  }
}

/// Where in the larger buffer the smaller one lies when an operation is in place (spec: the API's in-place rule), in
/// bytes.
struct Places {
  size_t send = 0;
  size_t receive = 0;
};
Places in_place_offsets(const Case& c, int rank) {
  const size_t bytes = c.count * size_of(c.type);
  switch (c.what) {
    case Collective::kAllGather: return {static_cast<size_t>(rank) * bytes, 0};
    case Collective::kReduceScatter: return {0, static_cast<size_t>(rank) * bytes};
    case Collective::kGather: return {rank == c.root ? static_cast<size_t>(c.root) * bytes : 0, 0};
    case Collective::kScatter: return {0, rank == c.root ? static_cast<size_t>(c.root) * bytes : 0};
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kAllToAll: return {};
  }
  return {};
}

/// The memory of one rank for cases of at most `count` elements.
struct Buffers {
  Buffers(size_t bytes, int ranks)
      : input(bytes * static_cast<size_t>(ranks)),
        output(bytes * static_cast<size_t>(ranks)),
        scalar(sizeof(uint64_t)) {}
  DeviceBuffer input;
  DeviceBuffer output;
  DeviceBuffer scalar;
};

size_t most_bytes(const std::vector<Case>& cases) {
  size_t most = 0;
  for (const Case& c : cases) most = std::max(most, (c.count + c.shift) * size_of(c.type));
  return most;
}

/// A scalar on the host is read at once; one on the device, half of the cases, when the operation runs.
void make_operator(const Case& c, const Rank& self, Buffers& buffers, uint64_t scalar, ncclRedOp_t& op) {
  if (c.in_place) {
    buffers.scalar.renew(sizeof(scalar));
    EXPECT_CALL(ncclRedOpCreatePreMulSum(&op, buffers.scalar.data(), c.type, ncclScalarDevice, self.comm));
    EXPECT_CALL(copy_to_device(buffers.scalar.data(), &scalar, sizeof(scalar)));
  } else {
    EXPECT_CALL(ncclRedOpCreatePreMulSum(&op, &scalar, c.type, ncclScalarHostImmediate, self.comm));
  }
}

/// Runs one case on one rank; throws if a byte of the result is wrong or a byte beside it was written.
void run_case(const Case& c, const Rank& self, Buffers& buffers, uint32_t seed) {
  const std::vector<Buffer> inputs = all_inputs(c, self.ranks, seed);
  const Buffer& mine = inputs[static_cast<size_t>(self.rank)];
  const size_t shift = c.shift * size_of(c.type);
  const size_t block_bytes = c.count * size_of(c.type);
  const size_t output_bytes = block_bytes * static_cast<size_t>(receive_blocks(c.what, self.ranks));
  const bool two_buffers = !c.in_place;
  DeviceBuffer& output = buffers.output;
  output.renew(shift + std::max(output_bytes, mine.size()));
  const Places places = c.in_place ? in_place_offsets(c, self.rank) : Places{};
  const DeviceBuffer& source = two_buffers ? buffers.input : output;
  source.write(shift + places.send, mine);
  Buffer wanted = output.read_all();
  if (receives(c, self.rank)) {
    const Buffer result = expected_output(c, inputs, self.rank);
    if (!result.empty())
      std::copy(result.begin(), result.end(), wanted.begin() + static_cast<ptrdiff_t>(kGuard + shift + places.receive));
  }
  ncclRedOp_t op = c.op;
  const uint64_t scalar = make_scalar(c.type, self.rank);
  if (c.scaled) make_operator(c, self, buffers, scalar, op);
  call(c, self, source.data() + shift + places.send, output.data() + shift + places.receive, op);
  if (c.scaled) EXPECT_CALL(ncclRedOpDestroy(op, self.comm));
  EXPECT_CALL(cudaStreamSynchronize(self.stream));
  const Buffer got = output.read_all();
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == wanted[i]) continue;
    throw std::runtime_error(c.text() + ": byte " + std::to_string(static_cast<long>(i - kGuard - shift)) + " is " +
                             std::to_string(got[i]) + ", should be " + std::to_string(wanted[i]));
  }
}

struct Layout {
  const char* name;
  std::vector<int> ranks_in_process;
};

class Matrix : public ::testing::TestWithParam<Layout> {
 protected:
  void SetUp() override {
    const std::vector<int>& all = GetParam().ranks_in_process;
    const bool has_threads = *std::max_element(all.begin(), all.end()) > 1;
    if (kThreadSanitizer && !has_threads) GTEST_SKIP() << "it sees nothing between processes";
  }
  static int ranks() {
    const std::vector<int>& all = GetParam().ranks_in_process;
    return std::accumulate(all.begin(), all.end(), 0);
  }
  static void run(const std::vector<Case>& cases) {
    const std::string wrong = run_ranks(GetParam().ranks_in_process, [&](Rank& self) {
      Buffers buffers(most_bytes(cases), self.ranks);
      uint32_t seed = 1;
      for (Case c : cases) {
        c.root %= self.ranks;
        run_case(c, self, buffers, seed++);
      }
    });
    EXPECT_EQ(wrong, "");
  }
};

/// Sizes (with shifts) small enough to be run for every type: none, one, odd, misaligned, and over a cache line.
const std::pair<size_t, size_t> kSmallSizes[] = {{0, 0}, {1, 1}, {17, 0}, {33, 1}, {257, 3}};

std::vector<Case> reductions(Collective what) {
  std::vector<Case> cases;
  int root = 0;
  for (int type = 0; type < ncclNumTypes; ++type) {
    for (int op = 0; op <= ncclNumOps; ++op) {
      for (const auto& [count, shift] : kSmallSizes) {
        for (const bool in_place : {false, true}) {
          cases.push_back({.what = what,
                           .type = static_cast<ncclDataType_t>(type),
                           .op = op == ncclNumOps ? ncclSum : static_cast<ncclRedOp_t>(op),
                           .scaled = op == ncclNumOps,
                           .root = ++root,
                           .count = count,
                           .shift = shift,
                           .in_place = in_place});
        }
      }
    }
  }
  return cases;
}

std::vector<Case> movements(Collective what) {
  std::vector<Case> cases;
  int root = 0;
  for (int type = 0; type < ncclNumTypes; ++type) {
    for (const auto& [count, shift] : kSmallSizes) {
      for (const bool in_place : {false, true}) {
        if (in_place && what == Collective::kAllToAll) continue;
        cases.push_back({.what = what,
                         .type = static_cast<ncclDataType_t>(type),
                         .root = ++root,
                         .count = count,
                         .shift = shift,
                         .in_place = in_place});
      }
    }
  }
  return cases;
}

TEST_P(Matrix, AllReduceIsExact) { run(reductions(Collective::kAllReduce)); }
TEST_P(Matrix, ReduceIsExact) { run(reductions(Collective::kReduce)); }
TEST_P(Matrix, ReduceScatterIsExact) { run(reductions(Collective::kReduceScatter)); }
TEST_P(Matrix, BroadcastIsExact) { run(movements(Collective::kBroadcast)); }
TEST_P(Matrix, AllGatherIsExact) { run(movements(Collective::kAllGather)); }
TEST_P(Matrix, AllToAllIsExact) { run(movements(Collective::kAllToAll)); }
TEST_P(Matrix, GatherIsExact) { run(movements(Collective::kGather)); }
TEST_P(Matrix, ScatterIsExact) { run(movements(Collective::kScatter)); }

TEST_P(Matrix, LargeOperationsAreExact) {
  std::vector<Case> cases;
  for (int what = 0; what < kCollectives; ++what) {
    for (const size_t total : {20'011UL, 300'007UL}) {
      const size_t count = total / static_cast<size_t>(ranks());  // every rank computes what all ranks hold
      cases.push_back({.what = static_cast<Collective>(what),
                       .type = total < 100'000 ? ncclBfloat16 : ncclFloat32,
                       .root = what,
                       .count = count,
                       .shift = count % 2,
                       .in_place = total > 100'000 && what != static_cast<int>(Collective::kAllToAll)});
    }
  }
  run(cases);
}

// Ranks as threads of one process, as processes, and mixed.
const Layout kLayouts[] = {
    {"1_thread", {1}},
    {"2_threads", {2}},
    {"3_threads", {3}},
    {"4_threads", {4}},
    {"5_threads", {5}},
    {"7_threads", {7}},
    {"8_threads", {8}},
    {"16_threads", {16}},
    {"2_processes", {1, 1}},
    {"3_processes", {1, 1, 1}},
    {"4_processes", {1, 1, 1, 1}},
    {"5_processes", {1, 1, 1, 1, 1}},
    {"7_processes", {1, 1, 1, 1, 1, 1, 1}},
    {"8_processes", {1, 1, 1, 1, 1, 1, 1, 1}},
    {"16_processes", std::vector<int>(16, 1)},
    {"3_mixed", {2, 1}},
    {"4_mixed", {1, 3}},
    {"5_mixed", {2, 2, 1}},
    {"7_mixed", {3, 4}},
    {"8_mixed", {4, 1, 3}},
    {"16_mixed", {8, 5, 3}},
};
INSTANTIATE_TEST_SUITE_P(Layouts, Matrix, ::testing::ValuesIn(kLayouts),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace nitinol::testing
