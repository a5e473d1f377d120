// The search for a circle, and the sentence about it.
#include "bootstrap/regroup_circle.h"

#include <algorithm>

#include "base/error.h"
#include "base/listed.h"

namespace nitinol {
namespace {

using State = RegroupWord::State;
using Held = std::map<int, const RegroupWord*>;

/// Whether `word`'s rank cannot meet as long as the other is where it is.
bool waits_for(const RegroupWord& word, const RegroupWord& other) {
  if (other.rank == word.rank || is_in_meeting_of(word, other)) return false;
  const bool wanted = !leaves_out(word, other.rank);
  if (other.state != State::kMeets) return other.state == State::kLeft && wanted;
  return wanted || (word.repairs && other.repairs && !leaves_out(other, word.rank));
}

/// One that has left though `word`'s rank waits for it, and neither has left the other out; null if there is none.
const RegroupWord* leaver_missed_by(const RegroupWord& word, const RegroupWords& words) {
  for (const auto& [rank, other] : words) {
    if (other.state == State::kLeft && !leaves_out(word, rank) && !leaves_out(other, word.rank)) return &other;
  }
  return nullptr;
}

/// A rank that others miss may leave while they meet, and not all find that at the same time: who has is in another
/// meeting by then, but does not contradict who has not. So who misses it comes again when it has found that, too.
bool may_be_held(const RegroupWord& word, const RegroupWords& words) {
  if (word.state == State::kMeets) return leaver_missed_by(word, words) == nullptr;
  return word.state == State::kLeft;
}

/// Whether one of those that are held, or one that is with `mine` and waits as it does, holds `word`'s rank.
bool is_held_by(const Held& held, const std::set<int>& together, const RegroupWord& mine, const RegroupWord& word) {
  if (word.state == State::kLeft) return true;
  if (std::any_of(held.begin(), held.end(), [&](const auto& other) { return waits_for(word, *other.second); })) {
    return true;
  }
  if (held.count(mine.rank) == 0 || is_in_meeting_of(word, mine)) return false;
  return std::any_of(together.begin(), together.end(), [&](int rank) {
    RegroupWord theirs = mine;
    theirs.rank = rank;
    return waits_for(word, theirs);
  });
}

/// Those who wait for nobody but ranks that may yet come are left out, then those who wait for nobody but these and the
/// first, and so on: the others wait for ever.
Held held_ranks(const RegroupWord& mine, const RegroupWords& words, const std::set<int>& together) {
  Held held{{mine.rank, &mine}};
  for (const auto& [rank, word] : words) {
    if (may_be_held(word, words)) held[rank] = &word;
  }
  while (std::erase_if(held, [&](const auto& entry) { return !is_held_by(held, together, mine, *entry.second); }) !=
         0) {
  }
  return held;
}

/// Whom a sentence names: one that is still there, if one is.
const RegroupWord* first_waited_for(const RegroupWord& mine, const Held& held) {
  const RegroupWord* named = nullptr;
  for (const auto& [rank, word] : held) {
    if (!waits_for(mine, *word)) continue;
    if (named == nullptr || (named->state == State::kLeft && word->state == State::kMeets)) named = word;
  }
  return named;
}

std::string sentence_about(const RegroupWord& mine, const RegroupWord& other, const NameOfRank& name_of) {
  const std::string begin = excludes(mine, name_of);
  if (other.state == State::kLeft) {
    const std::string name = name_of(other.rank);
    if (!leaves_out(other, mine.rank)) return formatted("{}, but {} has left the communicator", begin, name);
    return formatted("{}, but {} has left the communicator after a call that excluded {}", begin, name,
                     listed(other.excluded));
  }
  if (other.excluded != mine.excluded) return formatted("{}, but {}", begin, excludes(other, name_of));
  return formatted("{} for the {}. time, but {} for the {}. time", begin, mine.number, excludes(other, name_of),
                   other.number);
}

}  // namespace

bool leaves_out(const RegroupWord& word, int rank) {
  return std::binary_search(word.excluded.begin(), word.excluded.end(), rank);
}

bool is_in_meeting_of(const RegroupWord& word, const RegroupWord& other) {
  return word.state == State::kMeets && other.state == State::kMeets && word.number == other.number &&
         word.excluded == other.excluded;
}

std::string excludes(const RegroupWord& word, const NameOfRank& name_of) {
  return formatted("{} excludes {}", name_of(word.rank), word.excluded.empty() ? "nobody" : listed(word.excluded));
}

// One that has left is the cause for whoever misses it.
std::optional<RegroupCircle> circle_of(const RegroupWord& mine, const RegroupWords& words,
                                       const std::set<int>& together, const NameOfRank& name_of) {
  if (const RegroupWord* const leaver = leaver_missed_by(mine, words)) {
    return RegroupCircle{sentence_about(mine, *leaver, name_of), ncclRemoteError, {{leaver->rank, leaver->meeting}}};
  }
  const Held held = held_ranks(mine, words, together);
  if (held.count(mine.rank) == 0) return std::nullopt;
  const RegroupWord* const named = first_waited_for(mine, held);
  if (named == nullptr) return std::nullopt;
  RegroupCircle circle{sentence_about(mine, *named, name_of)};
  for (const auto& [rank, word] : held) circle.involved.emplace(rank, word->meeting);
  return circle;
}

}  // namespace nitinol
