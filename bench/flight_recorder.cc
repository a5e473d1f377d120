// What bookkeeping costs a call, in nanoseconds: the flight recorder (noting an operation as it is issued, and the
// times of its beginning and end while it runs), and what ranks compare their calls by: the tags and records of virtual
// GPUs are made of a Signature, GPUs write on the call board. Prints the median of several rounds, and their spread.
#include "diagnostics/flight_recorder.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "executor/call_board.h"
#include "executor/stream_places.h"

namespace {

using namespace nitinol;

constexpr int kRounds = 31;
constexpr int kCalls = 100'000;

template <typename Call>
void measure(const char* what, const Call& call) {
  std::vector<double> nanoseconds;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    nanoseconds.push_back(took.count() / kCalls);
  }
  std::sort(nanoseconds.begin(), nanoseconds.end());
  std::printf("%-40s median %6.1f ns, %6.1f to %6.1f\n", what, nanoseconds[kRounds / 2], nanoseconds.front(),
              nanoseconds.back());
}

}  // namespace

int main() {
  FlightRecorder recorder;
  CollectiveWork work;
  work.count = 1000;
  work.type = DataType::kFloat32;
  const Launch launch{.collectives = {work}, .messages = {}};
  Launch messages;
  for (const auto direction : {MessageWork::Direction::kSend, MessageWork::Direction::kReceive}) {
    messages.messages.push_back({.direction = direction, .peer = 1, .buffer = nullptr, .bytes = 100});
  }
  measure("note one collective", [&] { recorder.note(launch, nullptr); });
  measure("note a send and a receive", [&] { recorder.note(messages, nullptr); });
  const auto times = std::make_unique<OperationTimes>();
  uint64_t number = 0;
  measure("begin and end of one collective", [&] {
    times->begin(Signature::of(work, ++number));
    times->end(number);
  });
  std::atomic<uint32_t> tag{0};
  measure("tag of one collective", [&] { tag.store(Signature::of(work, ++number).tag(), std::memory_order_relaxed); });
  const CallBoard board(SharedMemory::create(CallBoard::bytes_for(8), false), 8);
  measure("one collective on the call board", [&] { note_calls(board, 0, launch, false); });
  measure("a send and a receive on the call board", [&] { note_calls(board, 0, messages, false); });
  StreamPlaces places[2];
  const StreamName stream{1, 0};
  measure("one launch's place in its stream", [&] { places[0].add(++number, stream); });
  measure("the same, two communicators in turns", [&] {
    ++number;
    places[number % 2].add(number, stream);
  });
  measure("one reading of the clock", [&] { static_cast<void>(TimeStamp::now()); });
  return 0;
}
