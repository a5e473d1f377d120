// Asking and answering, and what follows from the answers.
#include "bootstrap/regroup_desk.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>

#include "base/error.h"
#include "base/log.h"
#include "bootstrap/absence.h"
#include "bootstrap/network.h"
#include "bootstrap/wire.h"

namespace nitinol {
namespace {

using namespace std::chrono_literals;
using State = RegroupWord::State;

constexpr auto kFirstLook = 300ms;  // by far longer than ranks take that come at once
constexpr auto kLongestInterval = 1s;
constexpr auto kSecondLook = 300ms;  // at those in whom something is wrong
constexpr auto kDeskPatience = 250ms;
constexpr auto kLookPatience = 1s;
constexpr auto kTellPatience = 2s;
constexpr std::size_t kMostAbsences = 64;

Secret desk_key(const Secret& secret, int rank) {
  std::array<std::uint8_t, 4> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(rank >> (8 * i));
  return derive_secret(secret, "regroup desk", bytes);
}

Frame frame_of(const RegroupWord& word) { return control_frame(FrameType::kWhom, encode(word)); }

/// Nothing if the connection ends before.
std::optional<RegroupWord> read_word(int fd, Deadline deadline, const Interrupt& interrupt) {
  FrameReader reader;
  std::array<std::byte, 1024> part;
  while (true) {
    if (const auto frame = reader.take()) return decode_regroup_word(frame->payload);
    wait_for_fd(fd, POLLIN, deadline, interrupt);
    const auto got = ::recv(fd, part.data(), part.size(), kNeverWait);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0 || !reader.feed(std::span(part).first(static_cast<std::size_t>(got)))) return std::nullopt;
  }
}

/// Of one at whose place nobody listens any more, as those of the old communicator do.
RegroupWord word_of_leaver(int rank) {
  RegroupWord word;
  word.rank = rank;
  word.state = State::kLeft;
  return word;
}

}  // namespace

/// Somebody who asks; the network thread's.
struct RegroupDesk::Caller {
  std::weak_ptr<Connection> connection;
};

std::shared_ptr<RegroupDesk> RegroupDesk::open(RegroupDeskArguments arguments) {
  const Secret key = desk_key(arguments.secret, arguments.rank);
  auto desk = std::make_shared<RegroupDesk>(std::move(arguments));
  desk->service_ = Network::instance().services().add({key, [weak = std::weak_ptr(desk)](UniqueFd fd) {
                                                         if (const auto self = weak.lock()) {
                                                           self->accepted(std::move(fd));
                                                         }
                                                       }});
  return desk;
}

RegroupDesk::RegroupDesk(RegroupDeskArguments arguments) : arguments_(std::move(arguments)) {
  word_.rank = arguments_.rank;
}

void RegroupDesk::begin(std::vector<int> excluded, std::uint64_t number, const KeyId& name, bool repairs) {
  next_look_ = Clock::now() + kFirstLook;
  interval_ = kFirstLook;
  together_.clear();
  suspicion_.reset();
  remark_.clear();
  highest_number_ = 0;
  heard_of_absence_ = false;
  const std::lock_guard lock(mutex_);
  word_.state = State::kMeets;
  word_.repairs = repairs;
  ++word_.meeting;
  word_.number = number;
  name_ = name;
  word_.excluded = std::move(excluded);
  word_.sentence.clear();
  heard_of_.clear();
  involved_.clear();
  look_now_ = false;
}

void RegroupDesk::end(const std::string& contradiction) {
  const std::lock_guard lock(mutex_);
  word_.state = contradiction.empty() ? State::kIdle : State::kFailed;
  word_.sentence = contradiction;
  std::erase_if(absences_, [&](const auto& absence) { return absence.first == name_; });  // it may be tried again
  if (!contradiction.empty()) word_.failures = std::max(word_.failures + 1, heard_failures_);
}

void RegroupDesk::leave() {
  {
    const std::lock_guard lock(mutex_);
    left_ = true;
  }
  if (!service_) return;
  using Buried = std::pair<std::shared_ptr<RegroupDesk>, std::shared_ptr<void>>;
  Network::instance().bury(std::make_shared<Buried>(shared_from_this(), std::move(service_)));
}

void RegroupDesk::accepted(UniqueFd fd) {
  tune_tcp(fd.get());
  const auto caller = std::make_shared<Caller>();
  Connection::Events events;
  events.on_frame = [weak = weak_from_this(), caller](const Frame& frame) {
    const auto desk = weak.lock();
    const auto connection = caller->connection.lock();
    if (!desk || !connection) return;
    desk->on_frame(frame, *connection);
  };
  events.on_closed = [](const Ending&) {};
  // Frames are read later, on this very thread; until then the connection keeps itself alive.
  caller->connection = Connection::start(std::move(fd), Network::instance().reactor(), std::move(events));
}

void RegroupDesk::on_frame(const Frame& frame, Connection& caller) {
  const auto question = frame.type == FrameType::kWhom ? decode_regroup_word(frame.payload) : std::nullopt;
  const bool sensible = question && question->rank < static_cast<int>(arguments_.points.size());
  if (sensible) caller.send(frame_of(answer(*question)));
  if (frame.type == FrameType::kAbsent) on_absent(frame);
  caller.close_after_flush();
}

void RegroupDesk::on_absent(const Frame& frame) {
  ByteReader reader(frame.payload);
  KeyId meeting{};
  reader.block(meeting.data(), meeting.size());
  auto failure = reader.ok() ? decode_failure(std::span(frame.payload).subspan(meeting.size())) : std::nullopt;
  if (!failure) return;
  const std::lock_guard lock(mutex_);
  absences_.emplace_back(meeting, std::move(*failure));
  if (absences_.size() > kMostAbsences) absences_.pop_front();
  look_now_ = true;
}

/// Those from this meeting, whose ranks are to be asked again.
std::vector<Failure> RegroupDesk::take_absences_locked() {
  std::vector<Failure> said;
  for (const auto& [meeting, failure] : absences_) {
    if (meeting != name_) continue;
    said.push_back(failure);
    together_.erase(failure.rank);
  }
  std::erase_if(absences_, [&](const auto& absence) { return absence.first == name_; });
  return said;
}

/// Not of a rank that has tried again since, and is here.
void RegroupDesk::throw_word_of_absence(const std::vector<Failure>& said) {
  for (const Failure& failure : said) {
    if (together_.count(failure.rank) != 0) continue;
    heard_of_absence_ = true;
    throw Error(failure.result, failure.sentence);
  }
}

void RegroupDesk::report_absence(std::span<const int> excluded, const KeyId& name,
                                 const std::exception& thrown) const noexcept {
  try {
    const Absence absence(arguments_.rank, thrown, "in ncclCommShrink", name);
    const Deadline deadline = Clock::now() + kTellPatience;
    for (int rank = 0; rank < static_cast<int>(arguments_.points.size()); ++rank) {
      const bool stays = std::find(excluded.begin(), excluded.end(), rank) == excluded.end();
      if (!stays || rank == arguments_.rank) continue;
      const auto address = address_of(rank);
      if (address)
        absence.tell(*address, desk_key(arguments_.secret, rank), std::min(deadline, Clock::now() + kDeskPatience));
    }
  } catch (const std::exception&) {
    // Then they hear of it when their time is over.
  }
}

/// Nothing if it is none.
std::optional<SocketAddress> RegroupDesk::address_of(int rank) const {
  ByteReader reader(std::as_bytes(std::span(arguments_.points.at(static_cast<std::size_t>(rank)))));
  SocketAddress address = SocketAddress::decode(reader);
  if (!reader.ok()) return std::nullopt;
  if (address.is_link_local()) address.scope = arguments_.scope;
  return address;
}

RegroupWord RegroupDesk::answer(const RegroupWord& question) {
  const std::lock_guard lock(mutex_);
  RegroupWord word = word_;
  if (word.state == State::kMeets && question.state == State::kMeets && !is_in_meeting_of(word, question)) {
    // What the other finds wrong this rank finds, too, if it looks.
    if (std::exchange(heard_of_[question.rank], question.meeting) != question.meeting) look_now_ = true;
  }
  if (word.state == State::kFailed && !owes_word(question)) word.state = State::kIdle;
  if (left_ && word.state != State::kFailed) word.state = State::kLeft;
  return word;
}

/// Of a failure: to those whom it concerned, unless they have heard of as many.
bool RegroupDesk::owes_word(const RegroupWord& question) const {
  if (question.failures >= word_.failures) return false;
  if (involved_.count({question.rank, question.meeting}) != 0) return true;
  const bool matters = !leaves_out(question, word_.rank) || (question.repairs && word_.repairs);
  return matters && !leaves_out(word_, question.rank);
}

std::optional<RegroupWord> RegroupDesk::ask(int rank, const Interrupt& interrupt) {
  const Deadline deadline = Clock::now() + kDeskPatience;
  bool interrupted = false;
  const Interrupt watched = [&] {
    interrupted = true;
    interrupt();
    interrupted = false;
  };
  try {
    const auto address = address_of(rank);
    if (!address) return std::nullopt;
    bool refused = false;
    const UniqueFd fd = try_to_connect(*address, desk_key(arguments_.secret, rank), deadline, watched, &refused);
    if (refused) return word_of_leaver(rank);
    if (!fd) return std::nullopt;
    std::vector<std::byte> question;
    {
      const std::lock_guard lock(mutex_);
      question = encode_frame(frame_of(word_));
    }
    if (::send(fd.get(), question.data(), question.size(), kNeverWait) != static_cast<ssize_t>(question.size())) {
      return std::nullopt;
    }
    auto word = read_word(fd.get(), deadline, watched);
    return word && word->rank == rank ? word : std::nullopt;
  } catch (const Error&) {
    if (interrupted) throw;
    return std::nullopt;  // it is asked again
  }
}

std::vector<int> RegroupDesk::members(const RegroupWord& word) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(arguments_.points.size()); ++rank) {
    if (rank != word.rank && !leaves_out(word, rank)) ranks.push_back(rank);
  }
  return ranks;
}

/// Of the first, and those that these wait for, and so on. Who does not answer is not there yet, or is dead, or
/// stopped.
RegroupWords RegroupDesk::ask_around(const RegroupWord& mine, std::vector<int> first, const Interrupt& interrupt) {
  RegroupWords words;
  std::set<int> seen = together_;
  seen.insert(mine.rank);
  std::set<MeetingPoint> silent;
  std::deque<int> to_ask(first.begin(), first.end());
  const auto deadline = Clock::now() + kLookPatience;
  for (; !to_ask.empty() && Clock::now() < deadline; to_ask.pop_front()) {
    const int rank = to_ask.front();
    const MeetingPoint& point = arguments_.points[static_cast<std::size_t>(rank)];
    if (!seen.insert(rank).second || silent.count(point) != 0) continue;
    const auto begin = Clock::now();
    const auto word = ask(rank, interrupt);
    if (!word && Clock::now() - begin >= kDeskPatience) silent.insert(point);
    if (!word) continue;
    words[rank] = *word;
    if (is_in_meeting_of(*word, mine)) {
      together_.insert(rank);
    } else if (word->state == State::kMeets) {
      const std::vector<int> others = members(*word);
      to_ask.insert(to_ask.end(), others.begin(), others.end());
    }
  }
  return words;
}

void RegroupDesk::look(const Interrupt& interrupt) {
  RegroupWord mine;
  std::vector<int> first;
  std::vector<Failure> absences;
  {
    const std::lock_guard lock(mutex_);
    const bool nudged = look_now_ && !suspicion_;  // the second look is not to follow the first at once
    if (!nudged && Clock::now() < next_look_) return;
    look_now_ = false;
    mine = word_;
    absences = take_absences_locked();
    first = members(mine);
    for (const auto& [rank, meeting] : heard_of_) first.push_back(rank);
  }
  const RegroupWords words = ask_around(mine, std::move(first), interrupt);
  interval_ = std::min<Clock::duration>(2 * interval_, kLongestInterval);
  next_look_ = Clock::now() + interval_;
  throw_word_of_absence(absences);
  take_note(mine, words);
  throw_word_of_failure(mine, words);
  auto found = circle_of(mine, words, together_, arguments_.name_of);
  if (found && suspicion_ &&
      std::includes(found->involved.begin(), found->involved.end(), suspicion_->involved.begin(),
                    suspicion_->involved.end())) {
    const std::lock_guard lock(mutex_);
    involved_ = found->involved;
    throw Error(found->code, found->sentence);
  }
  suspicion_ = std::move(found);
  if (!suspicion_) return;
  together_.clear();  // all are to be seen twice
  next_look_ = Clock::now() + kSecondLook;
}

/// Of ranks that have failed because the lists differ.
void RegroupDesk::throw_word_of_failure(const RegroupWord& mine, const RegroupWords& words) {
  const RegroupWord* teller = nullptr;
  for (const auto& [rank, word] : words) {
    if (word.state != State::kFailed) continue;
    if (teller == nullptr) teller = &word;
    const std::lock_guard lock(mutex_);
    heard_failures_ = std::max(heard_failures_, word.failures);
  }
  if (teller == nullptr) return;
  fail(ncclInvalidUsage, "{}, and the call of {} has failed: {}", excludes(mine, arguments_.name_of),
       arguments_.name_of(teller->rank), teller->sentence);
}

void RegroupDesk::take_note(const RegroupWord& mine, const RegroupWords& words) {
  remark_.clear();
  for (const auto& [rank, word] : words) {
    if (leaves_out(mine, rank)) continue;
    if (word.state == State::kMeets && word.excluded == mine.excluded) {
      highest_number_ = std::max(highest_number_, word.number);
    }
    if (!leaves_out(word, mine.rank) || !remark_.empty()) continue;
    remark_ = formatted("; {}, which this rank waits for, has left it out: {}", arguments_.name_of(rank),
                        excludes(word, arguments_.name_of));
  }
  if (remark_.empty() || std::exchange(remarked_, true)) return;
  log_note("{}{}; ranks that others exclude must not call", excludes(mine, arguments_.name_of), remark_);
}

}  // namespace nitinol
