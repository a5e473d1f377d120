// Where a rank that meets others again (Bootstrap::regroup) can be asked whom it leaves out, and asks them. All must
// leave out the same ranks, but each knows its own list alone, and lists that differ lead ranks to different roots.
//
// Ranks that meet at once never ask. One that has waited for a while asks those it waits for; from their lists it sees
// whether it waits for ever (regroup_circle.h). To have been in the meetings at the same time is what counts, so each
// is seen there twice.
//
// A rank whose meeting failed because of lists that differ says so to those it would have met, once to each: they may
// come later. One that has left the old communicator says that: it comes to no meeting any more.
//
// And a rank that fails before it has come to its meeting tells all members' desks so, where those find it who come
// later. It may have come again by then: so it is asked.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/connect.h"
#include "bootstrap/connection.h"
#include "bootstrap/messages.h"
#include "bootstrap/regroup_circle.h"

namespace nitinol {

struct RegroupDeskArguments {
  int rank = 0;                        // in the old communicator, as everywhere here
  Secret secret;                       // of the old communicator
  std::vector<MeetingPoint> points{};  // of all its ranks
  std::uint32_t scope = 0;             // of link-local addresses
  NameOfRank name_of{};                // for sentences
};

class RegroupDesk : public std::enable_shared_from_this<RegroupDesk> {
 public:
  /// It can be asked until leave(), and even then by whoever still comes.
  static std::shared_ptr<RegroupDesk> open(RegroupDeskArguments arguments);
  explicit RegroupDesk(RegroupDeskArguments arguments);

  /// This rank begins a meeting of that name, its `number`th without the `excluded`, which are in order. `repairs`: the
  /// communicator has been revoked. Takes no memory: others who ask never hear of half a meeting.
  void begin(std::vector<int> excluded, std::uint64_t number, const KeyId& name, bool repairs);
  /// This rank does not come to the meeting of that name, because of what was thrown. Takes no memory, but two seconds
  /// at most. `excluded`: in any order.
  void report_absence(std::span<const int> excluded, const KeyId& name, const std::exception& thrown) const noexcept;
  /// It has ended; `contradiction`: the sentence, if the lists differ.
  void end(const std::string& contradiction = "");
  /// To be called again and again while the rank waits. Throws Error: with ncclInvalidUsage, which names the lists; of
  /// a member that does not come; or what `interrupt` throws. Takes a moment now and then.
  void look(const Interrupt& interrupt);
  /// The rank leaves the old communicator.
  void leave();

  /// What is to be said of ranks that this one waits for, to be put behind a sentence.
  const std::string& remark() const { return remark_; }
  /// Whether the last meeting has failed since a member did not come, which said why.
  bool has_heard_of_absence() const { return heard_of_absence_; }
  /// The highest number that another rank has given to a meeting with this one's list.
  std::uint64_t highest_number() const { return highest_number_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Caller;

  void accepted(UniqueFd fd);
  void on_frame(const Frame& frame, Connection& caller);
  void on_absent(const Frame& frame);
  std::vector<Failure> take_absences_locked();
  void throw_word_of_absence(const std::vector<Failure>& said);
  RegroupWord answer(const RegroupWord& question);
  bool owes_word(const RegroupWord& question) const;
  std::optional<SocketAddress> address_of(int rank) const;
  std::optional<RegroupWord> ask(int rank, const Interrupt& interrupt);
  RegroupWords ask_around(const RegroupWord& mine, std::vector<int> first, const Interrupt& interrupt);
  std::vector<int> members(const RegroupWord& word) const;
  void throw_word_of_failure(const RegroupWord& mine, const RegroupWords& words);
  void take_note(const RegroupWord& mine, const RegroupWords& words);

  const RegroupDeskArguments arguments_;
  std::shared_ptr<void> service_;

  mutable std::mutex mutex_;  // guards what follows, of which others are told
  RegroupWord word_;
  std::map<int, std::uint64_t> heard_of_;           // ranks with other lists, and their meetings
  RegroupCircle::Involved involved_;                // in why the last one failed
  KeyId name_{};                                    // of the meeting
  std::deque<std::pair<KeyId, Failure>> absences_;  // the last ones: from which meeting, and why
  bool look_now_ = false;
  bool left_ = false;
  std::uint64_t heard_failures_ = 0;  // the most that another rank has counted

  // Of the thread that waits in the meeting.
  Clock::time_point next_look_;
  Clock::duration interval_{};
  std::set<int> together_;  // known to be in the same meeting
  std::optional<RegroupCircle> suspicion_;
  std::string remark_;
  bool remarked_ = false;
  bool heard_of_absence_ = false;
  std::uint64_t highest_number_ = 0;
};

}  // namespace nitinol
