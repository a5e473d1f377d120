#include "diagnostics/ras/registry.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "base/host.h"
#include "base/log.h"
#include "base/process_state.h"
#include "base/whole_file.h"
#include "bootstrap/wire.h"
#include "nccl.h"

namespace nitinol::ras {
namespace {

constexpr std::size_t kLettersOfId = 8;

ProcessName name_of(const Peer& peer) {
  ProcessName name;
  name.number = peer.process;
  name.host = peer.host;
  name.host_name = std::string(peer.host_name.data(), strnlen(peer.host_name.data(), peer.host_name.size()));
  name.pid = peer.pid;
  return name;
}

void write_dump(int rank, const std::string& path, const std::string& text) {
  const int error = write_whole_file(path, text);
  if (error == 0) {
    log_info(Subsystem::kRas, "rank {}: its flight recorder is in {}", rank, path);
  } else {
    log_note("rank {}: its flight recorder cannot be written to {}: {}", rank, path, std::strerror(error));
  }
}

}  // namespace

Secret ras_key(const Secret& communicator) { return derive_secret(communicator, "health monitoring"); }

std::string dump_path(const std::string& pattern, const CommunicatorId& id, int rank) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      path += pattern[i];
      continue;
    }
    switch (const char kind = pattern[++i]) {
      case 'h': path += host_name(); break;
      case 'p': path += formatted("{}", ::getpid()); break;
      case 'r': path += formatted("{}", rank); break;
      case 'c': path += text_of(id).substr(0, kLettersOfId); break;
      case '%': path += '%'; break;
      default: path += formatted("%{}", kind); break;
    }
  }
  return path;
}

bool is_text_path(const std::string& path) { return path.ends_with(".txt"); }

Registry::Entry Registry::make_entry(const Newcomer& newcomer) {
  Entry entry;
  entry.key = ras_key(newcomer.secret);
  entry.roster.id = newcomer.id;
  entry.own_process = newcomer.peers[static_cast<std::size_t>(newcomer.rank)].process;
  std::unordered_map<std::uint64_t, std::uint32_t> places;
  for (const Peer& peer : newcomer.peers) {
    const auto [place, added] = places.emplace(peer.process, static_cast<std::uint32_t>(places.size()));
    if (added) {
      ByteReader reader(std::as_bytes(std::span(peer.meeting_point)));
      const SocketAddress address = SocketAddress::decode(reader);
      entry.roster.processes.push_back(name_of(peer));
      entry.addresses.push_back(reader.ok() ? std::optional(address) : std::nullopt);
      entry.pid_namespaces.push_back(peer.pid_namespace);
    }
    entry.roster.members.push_back({place->second, peer.device});
  }
  return entry;
}

Registry::Visit::Visit(const Registry& registry, const CommunicatorId& id, Occupant& occupant)
    : registry_(registry), id_(id), occupant_(occupant) {
  ++occupant_.visitors;
}

Registry::Visit::~Visit() {
  const std::lock_guard lock(registry_.mutex_);
  --occupant_.visitors;
  registry_.visit_over_.notify_all();
}

void Registry::visit(Whom whom, std::list<Visit>& visits) const {
  for (const auto& [id, entry] : entries_) {
    for (const auto& occupant : entry.occupants) {
      if (occupant->is_leaving || (whom == Whom::kWhoseDumpIsDue && !occupant->dump_due)) continue;
      visits.emplace_back(*this, id, *occupant);
    }
  }
}

void Registry::enter(const Newcomer& newcomer, Subject& subject) {
  auto occupant = std::make_unique<Occupant>();
  occupant->rank = newcomer.rank;
  occupant->subject = &subject;
  const std::lock_guard lock(mutex_);
  auto found = entries_.find(newcomer.id);
  if (found == entries_.end()) found = entries_.emplace(newcomer.id, make_entry(newcomer)).first;
  found->second.occupants.push_back(std::move(occupant));
}

void Registry::leave(const CommunicatorId& id, int rank) {
  std::shared_ptr<void> last_service;  // goes without the lock
  std::unique_lock lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  auto& occupants = found->second.occupants;
  const auto position =
      std::find_if(occupants.begin(), occupants.end(), [&](const auto& each) { return each->rank == rank; });
  if (position == occupants.end()) return;
  Occupant& leaving = **position;
  leaving.is_leaving = true;
  visit_over_.wait(lock, [&] { return leaving.visitors == 0; });
  lock.unlock();
  try {
    write_if_due(id, leaving);
  } catch (const std::exception&) {  // there is no memory for it; the rank leaves all the same
  }
  lock.lock();
  std::erase_if(occupants, [&](const auto& each) { return each.get() == &leaving; });
  if (!occupants.empty()) return;
  last_service = std::move(found->second.service);
  entries_.erase(found);
}

bool Registry::empty() const {
  const std::lock_guard lock(mutex_);
  return entries_.empty();
}

bool Registry::needs_service(const CommunicatorId& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  return found != entries_.end() && !found->second.service;
}

void Registry::keep_service(const CommunicatorId& id, std::shared_ptr<void> service) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found != entries_.end()) found->second.service.swap(service);
}

std::optional<ProcessName> Registry::name() const {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : entries_) {
    for (const ProcessName& process : entry.roster.processes) {
      if (process.number == entry.own_process) return process;
    }
  }
  return std::nullopt;
}

std::vector<Registry::Neighbour> Registry::neighbours(const Entry& entry) {
  std::vector<Neighbour> found;
  const auto& all = entry.roster.processes;
  const auto self = std::find_if(all.begin(), all.end(), [&](const auto& p) { return p.number == entry.own_process; });
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].number == self->number || all[i].host != self->host) continue;
    found.push_back({all[i].number, all[i].pid, entry.pid_namespaces[i]});
  }
  return found;
}

ProcessReport Registry::report(const std::vector<CommunicatorId>& known) const {
  ProcessReport report;
  report.name = name().value_or(ProcessName());
  std::map<std::uint64_t, Neighbour> others;
  std::list<Visit> visits;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : entries_) {
      if (std::find(known.begin(), known.end(), id) == known.end()) report.rosters.push_back(entry.roster);
      report.communicators.push_back({id, {}});
      for (const Neighbour& other : neighbours(entry)) others[other.number] = other;
    }
    visit(Whom::kAll, visits);
  }
  for (auto told = report.communicators.begin(); !visits.empty(); visits.pop_front()) {
    const Visit& next = visits.front();
    while (told->id != next.id()) ++told;
    told->ranks.push_back(next.occupant().subject->health());
    told->ranks.back().rank = next.occupant().rank;
  }
  for (const auto& [number, other] : others) {
    const ProcessState state = process_state(other.pid, other.pid_namespace);
    if (state != ProcessState::kUnknown) report.sightings.push_back({number, state});
  }
  return report;
}

std::vector<RankDump> Registry::dumps(bool as_text) const {
  std::list<Visit> visits;
  {
    const std::lock_guard lock(mutex_);
    visit(Whom::kAll, visits);
  }
  std::vector<RankDump> dumps;
  for (; !visits.empty(); visits.pop_front()) {
    const Occupant& next = visits.front().occupant();
    dumps.push_back({visits.front().id(), next.rank, next.subject->dump(as_text)});
  }
  return dumps;
}

std::vector<Contact> Registry::contacts(std::uint64_t process) const {
  std::vector<Contact> contacts;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : entries_) {
    for (std::size_t i = 0; i < entry.addresses.size(); ++i) {
      if (entry.roster.processes[i].number == process && entry.addresses[i]) {
        contacts.push_back({*entry.addresses[i], entry.key});
      }
    }
  }
  return contacts;
}

void Registry::set_dump_pattern(std::string pattern) {
  const std::lock_guard lock(mutex_);
  dump_pattern_ = std::move(pattern);
}

void Registry::want_dump_of_failure(const CommunicatorId& id, int rank) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  for (const auto& occupant : found->second.occupants) {
    if (occupant->rank == rank) occupant->note_failure();
  }
}

void Registry::want_dumps_of_failures() {
  const std::lock_guard lock(mutex_);
  for (auto& [id, entry] : entries_) {
    for (const auto& occupant : entry.occupants) {
      if (occupant->subject->has_failed()) occupant->note_failure();
    }
  }
}

void Registry::want_all_dumps() {
  const std::lock_guard lock(mutex_);
  for (auto& [id, entry] : entries_) {
    for (const auto& occupant : entry.occupants) occupant->dump_due = true;
  }
}

void Registry::write_due_dumps() {
  std::list<Visit> visits;
  {
    const std::lock_guard lock(mutex_);
    visit(Whom::kWhoseDumpIsDue, visits);
  }
  for (; !visits.empty(); visits.pop_front()) write_if_due(visits.front().id(), visits.front().occupant());
}

void Registry::write_if_due(const CommunicatorId& id, Occupant& occupant) {
  std::string pattern;
  {
    const std::lock_guard lock(mutex_);
    pattern = dump_pattern_;
    if (!std::exchange(occupant.dump_due, false)) return;
  }
  try {
    const std::string path = dump_path(pattern, id, occupant.rank);
    write_dump(occupant.rank, path, occupant.subject->dump(is_text_path(path)));
  } catch (const std::exception&) {  // there may be memory for it later
    const std::lock_guard lock(mutex_);
    occupant.dump_due = true;
    throw;
  }
}

}  // namespace nitinol::ras
