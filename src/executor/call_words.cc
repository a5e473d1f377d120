#include "executor/call_words.h"

#include "base/error.h"

namespace nitinol {

std::string describe_rank(int rank, const std::string& host, int pid, int device) {
  return formatted("rank {} (host {}, pid {}, device {})", rank, host, pid, device);
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

std::string message_sentence(int rank, const std::string& peer, const std::string& reason) {
  return formatted(
      "the ranks' calls do not match: rank {} waits for a message from or to {}, {}; all ranks must make the same "
      "calls in the same order",
      rank, peer, reason);
}

std::string reason_leaving() { return "which finalizes or destroys its communicator"; }

std::string reason_collective(const Signature& collective, int rank) {
  return formatted("which is in {} and cannot leave it before rank {} has joined it", collective.text(), rank);
}

std::string doings_text(const std::string& who, const Doings& doings) {
  std::string doing = doings.begun == 0 ? "idle, it has not begun any collective"
                                        : formatted("its last collective was number {}", doings.begun);
  if (doings.last) {
    const char* const how = !doings.running   ? "its last collective was"
                            : *doings.running ? "it is in"
                                              : "idle, its last collective was";
    doing = formatted("{} {}", how, doings.last->text());
  }
  if (doings.in_messages) doing += ", and in a group of sends and receives";
  return formatted("{}: {}; {}", who, words_for(doings.process), doing);
}

}  // namespace nitinol
