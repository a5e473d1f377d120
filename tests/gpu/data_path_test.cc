// The sums of the Simple protocol without a GPU: the code that worker threads run between waiting and telling, on the
// host. Whatever the number of ranks, the size and the place of the own data, the bits are those of the rules.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "executor/cuda/ptx.h"
#include "expected_values.h"
#if !defined(__noinline__)
#define __noinline__ __attribute__((noinline))
#endif
#include "executor/cuda/kernel_shapes.h"
#include "executor/cuda/mismatch_tags.h"
#include "executor/cuda/movement.h"

namespace nitinol::cuda {

alignas(16) uint4 shared_memory[4096];

}  // namespace nitinol::cuda

namespace nitinol::gpu_testing {
namespace {

using cuda::Connections;
using cuda::Endpoint;
using cuda::Job;
using cuda::QueueView;
using cuda::Simple;

constexpr unsigned kWorkers = 3 * 32;

/// Whose kernels a type has.
constexpr DataType kernel_type(DataType type, Combine how) {
  switch (type) {
    case DataType::kUint8: return how == Combine::kSum ? DataType::kInt8 : type;
    case DataType::kUint32: return DataType::kInt32;
    case DataType::kUint64: return DataType::kInt64;
    default: return type;
  }
}

template <DataType type, Combine how>
using WorkerBase = cuda::WorkerBase<cuda::WorkerConnections<Simple>, kernel_type(type, how), cuda::combiner_for(how)>;

template <DataType type, Combine how>
class Worker : public WorkerBase<type, how> {
 public:
  explicit Worker(const Connections<Simple>& connections) : WorkerBase<type, how>(connections) {
    cuda::Work work;
    work.combine = how;
    work.is_unsigned = is_unsigned(type);
    this->combination_.begin(work);
    if constexpr (how == Combine::kSum) this->extras_.is_unsigned = work.is_unsigned;
  }

  /// Sums as after the waiting, into job.into and into `sink`. The own rank's source is no address.
  void sum(const Job& job, const std::vector<char*>& sources, char* sink) {
    for (int rank = 0; rank < this->ranks(); ++rank) {
      const bool own = rank == this->rank();
      this->sources_[rank] = Endpoint{own ? nullptr : sources[static_cast<size_t>(rank)], 1, 0};
    }
    this->sinks_[0] = Endpoint{sink, 1, 0};
    this->combine_all_taken(job, 1);
  }

  /// Pushes own data that cannot be moved by whole vectors.
  void push(const Job& job, char* sink) {
    this->sinks_[0] = Endpoint{sink, 1, 0};
    this->move_own_rest(job, this->first_unit(), 1);
  }
};

/// Memory that starts at a multiple of 16, with poison around it.
class Block {
 public:
  explicit Block(size_t bytes) : bytes_(bytes), memory_(bytes + 64, kPoison) {}
  char* get() { return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory_.data()) + 15) / 16 * 16 + 16); }
  Bytes content() { return Bytes(get(), get() + bytes_); }
  bool intact() { return is_poison(-16, 16) && is_poison(static_cast<ptrdiff_t>(bytes_ + 15) / 16 * 16, 16); }
  bool is_poison(ptrdiff_t first, size_t count) {
    const char* const at = get() + first;
    return std::all_of(at, at + count, [](char byte) { return static_cast<unsigned char>(byte) == kPoison; });
  }

 private:
  static constexpr unsigned char kPoison = 0xcd;
  size_t bytes_;
  std::vector<unsigned char> memory_;
};

template <DataType type, Combine how>
void check(int ranks, int me, size_t count, bool average, size_t shift, size_t into_shift) {
  QueueView queue;
  queue.layout = cuda::make_layout(ranks, 1, 2, 1024);
  queue.rank = me;
  const size_t bytes = count * bytes_of(type);
  std::mt19937 random(static_cast<unsigned>(count) + 7);
  std::vector<Bytes> inputs;
  std::vector<Block> blocks;
  std::vector<char*> sources;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(random_elements(type, count, false, random));
    blocks.emplace_back(bytes + shift);
  }
  for (int rank = 0; rank < ranks; ++rank) {
    sources.push_back(blocks[static_cast<size_t>(rank)].get() + (rank == me ? shift : 0));
    std::memcpy(sources.back(), inputs[static_cast<size_t>(rank)].data(), bytes);
  }
  Block output(bytes + into_shift);
  Block sink(bytes + 16);
  blockDim.x = kWorkers + 32;
  for (threadIdx.x = 0; threadIdx.x < kWorkers; ++threadIdx.x) {
    Worker<type, how> worker{Connections<Simple>(queue, 0, 0)};
    const Job job{sources[static_cast<size_t>(me)], output.get() + into_shift, static_cast<uint32_t>(bytes), false,
                  average};
    worker.sum(job, sources, sink.get());
  }
  Reduction reduction;
  reduction.combine = how;
  reduction.average = average;
  const Bytes expected = reduced(type, reduction, inputs, 0, count);
  Bytes pushed = sink.content();
  pushed.resize(bytes);
  const Bytes content = output.content();
  const bool stored = Bytes(content.begin() + static_cast<ptrdiff_t>(into_shift), content.end()) == expected &&
                      output.is_poison(0, into_shift);
  const bool right = stored && pushed == expected && output.intact();
  ASSERT_TRUE(right) << ranks << " ranks, rank " << me << ", " << count << " elements" << (average ? ", average" : "")
                     << ", own data " << shift << " bytes after a multiple of 16, result " << into_shift;
}

template <DataType type, Combine how>
void check_all() {
  for (const int ranks : {2, 3, 4, 5, 8, 9}) {
    for (const int me : {0, 1, ranks - 1}) {
      for (const size_t count : {1, 5, 160, 1000, 3072, 8192, 8233}) {
        for (const bool average : std::set{false, how == Combine::kSum}) {
          const size_t elements = 16 / bytes_of(type);
          for (const size_t shift : {size_t{0}, (1 + count % (elements - 1)) * bytes_of(type)}) {
            for (const size_t into_shift : std::set{size_t{0}, shift, (elements - 1) * bytes_of(type)}) {
              check<type, how>(ranks, me, count, average, shift, into_shift);
            }
            if (testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(DataPath, OneLookAtAPeersWordServesAllWarps) {
  using cuda::Seen;
  uint32_t word = 5;
  Seen seen{};
  EXPECT_EQ(cuda::look(&word, &seen, 2, 3), 5U);
  word = 9;
  EXPECT_EQ(cuda::look(&word, &seen, 2, 5), 5U) << "has been seen before";
  EXPECT_EQ(cuda::look(&word, &seen, 2, 6), 9U);
  word = 10;
  seen.state |= Seen::kLooking;
  EXPECT_EQ(cuda::look(&word, &seen, 2, 10), 9U) << "while another thread is looking";
  EXPECT_EQ(seen.state, Seen::kKnown | Seen::kLooking) << "which alone ends its look";
  Seen nothing{0, Seen::kLooking};
  EXPECT_EQ(cuda::look(&word, &nothing, 2, 3), 2U) << "nobody has seen anything yet";
}

TEST(DataPath, StepsMayWrapWhileAWordIsAwaited) {
  uint32_t word = 1;
  cuda::Seen seen{};
  EXPECT_EQ(cuda::look(&word, &seen, ~0U, ~0U), ~0U) << "known well enough";
  EXPECT_EQ(cuda::look(&word, &seen, ~0U, 1), 1U);
  const cuda::Awaited none{&word, &seen, ~0U, 1, -1, cuda::For::kData};
  cuda::Awaited one{&word, &seen, ~0U, 1, 3, cuda::For::kData};
  EXPECT_FALSE(none.waits());
  EXPECT_TRUE(one.waits());
  cuda::Signals signals{};
  cuda::CollectiveParameters launch;
  launch.queue.signals = &signals;
  EXPECT_TRUE(cuda::await_words<cuda::OfCollectives>({launch.queue, 0}, one));
  EXPECT_EQ(one.value, 1U);
}

/// One unit of a wire, written by all lanes that it takes.
template <class Wire>
class Unit {
 public:
  static uint32_t marked(uint32_t mark) { return mark & ~0U << (32 - 8 * Wire::kMarkedBytes); }
  Endpoint end_for(uint32_t flag, uint32_t mark) { return {slot_, flag, Wire::second_flag(flag, marked(mark))}; }
  void put(uint32_t flag, uint32_t mark) {
    for (int lane = 0; lane < kLanes; ++lane) {
      uint32_t words[Wire::kWords];
      for (int i = 0; i < Wire::kWords; ++i) words[i] = 0x01010101U * static_cast<uint32_t>(lane) + flag;
      Wire::put(end_for(flag, mark), marked(mark), 0, lane, words);
    }
  }
  bool is_ready_for(uint32_t flag, uint32_t mark) {
    bool ready = true;
    for (int lane = 0; lane < kLanes; ++lane) {
      ready = Wire::ready(Wire::fetch(slot_, 0, lane), end_for(flag, mark), lane) && ready;
    }
    return ready;
  }
  /// What a kernel that waits tells of it.
  std::optional<cuda::MismatchTags> differs_for(uint32_t flag, uint32_t mark) {
    cuda::Arrived told{};
    for (int lane = 0; lane < kLanes; ++lane) {
      const Endpoint from = end_for(flag, mark);
      const cuda::Flags flags = Wire::flags_in(Wire::fetch(slot_, 0, lane));
      if (!Wire::has_flags(lane) || flags.first != flag) continue;
      told = {Wire::mark_in(from.flag, from.second) | Wire::kMarkedBytes, Wire::mark_in(flags.first, flags.second)};
    }
    return cuda::tags_of(told);
  }

 private:
  static constexpr int kLanes = static_cast<int>(Wire::kShape.threads);
  alignas(16) char slot_[Wire::kShape.stored] = {};
};

template <class Wire>
void expect_that_only_own_data_is_taken() {
  for (const uint32_t flag : {1U, 0xffffU, 0x10000U, 0xfffffff0U}) {
    for (const uint32_t mark : {0x01234500U, 0xffffff00U, 0x00000000U, 0x80000000U}) {
      Unit<Wire> unit;
      EXPECT_FALSE(unit.is_ready_for(flag, mark)) << "nothing has come";
      EXPECT_FALSE(unit.differs_for(flag, mark));
      unit.put(flag, mark);
      EXPECT_TRUE(unit.is_ready_for(flag, mark));
      EXPECT_FALSE(unit.differs_for(flag, mark));
      EXPECT_FALSE(unit.is_ready_for(flag + 1, mark)) << "an earlier step's";
      EXPECT_FALSE(unit.differs_for(flag + 1, mark ^ 0x80000000U));
      for (const uint32_t other : {mark ^ 0x00010000U, mark ^ 0x80000000U, mark + 0x76543200U}) {
        EXPECT_FALSE(unit.is_ready_for(flag, other)) << "another call's";
        const auto tags = unit.differs_for(flag, other);
        ASSERT_TRUE(tags);
        EXPECT_TRUE(tags->expected.fits(other >> 8) && tags->found.fits(mark >> 8));
        EXPECT_FALSE(tags->expected.fits(mark >> 8) || tags->found.fits(other >> 8));
      }
    }
  }
}

TEST(DataPath, DataOfAnotherCallIsNotTaken) {
  expect_that_only_own_data_is_taken<cuda::LL8>();
  expect_that_only_own_data_is_taken<cuda::LL16>();
  expect_that_only_own_data_is_taken<cuda::LL128>();
}

TEST(DataPath, NoLineOfLL16IsTakenBeforeItsOwnFlagIsThere) {
  using cuda::LL16;
  const uint32_t words[LL16::kWords] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (int late = 0; late < 3; ++late) {
    alignas(16) char slot[LL16::kShape.stored] = {};
    alignas(16) char before[LL16::kShape.stored] = {};
    const uint32_t mark = 0x12345600;
    LL16::put({before, 8, mark}, mark, 0, 5, words);
    LL16::put({slot, 16, mark}, mark, 0, 5, words);
    EXPECT_TRUE(LL16::ready(LL16::fetch(slot, 0, 5), {slot, 16, mark}, 5));
    const size_t line = static_cast<size_t>(late) * LL16::kLinesApart + 5 * 16;
    std::memcpy(slot + line, before + line, 16);
    EXPECT_FALSE(LL16::ready(LL16::fetch(slot, 0, 5), {slot, 16, mark}, 5)) << "line " << late << " of an earlier step";
  }
}

TEST(DataPath, LL16CarriesAllWordsOfAllLanes) {
  using cuda::LL16;
  alignas(16) char slot[2 * LL16::kShape.stored] = {};
  const auto word_of = [](uint32_t unit, int lane, int word) {
    return unit << 20 | static_cast<uint32_t>(lane) << 8 | static_cast<uint32_t>(word);
  };
  for (uint32_t unit = 0; unit < 2; ++unit) {
    for (int lane = 0; lane < 32; ++lane) {
      uint32_t words[LL16::kWords];
      for (int w = 0; w < LL16::kWords; ++w) words[w] = word_of(unit, lane, w);
      LL16::put({slot, 1, 0}, 0, unit, lane, words);
    }
  }
  for (uint32_t unit = 0; unit < 2; ++unit) {
    for (int lane = 0; lane < 32; ++lane) {
      uint32_t words[LL16::kWords];
      LL16::open(LL16::fetch(slot, unit, lane), lane, words);
      for (int w = 0; w < LL16::kWords; ++w) ASSERT_EQ(words[w], word_of(unit, lane, w)) << unit << " " << lane;
    }
  }
}

/// Three ranks by LL16, one thread of rank 1, of whose peers' data nothing has come.
class LongWait : public ::testing::Test {
 protected:
  static constexpr int kRanks = 3;
  static constexpr int kMe = 1;
  static constexpr uint32_t kBytes = 40;  // of one unit, for three threads
  static constexpr uint32_t kMark = 0x12345600;
  static constexpr uint32_t kSlots = 8;
  static constexpr uint32_t kSlot = 2 * cuda::LL16::kShape.stored;

  class Worker : public cuda::WorkerBase<cuda::WorkerConnections<cuda::LL16>, DataType::kInt32, cuda::Combiner::kSum> {
   public:
    explicit Worker(const Connections<cuda::LL16>& connections)
        : cuda::WorkerBase<cuda::WorkerConnections<cuda::LL16>, DataType::kInt32, cuda::Combiner::kSum>(connections) {
      begin_call(kMark);
    }
    void await(const std::array<char*, kRanks>& slots) {
      for (int rank = 0; rank < kRanks; ++rank) {
        char* const slot = slots[static_cast<size_t>(rank)];
        slots_[rank] = {nullptr, slot};
        sources_[rank] = Endpoint{slot, 1, cuda::LL16::second_flag(1, mark_)};
      }
    }
    void add_all(const Job& job) { combine_all_taken(job, 0); }
    void take_first(const Job& job) { move_arrived_rest(job, first_unit(), 0); }
    bool aborted() const { return aborted_; }
    uint32_t mark() const { return mark_; }
  };

  LongWait() {
    launch_.queue.layout = cuda::make_layout(kRanks, 1, kSlots, kSlot);
    launch_.queue.rank = kMe;
    launch_.queue.signals = &signals_;
    blockDim.x = 32;
    for (size_t i = 0; i < own_.size(); ++i) own_[i] = 1000 * static_cast<int32_t>(i);
  }
  ~LongWait() override { cuda::at_each_look = nullptr; }

  std::array<char*, kRanks> slots() { return {slots_[0].get(), slots_[1].get(), slots_[2].get()}; }
  /// Rank `from` sends i + 10 * from as its i-th element, by the first `lanes` lanes.
  void send(int from, uint32_t mark, int lanes = 32) {
    using cuda::LL16;
    const uint32_t marked = mark & ~0U << (32 - 8 * LL16::kMarkedBytes);
    for (int lane = 0; lane < lanes; ++lane) {
      uint32_t words[LL16::kWords];
      for (int w = 0; w < LL16::kWords; ++w) {
        words[w] = LL16::offset(0, lane, w / 4) / 4 + static_cast<uint32_t>(w % 4 + 10 * from);
      }
      LL16::put({slots()[static_cast<size_t>(from)], 1, LL16::second_flag(1, marked)}, marked, 0, lane, words);
    }
  }
  /// By all threads, one after the other; whether they came to the end.
  template <class Body>
  bool run(Body&& body) {
    bool complete = true;
    for (threadIdx.x = 0; threadIdx.x < 32; ++threadIdx.x) {
      Worker worker{Connections<cuda::LL16>(launch_.queue, 0, 0)};
      worker.await(slots());
      body(worker,
           Job{reinterpret_cast<char*>(own_.data()), reinterpret_cast<char*>(result_.data()), kBytes, false, false});
      complete = complete && !worker.aborted();
    }
    return complete;
  }

  cuda::CollectiveParameters launch_;
  cuda::Signals signals_{};
  std::array<Block, kRanks> slots_{Block(kSlots * kSlot), Block(kSlots* kSlot), Block(kSlots* kSlot)};
  alignas(16) std::array<int32_t, kBytes / 4> own_{};
  alignas(16) std::array<int32_t, kBytes / 4> result_{};
};

TEST_F(LongWait, ForDataOfAllEndsWhenTheLastHasCome) {
  int looks = 0;
  cuda::at_each_look = [&] {
    if (++looks == 3) send(0, kMark, 1);
    if (looks == 6) send(2, kMark);
    if (looks == 9) send(0, kMark);
  };
  EXPECT_TRUE(run([](Worker& worker, const Job& job) { worker.add_all(job); }));
  for (int i = 0; i < static_cast<int>(kBytes / 4); ++i) {
    EXPECT_EQ(result_[static_cast<size_t>(i)], 1000 * i + i + i + 20) << i;
  }
  EXPECT_GE(looks, 9);
  EXPECT_NE(signals_.waits[cuda::Signals::kOfCollectives].for_data[0], 0U);
  EXPECT_NE(signals_.waits[cuda::Signals::kOfCollectives].for_data[2], 0U);
  EXPECT_EQ(signals_.waits[cuda::Signals::kOfCollectives].for_data[kMe], 0U);
  EXPECT_EQ(signals_.arrived[0].awaited, 0U);
}

TEST_F(LongWait, ForDataOfOneTellsOfThatOneAlone) {
  int looks = 0;
  cuda::at_each_look = [&] {
    if (++looks == 3) send(0, kMark);
  };
  EXPECT_TRUE(run([](Worker& worker, const Job& job) { worker.take_first(job); }));
  for (int i = 0; i < static_cast<int>(kBytes / 4); ++i) EXPECT_EQ(result_[static_cast<size_t>(i)], i);
  EXPECT_NE(signals_.waits[cuda::Signals::kOfCollectives].for_data[0], 0U);
  EXPECT_EQ(signals_.waits[cuda::Signals::kOfCollectives].for_data[2], 0U);
}

/// A launch of messages of three CTAs, each of two warps that move data: one receives, two send. Their threads run one
/// after the other.
class StandingLaunch : public ::testing::Test {
 protected:
  static constexpr unsigned kReceiver = 0;
  static constexpr unsigned kSender = 1;
  static constexpr unsigned kOther = 2;
  static constexpr uint32_t kAll = 7;
  using LL128 = cuda::OfMessages<cuda::LL128>;
  using Simple = cuda::OfMessages<cuda::Simple>;

  StandingLaunch() {
    for (Block& block : counters_) std::fill_n(block.get(), kLayout.counter_bytes(), 0);
    launch_.queue.layout = kLayout;
    launch_.queue.rank = 3;
    launch_.queue.signals = &signals_;
    for (size_t i = 0; i < kProtocols; ++i) {
      signals_.tables[static_cast<size_t>(cuda::Queue::kMessageLL) + i].standing = kLayout.standing(counters_[i].get());
    }
  }
  ~StandingLaunch() override {
    threadIdx.x = threadIdx.y = blockIdx.x = 0;
    blockDim.y = 1;
    cuda::at_each_look = nullptr;
  }

  /// The first thread of a warp.
  template <class Wire>
  cuda::Standing<Wire> warp(unsigned cta, unsigned which) {
    launch_.queue.counters = counters_[static_cast<size_t>(Wire::kProtocol)].get();
    blockDim.x = 64 + (Wire::kCounted ? 32 : 0);
    blockDim.y = Wire::kInRows ? cuda::kMostRows : 1;
    blockIdx.x = cta / blockDim.y;
    threadIdx.y = cta % blockDim.y;
    threadIdx.x = which * 32;
    return cuda::Standing<Wire>(launch_.queue);
  }
  template <class Wire>
  void begin(unsigned cta) {
    for (const unsigned which : {0U, 1U}) warp<Wire>(cta, which).begin();
    warp<Wire>(cta, 0).count(kLanes);
  }
  template <class Wire>
  void wait(unsigned cta, unsigned which) {
    warp<Wire>(cta, which).wait(cta == kReceiver);
  }
  template <class Wire>
  void end(unsigned cta) {
    for (const unsigned which : {0U, 1U}) warp<Wire>(cta, which).end();
  }
  template <class Wire>
  uint32_t protocols() {
    return warp<Wire>(kReceiver, 0).protocols();
  }
  template <class Wire>
  void has_begun_as_a_whole() {
    for (int repeat = 0; repeat < 3; ++repeat) {
      for (const unsigned lane : {kReceiver, kSender}) begin<Wire>(lane);
      for (const unsigned which : {0U, 1U}) wait<Wire>(kReceiver, which);
      end<Wire>(kSender);
      EXPECT_EQ(protocols<Wire>(), 0U) << "the third lane has not begun";
      begin<Wire>(kOther);
      EXPECT_EQ(protocols<Wire>(), 3U) << "it moves data";
      end<Wire>(kOther);
      EXPECT_EQ(protocols<Wire>(), kAll);
      end<Wire>(kReceiver);
    }
  }
  static void pass(uint64_t milliseconds) { cuda::clock += milliseconds << 20; }
  /// What the host is told by a wait that lasts for so many milliseconds and is aborted then.
  template <class Wire>
  uint32_t told_after(uint32_t milliseconds, int peer) {
    const uint32_t word = 0;
    cuda::Seen seen{};
    cuda::Awaited one{&word, &seen, 0, 1, peer, cuda::For::kData};
    cuda::clock = 0;
    cuda::at_each_look = [&] {
      if (cuda::clock > uint64_t{milliseconds} << 20) signals_.aborted = 1;
      cuda::clock += uint64_t{1} << 20;
    };
    static_cast<void>(warp<Wire>(kReceiver, 0));
    EXPECT_FALSE(cuda::await_words<Wire>({launch_.queue, 0}, one));
    signals_.aborted = 0;
    const cuda::Signals::Waits& waits = signals_.waits[cuda::Signals::of_messages(Wire::kProtocol)];
    EXPECT_EQ(waits.for_room[peer], 0U);
    return waits.for_data[peer];
  }

  static constexpr int kLanes = 3;

  const cuda::QueueLayout kLayout = cuda::make_layout(10, 2, 4, 1024);
  cuda::FewMessages launch_;
  cuda::Signals signals_{};
  std::array<Block, kProtocols> counters_{Block(kLayout.counter_bytes()), Block(kLayout.counter_bytes()),
                                          Block(kLayout.counter_bytes())};
};

TEST_F(StandingLaunch, IsOneOfWhichAllWarpsWaitOrAreDone) {
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (const unsigned cta : {kReceiver, kSender, kOther}) begin<Simple>(cta);
    for (const unsigned cta : {kSender, kOther}) end<Simple>(cta);
    wait<Simple>(kReceiver, 0);
    EXPECT_EQ(protocols<Simple>(), 3U) << "its other warp moves data";
    warp<Simple>(kReceiver, 1).end();
    EXPECT_EQ(protocols<Simple>(), kAll);
    pass(40);
    EXPECT_EQ(protocols<Simple>(), kAll) << "it may still wait";
    pass(40);
    EXPECT_EQ(protocols<Simple>(), 3U) << "it would have told so again";
    wait<Simple>(kReceiver, 0);
    EXPECT_EQ(protocols<Simple>(), kAll);
    warp<Simple>(kReceiver, 0).end();
  }
}

TEST_F(StandingLaunch, HasBegunAsAWhole) { has_begun_as_a_whole<Simple>(); }

/// The third lane is in a CTA of its own.
TEST_F(StandingLaunch, HasARowOfItsOwnForEachLane) { has_begun_as_a_whole<cuda::InRows<cuda::Simple>>(); }

TEST_F(StandingLaunch, NeedsOneWarpThatWaitsOfThoseThatReceiveByLines) {
  for (const unsigned cta : {kReceiver, kSender, kOther}) begin<LL128>(cta);
  for (const unsigned cta : {kSender, kOther}) end<LL128>(cta);
  EXPECT_EQ(protocols<LL128>(), 5U);
  wait<LL128>(kReceiver, 1);
  EXPECT_EQ(protocols<LL128>(), kAll) << "the other may wait for this one";
  warp<LL128>(kSender, 0).begin();
  wait<LL128>(kSender, 1);
  EXPECT_EQ(protocols<LL128>(), 5U) << "those that send do not";
  wait<LL128>(kSender, 0);
  EXPECT_EQ(protocols<LL128>(), kAll);
}

TEST_F(StandingLaunch, BesideOneByAnotherProtocolTellsWhetherThatStandsToo) {
  begin<LL128>(kOther);  // of one beside which there is none: it counts apart
  end<LL128>(kOther);
  launch_.beside = 1U << static_cast<int>(Protocol::kLL128) | 1U << static_cast<int>(Protocol::kSimple);
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (const unsigned cta : {kReceiver, kSender, kOther}) begin<Simple>(cta);
    for (const unsigned cta : {kSender, kOther}) end<Simple>(cta);
    for (const unsigned which : {0U, 1U}) wait<Simple>(kReceiver, which);
    EXPECT_EQ(protocols<Simple>(), 5U) << "that by LL128 has not begun";
    for (const unsigned cta : {kReceiver, kSender, kOther}) begin<LL128>(cta);
    EXPECT_EQ(protocols<Simple>(), 5U);
    for (const unsigned cta : {kSender, kOther}) end<LL128>(cta);
    wait<LL128>(kReceiver, 0);
    EXPECT_EQ(protocols<LL128>(), kAll);
    EXPECT_EQ(protocols<Simple>(), kAll);
    end<LL128>(kReceiver);
    EXPECT_EQ(protocols<Simple>(), kAll) << "that by LL128 is through";
    end<Simple>(kReceiver);
  }
}

TEST_F(StandingLaunch, IsToldByLongWaitsWhileTheyLast) {
  constexpr uint32_t kTime = (1U << cuda::Signals::kTimeBits) - 1;
  for (const unsigned cta : {kReceiver, kSender, kOther}) begin<LL128>(cta);
  for (const unsigned cta : {kSender, kOther}) end<LL128>(cta);
  const uint32_t told = told_after<LL128>(150, 5);
  EXPECT_NEAR(told & kTime, 150, 5);
  EXPECT_EQ(told >> cuda::Signals::kTimeBits, kAll);
  pass(100);
  EXPECT_EQ(protocols<LL128>(), 5U) << "the wait is over";
  EXPECT_EQ(told_after<LL128>(20, 5) >> cuda::Signals::kTimeBits, 0U) << "nobody looks at the marks so soon";
  warp<LL128>(kOther, 1).begin();
  EXPECT_EQ(told_after<LL128>(150, 5) >> cuda::Signals::kTimeBits, 5U);
}

TEST_F(LongWait, TellsOfDataOfAnotherCallAndEndsWithAnAbort) {
  constexpr uint32_t kOther = kMark ^ 0x01000000;
  send(0, kOther);
  send(2, kMark);
  int looks = 0;
  cuda::at_each_look = [&] {
    if (++looks == 5) signals_.aborted = 1;
  };
  EXPECT_FALSE(run([](Worker& worker, const Job& job) { worker.add_all(job); }));
  const auto tags = cuda::tags_of(signals_.arrived[0]);
  ASSERT_TRUE(tags);
  EXPECT_TRUE(tags->expected.fits(kMark >> 8) && tags->found.fits(kOther >> 8));
  EXPECT_FALSE(cuda::tags_of(signals_.arrived[2]));
  EXPECT_EQ(result_, (decltype(result_){}));
}

// Least and greatest of floats depend on the GPU's instructions for NaN and zeros.
TEST(DataPath, SumsOfFloatsHaveTheBitsOfTheRules) {
  check_all<DataType::kFloat32, Combine::kSum>();
  check_all<DataType::kFloat64, Combine::kSum>();
  check_all<DataType::kFloat32, Combine::kProduct>();
  check_all<DataType::kFloat64, Combine::kMin>();
}
TEST(DataPath, SumsOfSmallFloatsRoundOnce) {
  check_all<DataType::kBfloat16, Combine::kSum>();
  check_all<DataType::kFloat16, Combine::kSum>();
  check_all<DataType::kFloat8E4m3, Combine::kSum>();
  check_all<DataType::kFloat8E5m2, Combine::kSum>();
}
TEST(DataPath, IntegersOfEverySize) {
  check_all<DataType::kInt8, Combine::kSum>();
  check_all<DataType::kUint32, Combine::kMax>();
  check_all<DataType::kInt64, Combine::kMin>();
  check_all<DataType::kInt8, Combine::kMax>();
  check_all<DataType::kUint8, Combine::kProduct>();
  check_all<DataType::kUint8, Combine::kSum>();
  check_all<DataType::kUint8, Combine::kMin>();
  check_all<DataType::kUint32, Combine::kSum>();
  check_all<DataType::kUint64, Combine::kMax>();
  check_all<DataType::kUint64, Combine::kSum>();
  check_all<DataType::kInt32, Combine::kSum>();
}

/// All grains, from each to each address that is a multiple of them.
template <cuda::Bounds kBounds>
void check_moves_of_grains() {
  using Wire = cuda::LL128;
  using Memory = cuda::UserMemory<Wire>;
  constexpr uint32_t kGrain = cuda::grain_of(kBounds);
  std::mt19937 random(5);
  for (const uint32_t grains : {1, 2, 3, 7, 8, 9, 15, 16, 17, 479, 480, 481, 959, 961, 1200, 1919}) {
    const uint32_t bytes = grains * kGrain;
    const Bytes input = random_elements(DataType::kUint8, bytes, false, random);
    for (size_t from = 0; from < 16; from += kGrain) {
      for (size_t to = 0; to < 16; to += kGrain) {
        Block own(bytes + from);
        Block moved(bytes + to);
        std::memcpy(own.get() + from, input.data(), bytes);
        for (uint32_t unit = 0; unit * Wire::kShape.bytes < bytes; ++unit) {
          for (int lane = 0; lane < 32; ++lane) {
            uint32_t words[Wire::kWords];
            Memory::load_pieces<kBounds>(own.get() + from, bytes, unit, lane, words);
            Memory::store_pieces<kBounds>(moved.get() + to, bytes, unit, lane, words);
          }
        }
        const Bytes all = moved.content();
        const bool right = Bytes(all.begin() + static_cast<ptrdiff_t>(to), all.end()) == input && moved.intact();
        const bool nothing_else = moved.is_poison(0, to) && moved.is_poison(static_cast<ptrdiff_t>(to + bytes), 16);
        ASSERT_TRUE(right && nothing_else) << bytes << " bytes from " << from << " to " << to;
      }
    }
  }
}

TEST(DataPath, PiecesThatCutWordsAreMovedFromAnyToAnyAddress) {
  check_moves_of_grains<cuda::Bounds::kHalves>();
  check_moves_of_grains<cuda::Bounds::kBytes>();
}

TEST(DataPath, OwnDataIsPushedFromAnyAddress) {
  std::mt19937 random(3);
  QueueView queue;
  queue.layout = cuda::make_layout(2, 1, 2, 1024);
  blockDim.x = kWorkers + 32;
  for (size_t shift = 1; shift < 16; ++shift) {
    for (const size_t count : {1, 15, 16, 31, 32, 33, 1000, 6159, 6160, 20000}) {
      const Bytes input = random_elements(DataType::kUint8, count, false, random);
      Block own(count + shift);
      Block sink(count + 16);
      std::memcpy(own.get() + shift, input.data(), count);
      for (threadIdx.x = 0; threadIdx.x < kWorkers; ++threadIdx.x) {
        Worker<DataType::kUint8, Combine::kSum> worker{Connections<Simple>(queue, 0, 0)};
        worker.push(Job{own.get() + shift, nullptr, static_cast<uint32_t>(count), false, false}, sink.get());
      }
      Bytes pushed = sink.content();
      pushed.resize(count);
      ASSERT_EQ(pushed, input) << count << " bytes, " << shift << " after a multiple of 16";
      ASSERT_TRUE(sink.intact());
    }
  }
}

}  // namespace
}  // namespace nitinol::gpu_testing
