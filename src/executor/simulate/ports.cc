#include "executor/simulate/ports.h"

#include <algorithm>
#include <cmath>

namespace nitinol::simulate {
namespace {

constexpr double kPerMicrosecond = 1e6;

}  // namespace

Time time_of(double microseconds) { return std::llround(microseconds * kPerMicrosecond); }

Time time_of(double bytes, double bytes_per_us) { return bytes_per_us > 0 ? time_of(bytes / bytes_per_us) : 0; }

double microseconds(Time time) { return static_cast<double>(time) / kPerMicrosecond; }

Time Lane::earliest(Time ready, Time length) const {
  for (const Use& use : uses_) {
    if (use.end <= ready) continue;
    if (use.begin >= ready + length) break;
    ready = use.end;
  }
  return ready;
}

void Lane::take(Time begin, Time end, Time now) {
  if (begin == end) return;
  const auto past = [now](const Use& use) { return use.end <= now; };
  if (!uses_.empty() && past(uses_.front()))
    uses_.erase(uses_.begin(), std::find_if_not(uses_.begin(), uses_.end(), past));
  auto after = std::find_if(uses_.begin(), uses_.end(), [&](const Use& use) { return use.begin >= end; });
  const bool joins_before = after != uses_.begin() && std::prev(after)->end == begin;
  const bool joins_after = after != uses_.end() && after->begin == end;
  if (joins_before && joins_after) {
    std::prev(after)->end = after->end;
    uses_.erase(after);
  } else if (joins_before) {
    std::prev(after)->end = end;
  } else if (joins_after) {
    after->begin = begin;
  } else {
    uses_.insert(after, Use{begin, end});
  }
}

Ports::Ports(int ranks, const TopologyModel& model) : model_(model), local_(ranks) {
  const int hosts = (ranks - 1) / model.ranks_per_host + 1;
  network_.resize(static_cast<size_t>(hosts) * model.network_ports_per_host);
}

Time Ports::latency(int from, int to) const {
  return time_of((host_of(from) == host_of(to) ? model_.local : model_.network).latency_us);
}

Ports::Port& Ports::port_of(int rank, bool local) {
  if (local) return local_[rank];
  const int on_host = rank % model_.ranks_per_host % model_.network_ports_per_host;
  return network_[static_cast<size_t>(host_of(rank)) * model_.network_ports_per_host + on_host];
}

Ports::Passage Ports::pass(const Message& message, Time now) {
  const bool local = host_of(message.from) == host_of(message.to);
  const LinkModel& link = local ? model_.local : model_.network;
  Lane& out = port_of(message.from, local).out;
  Lane& in = port_of(message.to, local).in;
  const Time length = time_of(message.bytes, link.bytes_per_us);
  Time begin = message.ready;
  if (length > 0) {
    for (Time wish = -1; wish != begin;) {
      wish = begin;
      begin = in.earliest(out.earliest(begin, length), length);
    }
  }
  out.take(begin, begin + length, now);
  in.take(begin, begin + length, now);
  return {begin + length, begin + length + time_of(link.latency_us)};
}

}  // namespace nitinol::simulate
