#include "diagnostics/flight_recorder.h"

#include "base/error.h"

namespace nitinol {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result + '"';
}

}  // namespace

void FlightRecorder::note(const Launch& launch, const void* stream) {
  const int64_t now =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::lock_guard lock(mutex_);
  for (const CollectiveWork& work : launch.collectives) {
    keep({Signature::of(work, ++collectives_), work.plan.algorithm, 0, stream, now});
  }
  if (!launch.messages.empty()) {
    keep({{}, Algorithm::kOneShot, static_cast<uint32_t>(launch.messages.size()), stream, now});
  }
}

std::string FlightRecorder::json(const About& about) const {
  const std::lock_guard lock(mutex_);
  std::string text = formatted(
      "{{\"rank\": {}, \"ranks\": {}, \"host\": {}, \"pid\": {}, \"device\": {}, \"communicator\": {}, \"failure\": "
      "{}, "
      "\"issued\": {}, \"begun\": {}, \"ended\": {}, \"progressKnown\": {}, \"traceEvents\": [",
      about.rank, about.ranks, quoted(about.host), about.pid, about.device, quoted(about.communicator),
      quoted(about.failure), collectives_, about.begun, about.ended, about.progress_known);
  const char* separator = "\n";
  for (uint64_t i = noted_ > kKept ? noted_ - kKept : 0; i < noted_; ++i) {
    const Entry& entry = ring_[i % kKept];
    const uint64_t number = entry.signature.sequence;
    const char* state = "issued";
    if (number != 0 && about.progress_known && number <= about.begun) state = "begun";
    if (number != 0 && about.progress_known && number <= about.ended) state = "ended";
    const std::string name = number != 0 ? entry.signature.text() : formatted("{} sends and receives", entry.messages);
    text += formatted(
        "{}{{\"name\": {}, \"ph\": \"i\", \"s\": \"t\", \"ts\": {}.{:03}, \"pid\": {}, \"tid\": {}, \"args\": "
        "{{\"number\": {}, \"state\": \"{}\", \"stream\": \"{}\", \"algorithm\": \"{}\"}}}}",
        separator, quoted(name), entry.enqueued / 1000, entry.enqueued % 1000, about.pid, about.rank, number, state,
        entry.stream, name_of(entry.algorithm));
    separator = ",\n";
  }
  return text + "]}\n";
}

}  // namespace nitinol
