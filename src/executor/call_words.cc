#include "executor/call_words.h"

#include "base/error.h"

namespace nitinol {

std::string describe_rank(int rank, const std::string& host, int pid, int device) {
  return formatted("rank {} (host {}, pid {}, device {})", rank, host, pid, device);
}

std::string describe_rank(int rank, const Peer& who) {
  return describe_rank(rank, who.host_name.data(), who.pid, who.device);
}

ProcessState process_of(const Peer& who, const Peer& self) {
  return who.process == self.process ? ProcessState::kRunning : process_state(who.pid, who.pid_namespace);
}

std::string mismatch_sentence(int rank, const std::string& mine, const std::string& peer, const std::string& theirs) {
  return formatted(
      "the ranks' calls do not match: rank {} calls {}, {} calls {}; all ranks must make the same calls in the same "
      "order, with the same sizes",
      rank, mine, peer, theirs);
}

std::string leaver_sentence(int rank, const std::string& mine, const std::string& peer) {
  return formatted("the ranks' calls do not match: rank {} calls {}, but {} finalizes or destroys its communicator",
                   rank, mine, peer);
}

std::string stopped_sentence(int rank, const std::string& mine, const std::string& peer) {
  return formatted(
      "rank {} waits in {}, but {} carries out nothing any more in this communicator, which was revoked or aborted or "
      "has failed there",
      rank, mine, peer);
}

std::string dead_sentence(int rank, const std::string& mine, const std::string& peer) {
  return formatted("rank {} waits in {}, but the process of {} is dead", rank, mine, peer);
}

std::string behind_the_end_of_its_communicator(const std::string& sentence) {
  return formatted("{}; its communicator has ended, whose graphs do nothing any more", sentence);
}

std::string message_sentence(int rank, const std::string& mine, const std::string& peer, const std::string& reason) {
  return formatted(
      "the ranks' calls do not match: rank {} waits in {} for {}, {}; all ranks must make the same calls in the same "
      "order",
      rank, mine, peer, reason);
}

std::string unreceived_sentence(const std::string& sender, const std::string& receiver, int to, uint64_t sent,
                                const MessageSignature& first) {
  return formatted(
      "the ranks' calls do not match: {} has sent {} {} to {}, which has received {}; nobody has received {} "
      "before all finalized or destroyed their communicator",
      sender, sent, sent == 1 ? "message" : "messages", receiver, first.number - 1, first.text(true, to));
}

std::string delay_sentence(int rank, const std::string& what, std::chrono::milliseconds waited, Delay delay,
                           const std::string& doings) {
  return formatted("rank {}: {} no progress for {} ms ({}); {}", rank, what, waited.count(),
                   delay == Delay::kOver ? "NITINOL_TIMEOUT" : "NITINOL_TIMEOUT ends such waits", doings);
}

std::string reason_leaving() { return "which finalizes or destroys its communicator"; }

std::string reason_collective(const Signature& collective, int rank) {
  return formatted("which is in {} and cannot leave it before rank {} has joined it", collective.text(), rank);
}

std::string reason_next(const Signature& collective, int rank) {
  return formatted("which calls {} next and cannot leave it before rank {} has joined it", collective.text(), rank);
}

namespace {

std::string words_for(const CircleStep& step) {
  if (!step.call.empty()) return formatted("in {} for", step.call);
  switch (step.waiting) {
    case Waiting::kReceive: return "to receive from";
    case Waiting::kSend: return "to send to";
    case Waiting::kCollective: break;
  }
  return "in a collective for";
}

}  // namespace

std::string circle_sentence(const std::vector<CircleStep>& circle) {
  std::string text;
  for (const CircleStep& step : circle) {
    text += text.empty() ? formatted("{} waits {}", step.who, words_for(step))
                         : formatted(" {}, which waits {}", step.who, words_for(step));
  }
  return formatted(
      "the ranks' calls wait for each other in a circle: {} {}; each would go on only by a call that another makes "
      "after the one in which it waits: sends and receives that depend on each other belong into one group "
      "(ncclGroupStart)",
      text, circle.front().who);
}

namespace {

std::string name_of_call(const Holder& holder) {
  std::string communicator;  // as other messages have it
  for (const uint64_t word : holder.communicator) {
    for (int i = 0; i < 8; ++i) communicator += formatted("{:02x}", word >> (8 * i) & 0xff);
  }
  const bool message_known = holder.message.message.number > 0;
  const std::string call = holder.host_call != HostCall::kNone ? name_of(holder.host_call)
                           : holder.call.sequence > 0          ? holder.call.text()
                           : message_known                     ? holder.message.text()
                                                               : "a group of sends and receives";
  return formatted("{} on communicator {} (there rank {})", call, communicator, holder.rank);
}

}  // namespace

std::string reason_held_up(const Holder& holder) {
  return formatted("which has it behind {} in its stream", name_of_call(holder));
}

std::string reason_on_host(const Holder& holder) {
  return formatted("which calls nothing while its program waits on the host for {}", name_of_call(holder));
}

std::string long_circle_sentence(int rank, const std::string& mine, const std::string& peer,
                                 const std::string& reason) {
  return formatted(
      "the ranks' calls wait for each other in a circle over several communicators: rank {} waits in {} for {}, {}, "
      "and that waits, there or by way of further ones, for rank {} to end what it waits in; all ranks must make the "
      "calls on all communicators in the same order, and each rank needs a stream of its own",
      rank, mine, peer, reason, rank);
}

std::string host_circle_sentence(int rank, const std::string& mine, const std::string& peer,
                                 const std::string& reason) {
  return formatted(
      "the ranks' calls wait for each other in a circle over waits on the host: rank {} waits in {} for {}, {}, and "
      "that waits, there or by way of further ones, for rank {} to end what it waits in; a program must not wait for "
      "calls that need its later ones: those of one thread for several ranks belong into one group "
      "(ncclGroupStart), and those on several communicators must have the same order on all ranks",
      rank, mine, peer, reason, rank);
}

namespace {

std::string words_for_last(const Doings& doings) {
  if (doings.last) return formatted("its last collective was {}", doings.last->text());
  if (doings.begun > 0) return formatted("its last collective was number {}", doings.begun);
  return "it has not begun any collective";
}

/// What it has launched besides, if all of that is sends and receives.
std::string words_for_messages(const Doings& doings) {
  if (doings.begun > 0 || doings.launches_ended == 0) return "";
  const char* const what = doings.launches_ended == 1 ? "launch" : "launches";
  return formatted(", but ended {} {} of sends and receives", doings.launches_ended, what);
}

std::string words_for_held(const Doings& doings) {
  const bool one = doings.launches_held == 1;
  return formatted("it has issued {} {} that {} not begun{}, ", doings.launches_held, one ? "launch" : "launches",
                   one ? "has" : "have",
                   doings.holder ? formatted(", behind {} in its stream", name_of_call(*doings.holder)) : "");
}

}  // namespace

std::string words_for_doings(const Doings& doings) {
  std::string doing = words_for_last(doings) + words_for_messages(doings);
  if (doings.running.value_or(false) && doings.last) {
    doing = formatted("it is in {}", doings.last->text());
  } else if (doings.in_messages) {
    doing = "it is in a group of sends and receives, " + doing;
  } else if (doings.launches_held > 0) {
    doing = words_for_held(doings) + doing;
  } else if (doings.reaching) {
    doing = "it is about to make a call, for which it has to reach other ranks' memory, " + doing;
  } else if (!doings.running.value_or(true)) {
    doing = "idle, " + doing;
  }
  if (doings.stopped)
    doing += ", and carries out nothing any more: its communicator was revoked or aborted or has failed";
  return doing;
}

std::string doings_text(const std::string& who, const Doings& doings) {
  return formatted("{}: {}; {}", who, words_for(doings.process), words_for_doings(doings));
}

}  // namespace nitinol
