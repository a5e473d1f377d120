#include "diagnostics/flight_recorder.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"

namespace nitinol {
namespace {

constexpr int64_t kNanoseconds = 1'000'000'000;

/// As JSON has it. Names of hosts may hold any bytes: what is no UTF-8 is replaced, and sentences stay on one line.
std::string quoted(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return nlohmann::json(std::move(text)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
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

const char* word_for_direction(bool sends) { return sends ? "send" : "receive"; }

/// What ran: a bar in the viewer's row of its rank. What has not ended is a bar without an end.
std::string bar_json(const std::string& name, uint64_t number, int64_t begun, int64_t ended,
                     const FlightRecorder::About& about) {
  const std::string length =
      ended == 0 ? "" : formatted("\"dur\": {}, ", microseconds(std::max<int64_t>(0, ended - begun)));
  return formatted(
      "{{\"name\": {}, \"ph\": \"{}\", \"ts\": {}, {}\"pid\": {}, \"tid\": {}, \"args\": {{\"number\": {}, \"state\": "
      "\"{}\"}}}}",
      quoted(name), ended == 0 ? "B" : "X", microseconds(begun), length, about.pid, about.rank, number,
      ended == 0 ? "begun" : "ended");
}

std::string awaited_json(const FlightRecorder::About& about) {
  std::string text;
  for (const PeerMessage& each : about.awaited) {
    text +=
        formatted("{}{{\"name\": {}, \"number\": {}, \"direction\": \"{}\", \"peer\": {}}}", text.empty() ? "" : ", ",
                  quoted(each.text()), each.message.number, word_for_direction(each.sends), each.peer);
  }
  return text;
}

}  // namespace

void FlightRecorder::note(const Launch& launch, const void* stream, bool captured) {
  const int64_t now = TimeStamp::now();
  const uint64_t number_of_launch = captured ? 0 : launches_.load(std::memory_order_relaxed) + 1;
  uint64_t number = issued();
  for (const CollectiveWork& work : launch.collectives) {
    Entry entry = entry_of(work, captured ? 0 : ++number);
    entry.captured = captured;
    entry.launch = number_of_launch;
    entry.stream = stream;
    entry.enqueued = now;
    collectives_.add(collectives_.last() + 1, packed(entry));
    if (!captured) last_issued_.add(last_issued_.last() + 1, packed(entry));
  }
  for (const MessageWork& work : launch.messages) {
    Entry entry = entry_of(work, captured || work.bytes == 0 ? 0 : ++count_of(work));
    entry.captured = captured;
    entry.launch = number_of_launch;
    entry.stream = stream;
    entry.enqueued = now;
    Messages& log = messages();
    log.add(log.last() + 1, packed_message(entry));
  }
  const size_t operations = launch.collectives.size() + launch.messages.size();
  if (captured) {
    captured_.store(captured_.load(std::memory_order_relaxed) + operations, std::memory_order_relaxed);
    return;
  }
  issued_.store(number, std::memory_order_relaxed);
  messages_issued_.store(messages_issued_.load(std::memory_order_relaxed) + launch.messages.size(),
                         std::memory_order_relaxed);
  launches_.store(number_of_launch, std::memory_order_relaxed);
}

FlightRecorder::Messages& FlightRecorder::messages() {
  if (!owned_messages_) {
    owned_messages_ = std::make_unique<Messages>();
    messages_.store(owned_messages_.get(), std::memory_order_release);
  }
  return *owned_messages_;
}

uint64_t& FlightRecorder::count_of(const MessageWork& work) {
  const auto peer = static_cast<size_t>(work.peer);
  if (peer >= numbers_.size()) numbers_.resize(peer + 1);
  return numbers_[peer][static_cast<size_t>(work.direction)];
}

FlightRecorder::Entry FlightRecorder::entry_of(const CollectiveWork& work, uint64_t sequence) {
  Entry entry;
  entry.collective = Signature::of(work, sequence);
  entry.plan = work.plan;
  return entry;
}

FlightRecorder::Entry FlightRecorder::entry_of(const MessageWork& work, uint64_t number) {
  Entry entry;
  entry.is_message = true;
  entry.sends = work.is_send();
  entry.peer = work.peer;
  entry.message = {number, work.bytes, work.stated};
  return entry;
}

/// Null: nothing is set up any more.
void FlightRecorder::set_up(const Launch* launch) {
  std::vector<Entry> entries;
  if (launch != nullptr) {
    uint64_t number = issued();
    for (const CollectiveWork& work : launch->collectives) entries.push_back(entry_of(work, ++number));
    std::map<std::pair<int, MessageWork::Direction>, uint64_t> more;
    for (const MessageWork& work : launch->messages) {
      entries.push_back(entry_of(work, work.bytes == 0 ? 0 : count_of(work) + ++more[{work.peer, work.direction}]));
    }
    for (Entry& entry : entries) {
      entry.in_setup = true;
      entry.launch = launches_.load(std::memory_order_relaxed) + 1;
      entry.enqueued = TimeStamp::now();
    }
  }
  const std::lock_guard lock(set_up_mutex_);
  being_set_up_ = std::move(entries);
}

FlightRecorder::Collectives::Words FlightRecorder::packed(const Entry& entry) {
  const Plan& plan = entry.plan;
  const uint64_t how = static_cast<uint64_t>(plan.algorithm) | static_cast<uint64_t>(plan.protocol) << 8 |
                       static_cast<uint64_t>(plan.channels) << 16 | static_cast<uint64_t>(plan.apart) << 48 |
                       static_cast<uint64_t>(entry.captured) << 49;
  return {entry.collective.sequence,
          entry.collective.count,
          entry.collective.call,
          how,
          plan.chunk,
          entry.launch,
          reinterpret_cast<uintptr_t>(entry.stream),
          static_cast<uint64_t>(entry.enqueued)};
}

FlightRecorder::Entry FlightRecorder::unpacked(const Collectives::Words& words) {
  Entry entry;
  entry.collective = {words[0], words[1], words[2]};
  entry.plan = {static_cast<Algorithm>(words[3] & 0xff), static_cast<Protocol>(words[3] >> 8 & 0xff),
                static_cast<int>(words[3] >> 16 & 0xffff), words[4], (words[3] >> 48 & 1) != 0};
  entry.captured = (words[3] >> 49 & 1) != 0;
  entry.launch = words[5];
  entry.stream = reinterpret_cast<const void*>(words[6]);
  entry.enqueued = static_cast<int64_t>(words[7]);
  return entry;
}

FlightRecorder::Messages::Words FlightRecorder::packed_message(const Entry& entry) {
  const uint64_t how = static_cast<uint32_t>(entry.peer) | static_cast<uint64_t>(entry.sends) << 32 |
                       static_cast<uint64_t>(entry.captured) << 33;
  return {entry.message.number,
          entry.message.packed(),
          how,
          entry.launch,
          reinterpret_cast<uintptr_t>(entry.stream),
          static_cast<uint64_t>(entry.enqueued)};
}

FlightRecorder::Entry FlightRecorder::unpacked_message(const Messages::Words& words) {
  Entry entry;
  entry.is_message = true;
  entry.message = MessageSignature::unpacked(words[0], words[1]);
  entry.peer = static_cast<int>(words[2] & 0xffffffff);
  entry.sends = (words[2] >> 32 & 1) != 0;
  entry.captured = (words[2] >> 33 & 1) != 0;
  entry.launch = words[3];
  entry.stream = reinterpret_cast<const void*>(words[4]);
  entry.enqueued = static_cast<int64_t>(words[5]);
  return entry;
}

std::vector<FlightRecorder::Entry> FlightRecorder::kept() const {
  std::vector<Entry> entries;
  const auto add_all = [&entries](const auto& log, const auto& unpack) {
    const uint64_t last = log.last();
    for (uint64_t number = last > kKept ? last - kKept + 1 : 1; number <= last; ++number) {
      if (const auto words = log.find(number)) entries.push_back(unpack(*words));
    }
  };
  add_all(collectives_, unpacked);
  if (const Messages* const log = messages_.load(std::memory_order_acquire)) add_all(*log, unpacked_message);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& one, const Entry& other) { return one.enqueued < other.enqueued; });
  const std::lock_guard lock(set_up_mutex_);
  entries.insert(entries.end(), being_set_up_.begin(), being_set_up_.end());
  return entries;
}

/// As last_issued.
std::optional<FlightRecorder::Entry> FlightRecorder::last_entry(uint64_t number) const {
  const auto counts = [&](const auto& words) {
    const uint64_t sequence = words ? unpacked(*words).collective.sequence : 0;
    return sequence != 0 && sequence <= number;
  };
  const uint64_t last = collectives_.last();
  for (uint64_t i = 0; i < std::min<uint64_t>(last, kKept); ++i) {
    if (const auto words = collectives_.find(last - i); counts(words)) return unpacked(*words);
  }
  const auto words = last_issued_.find(last_issued_.last());
  return counts(words) ? std::optional(unpacked(*words)) : std::nullopt;
}

FlightRecorder::Issued FlightRecorder::last_issued(const TimeScale& scale, uint64_t number) const {
  const auto last = last_entry(number);
  return last ? Issued{last->name(), scale.nanoseconds(last->enqueued)} : Issued{};
}

/// `numbers_hold`: the numbers of what has begun and ended are those of the entries. `runs`: its launch is known to
/// have begun, and not to have ended.
const char* FlightRecorder::state_of(const Entry& entry, const About& about, bool numbers_hold, bool runs) {
  if (entry.in_setup) return "setup";
  if (entry.captured) return "captured";
  if (about.launches_through && entry.launch <= *about.launches_through) return "ended";
  if (!about.launches_through && about.idle.value_or(false) && entry.enqueued < about.asked) return "ended";
  if (!entry.is_message && about.progress_known && numbers_hold) {
    if (entry.number() <= about.ended) return "ended";
    if (about.counts_runs) return entry.number() <= about.begun ? "begun" : "issued";
  }
  if (!about.launches_through) return "unknown";
  return runs ? "begun" : "issued";
}

std::vector<FlightRecorder::Told> FlightRecorder::entries(const About& about) const {
  // A graph that is launched again runs collectives that were noted once.
  const bool numbers_hold = !about.counts_runs || captured_.load(std::memory_order_relaxed) == 0;
  std::vector<Told> all;
  for (const Entry& entry : kept()) {
    const auto launch = std::find_if(about.launches.begin(), about.launches.end(), [&](const LaunchRun& each) {
      return entry.launch != 0 && each.launch == entry.launch;
    });
    const bool has_launch = launch != about.launches.end();
    const bool runs = (has_launch && launch->ended == 0) || entry.launch <= about.launches_begun.value_or(0);
    Told told{entry, state_of(entry, about, numbers_hold, runs)};
    told.entry.enqueued = about.scale.nanoseconds(entry.enqueued);
    const auto run = std::find_if(about.runs.begin(), about.runs.end(),
                                  [&](const auto& r) { return r.signature == entry.collective; });
    if (!entry.is_message && entry.number() != 0 && numbers_hold && run != about.runs.end()) {
      told.begun = run->begun;
      told.ended = run->ended;
    }
    if (has_launch) {  // clocks differ by some microseconds
      told.begun = std::max(launch->begun, told.entry.enqueued);
      told.ended = launch->ended == 0 ? 0 : std::max(launch->ended, told.begun);
    }
    all.push_back(std::move(told));
  }
  return all;
}

/// Nothing if that is not known.
std::optional<bool> FlightRecorder::all_ended(const About& about, const std::vector<Told>& all) const {
  if (!all.empty() && all.back().entry.in_setup) return false;
  const uint64_t launches = launches_.load(std::memory_order_relaxed);
  if (launches == 0 && captured_.load(std::memory_order_relaxed) == 0) return true;
  if (about.launches_through) return *about.launches_through >= launches;
  const auto is_later = [&](const Told& told) { return told.entry.enqueued >= about.scale.nanoseconds(about.asked); };
  if (about.idle.value_or(false) && std::any_of(all.begin(), all.end(), is_later)) return std::nullopt;
  return about.idle;
}

/// Whether what is said to be issued is known not to have begun.
bool FlightRecorder::begins_known(const About& about) {
  return about.counts_runs || about.launches_begun || !about.launches.empty();
}

std::string FlightRecorder::head_json(const About& about, std::optional<bool> idle) const {
  return formatted(
      "\"rank\": {}, \"ranks\": {}, \"host\": {}, \"pid\": {}, \"device\": {}, \"communicator\": {}, "
      "\"failure\": {}, \"issued\": {}, \"messages\": {}, \"captured\": {}, \"begun\": {}, \"ended\": {}, "
      "\"progressKnown\": {}, \"idle\": {}, \"launchesThrough\": {}, \"timesKnown\": {}, \"beginsKnown\": {}, "
      "\"awaited\": [{}]",
      about.rank, about.ranks, quoted(about.host), about.pid, about.device, quoted(about.communicator),
      quoted(about.failure), issued(), messages_issued_.load(std::memory_order_relaxed),
      captured_.load(std::memory_order_relaxed), about.begun, about.ended, about.progress_known,
      idle ? (*idle ? "true" : "false") : "null",
      about.launches_through ? std::to_string(*about.launches_through) : "null", about.times_known, begins_known(about),
      awaited_json(about));
}

std::string FlightRecorder::json_of(const Told& told, const About& about) {
  const Entry& entry = told.entry;
  std::string text = formatted(
      "{{\"name\": {}, \"ph\": \"i\", \"s\": \"t\", \"ts\": {}, \"pid\": {}, \"tid\": {}, \"args\": "
      "{{\"number\": {}, \"state\": \"{}\", \"launch\": {}, \"stream\": \"{}\"",
      quoted(entry.name()), microseconds(entry.enqueued), about.pid, about.rank, entry.number(), told.state,
      entry.launch, entry.stream);
  if (entry.is_message) {
    text += formatted(", \"direction\": \"{}\", \"peer\": {}, \"bytes\": {}", word_for_direction(entry.sends),
                      entry.peer, entry.message.bytes);
  } else {
    text += formatted(
        ", \"algorithm\": \"{}\", \"protocol\": \"{}\", \"channels\": {}, \"chunk\": {}, "
        "\"parts\": {}",
        name_of(entry.plan.algorithm), name_of(entry.plan.protocol), entry.plan.channels, entry.plan.chunk,
        entry.plan.apart);
  }
  if (told.begun != 0) text += formatted(", \"started\": {}", microseconds(told.begun));
  if (told.ended != 0) text += formatted(", \"finished\": {}", microseconds(told.ended));
  return text + "}}";
}

std::string FlightRecorder::json(const About& about) const {
  const std::vector<Told> all = entries(about);
  std::string text = "{" + head_json(about, all_ended(about, all)) + ", \"traceEvents\": [";
  const char* separator = "\n";
  for (const Told& told : all) {
    text += separator + json_of(told, about);
    separator = ",\n";
  }
  for (const auto& run : about.runs) {
    text += separator + bar_json(run.signature.text(), run.signature.sequence, run.begun, run.ended, about);
    separator = ",\n";
  }
  for (const Told& told : all) {
    if (about.launches.empty() || told.ended == 0) continue;
    text += separator + bar_json(told.entry.name(), told.entry.number(), told.begun, told.ended, about);
    separator = ",\n";
  }
  return text + "]}\n";
}

std::string FlightRecorder::head_text(const About& about, std::optional<bool> idle) const {
  std::string text =
      formatted("Rank {} of {} of communicator {} (host {}, pid {}, device {})\n{}\nCollectives: issued {}", about.rank,
                about.ranks, about.communicator, about.host, about.pid, about.device,
                about.failure.empty() ? "No failure" : "Failure: " + about.failure, issued());
  if (about.progress_known) text += formatted(", begun {}, ended {}", about.begun, about.ended);
  text += formatted("; sends and receives: {}", messages_issued_.load(std::memory_order_relaxed));
  if (const uint64_t captured = captured_.load(std::memory_order_relaxed)) {
    text += formatted("; captured into graphs, and not counted: {}", captured);
  }
  if (!idle) return text + "; not known whether all have ended\n";
  return text + (*idle ? "; all have ended\n" : "; not all have ended\n");
}

std::string FlightRecorder::text(const About& about) const {
  const std::vector<Told> all = entries(about);
  std::string text = head_text(about, all_ended(about, all));
  if (!about.times_known && about.launches.empty()) {
    text += "When operations started and finished is not known here (on GPUs: with NITINOL_RECORD_TIMES=1).\n";
  }
  text += formatted("{:<9}{:<20}{:<20}{:<20}{:<16}{}\n", "state", "enqueued", "started", "finished", "stream",
                    "operation and plan");
  for (const Told& told : all) {
    const Entry& entry = told.entry;
    text += formatted("{:<9}{:<20}{:<20}{:<20}{:<16}{}", told.state, clock_text(entry.enqueued), clock_text(told.begun),
                      clock_text(told.ended), formatted("{}", entry.stream), entry.name());
    if (!entry.is_message) {
      text += formatted("; {} {}{}, {} channels, chunk {}", name_of(entry.plan.algorithm), name_of(entry.plan.protocol),
                        entry.plan.apart ? " in parts" : "", entry.plan.channels, entry.plan.chunk);
    }
    text += '\n';
  }
  return text;
}

}  // namespace nitinol
