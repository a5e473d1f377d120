#include "diagnostics/flight_recorder.h"

#include <algorithm>
#include <ctime>

#include "base/error.h"

namespace nitinol {
namespace {

constexpr int64_t kNanoseconds = 1'000'000'000;

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + '"';
}

/// Microseconds, as traces have them.
std::string microseconds(int64_t nanoseconds) { return formatted("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000); }

/// "12:34:56.123456789" in local time; "-" for none.
std::string clock_text(int64_t nanoseconds) {
  if (nanoseconds == 0) return "-";
  const std::time_t seconds = nanoseconds / kNanoseconds;
  std::tm local{};
  localtime_r(&seconds, &local);
  return formatted("{:02}:{:02}:{:02}.{:09}", local.tm_hour, local.tm_min, local.tm_sec, nanoseconds % kNanoseconds);
}

/// A collective as it ran: a bar in the viewer's row of its rank. One that has not ended is a bar without an end.
std::string run_json(const OperationTimes::Run& run, const FlightRecorder::About& about) {
  const std::string length =
      run.ended == 0 ? "" : formatted("\"dur\": {}, ", microseconds(std::max<int64_t>(0, run.ended - run.begun)));
  return formatted(
      "{{\"name\": {}, \"ph\": \"{}\", \"ts\": {}, {}\"pid\": {}, \"tid\": {}, \"args\": {{\"number\": {}, \"state\": "
      "\"{}\"}}}}",
      quoted(run.signature.text()), run.ended == 0 ? "B" : "X", microseconds(run.begun), length, about.pid, about.rank,
      run.signature.sequence, run.ended == 0 ? "begun" : "ended");
}

}  // namespace

void FlightRecorder::note(const Launch& launch, const void* stream) {
  const int64_t now = TimeStamp::now();
  uint64_t number = issued();
  for (const CollectiveWork& work : launch.collectives) {
    keep({Signature::of(work, ++number), work.plan, 0, stream, now});
  }
  collectives_.store(number, std::memory_order_relaxed);
  if (!launch.messages.empty()) keep({{}, {}, static_cast<uint32_t>(launch.messages.size()), stream, now});
}

uint64_t FlightRecorder::issued() const { return collectives_.load(std::memory_order_relaxed); }

FlightRecorder::Log::Words FlightRecorder::packed(const Entry& entry) {
  const Plan& plan = entry.plan;
  const uint64_t how = static_cast<uint64_t>(plan.algorithm) | static_cast<uint64_t>(plan.protocol) << 8 |
                       static_cast<uint64_t>(plan.channels) << 16 | static_cast<uint64_t>(plan.apart) << 48;
  return {entry.signature.sequence,
          entry.signature.count,
          entry.signature.call,
          how,
          plan.chunk,
          entry.messages,
          reinterpret_cast<uintptr_t>(entry.stream),
          static_cast<uint64_t>(entry.enqueued)};
}

FlightRecorder::Entry FlightRecorder::unpacked(const Log::Words& words) {
  const Plan plan{static_cast<Algorithm>(words[3] & 0xff), static_cast<Protocol>(words[3] >> 8 & 0xff),
                  static_cast<int>(words[3] >> 16 & 0xffff), words[4], (words[3] >> 48 & 1) != 0};
  return {{words[0], words[1], words[2]},
          plan,
          static_cast<uint32_t>(words[5]),
          reinterpret_cast<const void*>(words[6]),
          static_cast<int64_t>(words[7])};
}

std::vector<FlightRecorder::Entry> FlightRecorder::kept() const {
  std::vector<Entry> entries;
  const uint64_t last = log_.last();
  for (uint64_t number = last > kKept ? last - kKept + 1 : 1; number <= last; ++number) {
    if (const auto words = log_.find(number)) entries.push_back(unpacked(*words));
  }
  return entries;
}

FlightRecorder::Issued FlightRecorder::last_issued(const TimeScale& scale) const {
  const std::vector<Entry> entries = kept();
  const auto last =
      std::find_if(entries.rbegin(), entries.rend(), [](const Entry& entry) { return entry.signature.sequence != 0; });
  if (last == entries.rend()) return {};
  return {last->signature.text(), scale.nanoseconds(last->enqueued)};
}

std::string FlightRecorder::Told::name() const {
  return entry.signature.sequence != 0 ? entry.signature.text() : formatted("{} sends and receives", entry.messages);
}

std::vector<FlightRecorder::Told> FlightRecorder::entries(const About& about) const {
  std::vector<Told> all;
  for (const Entry& entry : kept()) {
    all.push_back({entry});
    all.back().entry.enqueued = about.scale.nanoseconds(entry.enqueued);
  }
  for (Told& told : all) {
    const uint64_t number = told.entry.signature.sequence;
    if (number == 0 || !about.progress_known) continue;
    if (number <= about.begun) told.state = "begun";
    if (number <= about.ended) told.state = "ended";
    // A graph that is launched again runs collectives that were noted once: numbers then mean something else.
    const auto run = std::find_if(about.runs.begin(), about.runs.end(),
                                  [&](const auto& r) { return r.signature == told.entry.signature; });
    if (run == about.runs.end()) continue;
    told.begun = run->begun;
    told.ended = run->ended;
  }
  return all;
}

std::string FlightRecorder::json(const About& about) const {
  std::string text = formatted(
      "{{\"rank\": {}, \"ranks\": {}, \"host\": {}, \"pid\": {}, \"device\": {}, \"communicator\": {}, \"failure\": "
      "{}, "
      "\"issued\": {}, \"begun\": {}, \"ended\": {}, \"progressKnown\": {}, \"traceEvents\": [",
      about.rank, about.ranks, quoted(about.host), about.pid, about.device, quoted(about.communicator),
      quoted(about.failure), issued(), about.begun, about.ended, about.progress_known);
  const char* separator = "\n";
  for (const Told& told : entries(about)) {
    const Entry& entry = told.entry;
    text += formatted(
        "{}{{\"name\": {}, \"ph\": \"i\", \"s\": \"t\", \"ts\": {}, \"pid\": {}, \"tid\": {}, \"args\": {{\"number\": "
        "{}, "
        "\"state\": \"{}\", \"stream\": \"{}\"",
        separator, quoted(told.name()), microseconds(entry.enqueued), about.pid, about.rank, entry.signature.sequence,
        told.state, entry.stream);
    if (entry.signature.sequence != 0) {
      text += formatted(", \"algorithm\": \"{}\", \"protocol\": \"{}\", \"channels\": {}, \"chunk\": {}, \"parts\": {}",
                        name_of(entry.plan.algorithm), name_of(entry.plan.protocol), entry.plan.channels,
                        entry.plan.chunk, entry.plan.apart);
    }
    if (told.begun != 0) text += formatted(", \"started\": {}", microseconds(told.begun));
    if (told.ended != 0) text += formatted(", \"finished\": {}", microseconds(told.ended));
    text += "}}";
    separator = ",\n";
  }
  for (const auto& run : about.runs) {
    text += separator + run_json(run, about);
    separator = ",\n";
  }
  return text + "]}\n";
}

std::string FlightRecorder::text(const About& about) const {
  std::string text =
      formatted("Rank {} of {} of communicator {} (host {}, pid {}, device {})\n{}\nCollectives: issued {}", about.rank,
                about.ranks, about.communicator, about.host, about.pid, about.device,
                about.failure.empty() ? "No failure" : "Failure: " + about.failure, issued());
  if (about.progress_known) text += formatted(", begun {}, ended {}", about.begun, about.ended);
  text += formatted("\n{:<8}{:<20}{:<20}{:<20}{:<16}{}\n", "state", "enqueued", "started", "finished", "stream",
                    "operation and plan");
  for (const Told& told : entries(about)) {
    const Entry& entry = told.entry;
    text += formatted("{:<8}{:<20}{:<20}{:<20}{:<16}{}", told.state, clock_text(entry.enqueued), clock_text(told.begun),
                      clock_text(told.ended), formatted("{}", entry.stream), told.name());
    if (entry.signature.sequence != 0) {
      text += formatted("; {} {}{}, {} channels, chunk {}", name_of(entry.plan.algorithm), name_of(entry.plan.protocol),
                        entry.plan.apart ? " in parts" : "", entry.plan.channels, entry.plan.chunk);
    }
    text += '\n';
  }
  return text;
}

}  // namespace nitinol
