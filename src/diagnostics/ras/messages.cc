// Encoding. Counts in front of lists are believed only as far as there are bytes behind them.
#include "diagnostics/ras/messages.h"

#include "base/error.h"
#include "bootstrap/wire.h"

namespace nitinol::ras {
namespace {

constexpr std::size_t kLongestName = 64;
constexpr std::size_t kLongestState = 64;
constexpr std::size_t kLongestSentence = 2048;
constexpr std::size_t kLongestOperation = 256;
constexpr std::size_t kLongestDump = std::size_t{4} << 20;
constexpr int kHighestRank = (1 << 24) - 1;

template <typename T, typename Put>
void put_list(ByteWriter& writer, const std::vector<T>& list, const Put& put) {
  writer.integer(static_cast<std::uint32_t>(list.size()));
  for (const T& entry : list) put(writer, entry);
}

/// `least` is the size of the smallest entry.
template <typename T, typename Get>
std::vector<T> get_list(ByteReader& reader, std::size_t least, const Get& get) {
  std::vector<T> list;
  const auto count = reader.integer<std::uint32_t>();
  if (count > reader.left() / least) reader.reject();
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) list.push_back(get(reader));
  return list;
}

int get_rank(ByteReader& reader) {
  const auto rank = reader.integer<std::int32_t>();
  if (rank < 0 || rank > kHighestRank) reader.reject();
  return rank;
}

bool get_flag(ByteReader& reader) {
  const auto value = reader.integer<std::uint8_t>();
  if (value > 1) reader.reject();
  return value == 1;
}

void put_id(ByteWriter& writer, const CommunicatorId& id) { writer.block(id.data(), id.size()); }
CommunicatorId get_id(ByteReader& reader) {
  CommunicatorId id{};
  reader.block(id.data(), id.size());
  return id;
}

void put_number(ByteWriter& writer, std::uint64_t number) { writer.integer(number); }
std::uint64_t get_number(ByteReader& reader) { return reader.integer<std::uint64_t>(); }

void put_name(ByteWriter& writer, const ProcessName& name) {
  writer.integer(name.number);
  writer.integer(name.host);
  writer.text(name.host_name, kLongestName);
  writer.integer(static_cast<std::int32_t>(name.pid));
}
ProcessName get_name(ByteReader& reader) {
  ProcessName name;
  name.number = reader.integer<std::uint64_t>();
  name.host = reader.integer<std::uint64_t>();
  name.host_name = reader.text(kLongestName);
  name.pid = reader.integer<std::int32_t>();
  return name;
}

void put_rank_report(ByteWriter& writer, const RankReport& report) {
  writer.integer(static_cast<std::int32_t>(report.rank));
  writer.text(report.state, kLongestState);
  writer.text(report.failure, kLongestSentence);
  writer.integer(report.issued);
  writer.integer(report.begun);
  writer.integer(report.ended);
  writer.integer(static_cast<std::uint8_t>(report.progress_known));
  writer.text(report.operation, kLongestOperation);
  writer.integer(report.milliseconds);
}
RankReport get_rank_report(ByteReader& reader) {
  RankReport report;
  report.rank = get_rank(reader);
  report.state = reader.text(kLongestState);
  report.failure = reader.text(kLongestSentence);
  report.issued = reader.integer<std::uint64_t>();
  report.begun = reader.integer<std::uint64_t>();
  report.ended = reader.integer<std::uint64_t>();
  report.progress_known = get_flag(reader);
  report.operation = reader.text(kLongestOperation);
  report.milliseconds = reader.integer<std::uint64_t>();
  return report;
}

void put_ranks(ByteWriter& writer, const RanksOf& ranks) {
  put_id(writer, ranks.id);
  put_list(writer, ranks.ranks, put_rank_report);
}
RanksOf get_ranks(ByteReader& reader) {
  RanksOf ranks;
  ranks.id = get_id(reader);
  ranks.ranks = get_list<RankReport>(reader, 43, get_rank_report);
  return ranks;
}

void put_roster(ByteWriter& writer, const Roster& roster) {
  put_id(writer, roster.id);
  put_list(writer, roster.processes, put_name);
  put_list(writer, roster.members, [](ByteWriter& to, const Roster::Member& member) {
    to.integer(member.process);
    to.integer(static_cast<std::int32_t>(member.device));
  });
}
Roster get_roster(ByteReader& reader) {
  Roster roster;
  roster.id = get_id(reader);
  roster.processes = get_list<ProcessName>(reader, 22, get_name);
  roster.members = get_list<Roster::Member>(reader, 8, [&](ByteReader& from) {
    Roster::Member member;
    member.process = from.integer<std::uint32_t>();
    member.device = from.integer<std::int32_t>();
    if (member.process >= roster.processes.size()) from.reject();
    return member;
  });
  return roster;
}

void put_sighting(ByteWriter& writer, const Sighting& sighting) {
  writer.integer(sighting.process);
  writer.integer(static_cast<std::uint8_t>(sighting.state));
}
Sighting get_sighting(ByteReader& reader) {
  Sighting sighting;
  sighting.process = reader.integer<std::uint64_t>();
  const auto state = reader.integer<std::uint8_t>();
  if (state >= static_cast<std::uint8_t>(ProcessState::kUnknown)) reader.reject();
  sighting.state = static_cast<ProcessState>(state);
  return sighting;
}

void put_dump(ByteWriter& writer, const RankDump& dump) {
  put_id(writer, dump.id);
  writer.integer(static_cast<std::int32_t>(dump.rank));
  const std::size_t size = dump.text.size() > kLongestDump ? 0 : dump.text.size();
  writer.integer(static_cast<std::uint32_t>(size));
  writer.block(dump.text.data(), size);
}
RankDump get_dump(ByteReader& reader) {
  RankDump dump;
  dump.id = get_id(reader);
  dump.rank = get_rank(reader);
  const auto size = reader.integer<std::uint32_t>();
  if (size > kLongestDump) reader.reject();
  const auto bytes = reader.next(size);
  dump.text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return dump;
}

}  // namespace

std::string text_of(const CommunicatorId& id) {
  std::string text;
  for (const std::uint8_t byte : id) text += formatted("{:02x}", byte);
  return text;
}

std::vector<std::byte> encode(const Ask& message) {
  ByteWriter writer;
  writer.integer(static_cast<std::uint8_t>(message.what));
  writer.integer(static_cast<std::uint8_t>(message.dumps_as_text));
  writer.integer(message.patience_ms);
  put_list(writer, message.hops, put_number);
  put_list(writer, message.known, put_id);
  return writer.take();
}

std::optional<Ask> decode_ask(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Ask message;
  const auto what = reader.integer<std::uint8_t>();
  if (what > static_cast<std::uint8_t>(Ask::What::kReportAndDumps)) return std::nullopt;
  message.what = static_cast<Ask::What>(what);
  message.dumps_as_text = get_flag(reader);
  message.patience_ms = reader.integer<std::uint32_t>();
  message.hops = get_list<std::uint64_t>(reader, 8, get_number);
  message.known = get_list<CommunicatorId>(reader, 16, get_id);
  if (message.hops.size() > Ask::kMostHops || message.known.size() > Ask::kMostKnown) return std::nullopt;
  if (!reader.complete()) return std::nullopt;
  return message;
}

std::vector<std::byte> encode(const Tell& message) {
  ByteWriter writer;
  writer.text(message.trouble, kLongestSentence);
  writer.integer(static_cast<std::uint8_t>(message.hung_up));
  put_name(writer, message.report.name);
  put_list(writer, message.report.communicators, put_ranks);
  put_list(writer, message.report.rosters, put_roster);
  put_list(writer, message.report.sightings, put_sighting);
  put_list(writer, message.dumps, put_dump);
  return writer.take();
}

std::optional<Tell> decode_tell(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Tell message;
  message.trouble = reader.text(kLongestSentence);
  message.hung_up = get_flag(reader);
  message.report.name = get_name(reader);
  message.report.communicators = get_list<RanksOf>(reader, 20, get_ranks);
  message.report.rosters = get_list<Roster>(reader, 24, get_roster);
  message.report.sightings = get_list<Sighting>(reader, 9, get_sighting);
  message.dumps = get_list<RankDump>(reader, 24, get_dump);
  if (!reader.complete()) return std::nullopt;
  return message;
}

}  // namespace nitinol::ras
