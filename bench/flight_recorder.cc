// What the flight recorder costs a call, in nanoseconds: noting an operation as it is issued, and the times of its
// beginning and end while it runs. Prints the median of several rounds, and their spread.
#include "diagnostics/flight_recorder.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

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
  measure("note one collective", [&] { recorder.note(launch, nullptr); });
  const auto times = recorder.times();
  uint64_t number = 0;
  measure("begin and end of one collective", [&] {
    times->begin(Signature::of(work, ++number));
    times->end(number);
  });
  measure("one reading of the clock", [&] { static_cast<void>(TimeStamp::now()); });
  return 0;
}
