#include "executor/call_names.h"

#include "executor/call_board.h"

namespace nitinol {
namespace {

uint64_t trace_of(const NamedLaunch& launch) {
  uint64_t trace = launch.count;
  for (size_t i = 0; i < launch.count; ++i) {
    trace = extended(trace, launch.collectives[i].count, launch.collectives[i].call);
  }
  for (const RankSet& ranks : {launch.sends_to, launch.receives_from}) {
    trace = extended(trace, ranks.bits[0], ranks.bits[1]);
  }
  return trace;
}

}  // namespace

uint64_t NamedLaunch::works() const {
  uint64_t bits = 0;
  for (size_t i = 0; i < count; ++i) bits |= uint64_t{1} << collectives[i].tag() % 64;
  return bits;
}

uint32_t CallNames::name(const NamedLaunch& launch, bool captured) {
  const std::lock_guard lock(mutex_);
  if (captured) return name_captured(launch);
  if (recent_.empty()) recent_.resize(kRecent);
  const uint32_t number = ++launches_ & (~kNotCaptured >> kFreeBits);
  recent_[number % kRecent] = {number, launch};
  return kNotCaptured | number << kFreeBits;
}

uint32_t CallNames::name_captured(const NamedLaunch& launch) {
  const uint64_t trace = trace_of(launch);
  const auto [first, last] = numbers_.equal_range(trace);
  for (auto it = first; it != last; ++it) {
    if (captured_[it->second] == launch) return (it->second + 1) << kFreeBits;
  }
  if (captured_.size() == kMostCaptured) return kUnknown;
  const auto number = static_cast<uint32_t>(captured_.size());
  captured_.push_back(launch);
  numbers_.emplace(trace, number);
  return (number + 1) << kFreeBits;
}

std::optional<CallNames::Call> CallNames::find(uint32_t name) const {
  const std::lock_guard lock(mutex_);
  const size_t which = name & ((1U << kFreeBits) - 1);
  const size_t number = (name & ~kNotCaptured) >> kFreeBits;
  const NamedLaunch* launch = nullptr;
  if ((name & kNotCaptured) != 0) {
    const Recent* const recent = recent_.empty() ? nullptr : &recent_[number % kRecent];
    if (recent != nullptr && number != 0 && recent->number == number) launch = &recent->launch;
  } else if (number > 0 && number <= captured_.size()) {
    launch = &captured_[number - 1];
  }
  if (launch == nullptr || which >= (launch->count == 0 ? 1 : launch->count)) return std::nullopt;
  return Call{*launch, which};
}

}  // namespace nitinol
