// What a peer may write into the memory that it shares with this rank: queues, slots, its own header and records. A
// rank then runs an operation on it, as far as what is there lets it get. Also whole files offered as a peer's arena.
// LIBRARIES: nitinol_executor_cpu
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "executor/cpu/directory.h"
#include "executor/cpu/kernel.h"
#include "executor/cpu/watch.h"

namespace {

using namespace nitinol;
using namespace nitinol::cpu;

std::atomic<uint32_t>* stop_word = nullptr;

}  // namespace

// A rank calls this before it waits: nothing will come, so it is to stop.
extern "C" void vgpuAboutToBlock() {
  if (stop_word != nullptr) stop_word->store(1);
}

namespace {

class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::span<const uint8_t> take(size_t most) {
    const auto part = bytes_.first(std::min(most, bytes_.size()));
    bytes_ = bytes_.subspan(part.size());
    return part;
  }
  uint32_t number(size_t bytes) {
    uint32_t value = 0;
    for (const uint8_t byte : take(bytes)) value = value << 8 | byte;
    return value;
  }

 private:
  std::span<const uint8_t> bytes_;
};

class NoExchange : public HandleExchange {
 public:
  void offer(uint64_t, std::function<MemoryHandle()>) override {}
  void withdraw(uint64_t) override {}
  MemoryHandle fetch(int, uint64_t) override { return {}; }
};

/// Ranks of one process, so that they find each other's arenas.
class Team {
 public:
  explicit Team(int ranks) {
    static uint64_t teams = 0;
    identity_ = {++teams, 5};
    std::vector<Peer> peers(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) peers[static_cast<size_t>(rank)].rank = rank;
    for (int rank = 0; rank < ranks; ++rank) {
      ExecutorSetup setup{};
      setup.rank = rank;
      setup.peers = peers;
      setup.identity = identity_;
      setup.handles = &exchange_;
      setup.buffer_bytes = 16384;
      setup.timeout = std::chrono::milliseconds(1);
      setup.failed = [](ncclResult_t, const std::string&) {};
      engines_.push_back(std::make_shared<Engine>(std::move(setup)));
    }
  }
  ~Team() {
    for (const auto& engine : engines_) engine->close();
  }
  Engine& engine() { return *engines_.front(); }
  int ranks() const { return static_cast<int>(engines_.size()); }
  std::shared_ptr<Arena> arena(int rank) {
    return find_arena({identity_, rank}, std::chrono::steady_clock::now() + std::chrono::seconds(1));
  }

 private:
  std::array<uint64_t, 2> identity_{};
  NoExchange exchange_;
  std::vector<std::shared_ptr<Engine>> engines_;
};

void overwrite(void* begin, size_t size, Input& input) {
  const size_t offset = input.number(2) % size;
  const auto bytes = input.take(std::min<size_t>(1 + input.number(1), size - offset));
  if (!bytes.empty()) std::memcpy(static_cast<uint8_t*>(begin) + offset, bytes.data(), bytes.size());
}

/// A slot as the rank expects it, but for its size and what it says of the slots taken.
void fill_slot(Connection& connection, const Signature& expected, Lane lane, Input& input) {
  const uint32_t index = input.number(1) % kSlots;
  Slot& slot = connection.slots[index];
  slot.bytes = input.number(4);
  const uint32_t tag = lane == Lane::kCollectives ? expected.tag() : MessageSignature{.bytes = expected.count}.tag();
  slot.tag_and_consumed = tag << 8 | input.number(1);
  slot.sequence.store(index + 1);
}

void write_as_peers(Team& team, const Signature& expected, Input& input) {
  const auto own = team.arena(0);
  while (!input.empty()) {
    const uint32_t what = input.number(1);
    const int peer = 1 + static_cast<int>(what >> 4) % (team.ranks() - 1);
    const Lane lane = (what & 8) != 0 ? Lane::kMessages : Lane::kCollectives;
    const auto theirs = team.arena(peer);
    switch (what % 5) {
      case 0: overwrite(&own->from(peer, lane), sizeof(Connection), input); break;
      case 1: fill_slot(own->from(peer, lane), expected, lane, input); break;
      case 2: overwrite(&theirs->header(), sizeof(ArenaHeader), input); break;
      case 3: overwrite(&theirs->from(0, lane), sizeof(Connection), input); break;
      case 4: theirs->header().calls.begin({input.number(1), input.number(4), uint64_t{input.number(4)} << 8}); break;
    }
  }
}

Launch make_launch(Input& input, int ranks, std::vector<std::byte>& data) {
  Launch launch;
  const uint32_t what = input.number(1);
  const size_t count = input.number(2);
  data.assign((count + 1) * sizeof(double) * static_cast<size_t>(ranks), std::byte{1});
  if (what % 9 == 8) {
    for (int peer = 0; peer < ranks; ++peer) {
      for (const auto direction : {MessageWork::Direction::kSend, MessageWork::Direction::kReceive}) {
        launch.messages.push_back({direction, peer, data.data(), count});
      }
    }
    return launch;
  }
  CollectiveWork work;
  work.what = static_cast<Collective>(what % 9);
  work.input = data.data();
  work.output = data.data();
  work.count = count;
  work.type = work.stated = reduces(work.what) ? DataType::kFloat32 : DataType::kUint8;
  work.root = static_cast<int>(input.number(1)) % ranks;
  work.plan.algorithm = static_cast<Algorithm>(input.number(1) % kAlgorithms);
  launch.collectives.push_back(work);
  return launch;
}

void fuzz_operation(Input input) {
  Team team(2 + static_cast<int>(input.number(1) % 3));
  std::vector<std::byte> data;
  Launch launch = make_launch(input, team.ranks(), data);
  Signature expected{1, launch.messages.empty() ? 0 : launch.messages.front().bytes, 0};
  if (!launch.collectives.empty()) expected = Signature::of(launch.collectives.front(), 1);
  team.engine().rank().prepare(launch);
  write_as_peers(team, expected, input);
  const auto own = team.arena(0);
  stop_word = &own->header().aborted;
  std::unique_ptr<Kernel> kernel = team.engine().make_kernel(launch);
  kernel->run();
  Engine::recycle(std::move(kernel));
  stop_word = nullptr;
  own->header().waits_in.store(1);
  CircleSearch circles(0, team.ranks());
  const auto known = [&](int rank) -> const Arena* { return rank < 2 ? team.arena(rank).get() : nullptr; };
  const auto reach = [&](int rank) { return team.arena(rank); };
  static_cast<void>(circles.labels_of_others(known, reach, [] { return false; }));
  static_cast<void>(circles.reason_of(1, known));
  own->header().settled.store(1);
  static_cast<void>(team.engine().rank().difference_in_the_end());
  for (int look = 0; look < 4; ++look) {
    static_cast<void>(circles.look(known, reach));
    for (int rank = 0; rank < team.ranks(); ++rank) team.arena(rank)->header().looks.fetch_add(1);
  }
  for (int peer = 1; peer < team.ranks(); ++peer) {
    static_cast<void>(describe_doings(peer, *team.arena(peer), true));
    team.engine().rank().report_mismatch(peer);
  }
}

/// A file of a peer's that is to be its arena.
void fuzz_file(Input input) {
  const Geometry geometry = Geometry::of(2, 16384);
  MemoryHandle handle{UniqueFd(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING)), input.number(4)};
  const size_t size = (input.number(1) % 2 == 0) ? geometry.total_bytes() : input.number(2);
  const bool sealed = input.number(1) % 4 != 0;
  if (!handle.fd || ftruncate(handle.fd.get(), static_cast<off_t>(size)) != 0) return;
  const auto bytes = input.take(8192);
  if (pwrite(handle.fd.get(), bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) return;
  if (sealed) fcntl(handle.fd.get(), F_ADD_SEALS, F_SEAL_SHRINK);
  try {
    const auto arena = Arena::map(geometry, 1, {0, 0}, handle);
    static_cast<void>(describe_doings(1, *arena, true));
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Input input(std::span(data, size).subspan(1));
  if (data[0] % 8 == 7) {
    fuzz_file(input);
  } else {
    fuzz_operation(input);
  }
  return 0;
}
