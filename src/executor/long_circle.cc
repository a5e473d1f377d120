#include "executor/long_circle.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "executor/call_words.h"

namespace nitinol {

namespace {

/// Those of this process.
Registry<LongCircle>& registry() { return Registry<LongCircle>::of_process(); }

}  // namespace

LongCircle::LongCircle(const PresentLaunch& present, const Self& self) : present_(present), self_(self) {
  const std::lock_guard lock(registry().mutex);
  registry().all.push_back(this);
}

LongCircle::~LongCircle() {
  Registry<LongCircle>& all = registry();
  const std::lock_guard lock(all.mutex);
  forget_under_lock();
  std::erase(all.all, this);
  for (LongCircle* const other : all.all) {
    if (other->holder_ == this) other->holder_ = nullptr;
  }
}

void LongCircle::forget() {
  const std::lock_guard lock(registry().mutex);
  forget_under_lock();
}

/// Another thread may take away the one before, which is taken note of under the lock.
void LongCircle::forget_under_lock() {
  launch_ = 0;
  holder_ = nullptr;
  labels_.forget();
  page(present_.rank()).label.clear();
  page(present_.rank()).holder.label.clear();
}

/// Whose launch, of those in which ranks of this process wait, is the first in the stream before this rank's.
const LongCircle* LongCircle::before(const Registry<LongCircle>& all) const {
  const std::vector<StreamPlace> mine = self_.places.find_all(launch_);
  const LongCircle* first = nullptr;
  std::vector<StreamPlace> places_of_first;
  for (const LongCircle* const other : all.all) {
    if (other == this || other->launch_ == 0) continue;
    std::vector<StreamPlace> theirs = other->self_.places.find_all(other->launch_);
    if (!any_behind(mine, theirs)) continue;
    if (first != nullptr && !any_behind(places_of_first, theirs)) continue;
    first = other;
    places_of_first = std::move(theirs);
  }
  return first;
}

void LongCircle::tell_before(const LongCircle& holder) {
  CallPage& mine = page(present_.rank());
  const CallPage& theirs = holder.page(holder.present_.rank());
  const auto label = theirs.label.look();
  const bool same = holder_ == &holder && holders_launch_ == holder.launch_ && mine.held_launch.load() == launch_;
  if (!same || !label) mine.holder.label.clear();
  holder_ = &holder;
  holders_launch_ = holder.launch_;
  if (!label) return;
  const Signature call = collective_of_launch(theirs, holder.launch_).value_or(Signature{});
  mine.held_launch.store(launch_);
  mine.holder.tell(label->label, {holder.self_.identity, holder.present_.rank(), call});
}

void LongCircle::tell_label(uint64_t label) {
  CallPage& mine = page(present_.rank());
  mine.label_launch.store(launch_);
  mine.label.set(label);
}

/// The label of what the peer is in, or what keeps it from its launch, if that must end before `launch` of it begins.
std::optional<Labels::Other> LongCircle::label_of(int peer, uint64_t launch) const {
  const CallPage& theirs = page(peer);
  const auto in_call = theirs.label.look();
  if (in_call && theirs.label_launch.load() < launch && theirs.label.still(*in_call)) {
    return Labels::Other{peer, in_call->label, false};
  }
  const auto held = theirs.holder.label.look();
  if (held && theirs.held_launch.load() <= launch && theirs.holder.label.still(*held)) {
    return Labels::Other{peer, held->label, true};
  }
  return std::nullopt;
}

std::vector<Labels::Other> LongCircle::labels_of_others() const {
  std::map<int, uint64_t> awaited;  // by peer the last of its launches
  for (const Need& need : present_.needs()) {
    const auto launch = launch_for(present_.board(), present_.rank(), need);
    if (launch) awaited[need.peer] = std::max(awaited[need.peer], *launch);
  }
  std::vector<Labels::Other> others;
  for (const auto& [peer, launch] : awaited) {
    if (const auto other = label_of(peer, launch)) others.push_back(*other);
  }
  return others;
}

std::string LongCircle::sentence(int peer) const {
  const CallPage& theirs = page(peer);
  std::string reason;
  if (theirs.label.look()) {
    const auto collective = collective_of_launch(theirs, theirs.label_launch.load());
    reason = "which is in " + (collective ? collective->text() : "a group of sends and receives");
  } else {
    reason = reason_held_up(theirs.holder.holder());
  }
  return long_circle_sentence(present_.rank(), present_.text(),
                              describe_rank(peer, self_.peers[static_cast<size_t>(peer)]), reason);
}

std::optional<std::string> LongCircle::look() {
  if (launch_ != present_.number()) forget();
  launch_ = present_.number();
  if (launch_ == 0) return std::nullopt;
  CallPage& mine = page(present_.rank());
  {
    Registry<LongCircle>& all = registry();
    const std::lock_guard lock(all.mutex);
    if (const LongCircle* const holder = before(all)) {
      mine.label.clear();
      labels_.forget();
      tell_before(*holder);
      return std::nullopt;
    }
  }
  mine.holder.label.clear();
  const std::vector<Labels::Other> others = labels_of_others();
  if (const auto peer = labels_.came_back(others)) return sentence(*peer);
  tell_label(labels_.next(others));
  return std::nullopt;
}

}  // namespace nitinol
