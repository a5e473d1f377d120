#include "executor/cpu/messages.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "algorithm/primitives.h"

namespace nitinol::cpu {

namespace {

using Direction = MessageWork::Direction;

/// Sends start with the next rank and receives with the previous one, so that not everybody sends to the same rank
/// first.
int distance_to(const MessageWork& message, const Rank& rank) {
  return message.is_send() ? algorithm::rank_before(message.peer, rank.rank(), rank.ranks())
                           : algorithm::rank_before(rank.rank(), message.peer, rank.ranks());
}

}  // namespace

void Messages::assign(const std::vector<MessageWork>& messages, const Rank& rank) {
  messages_ = messages;
  queues_.clear();
  self_sends_ = self_receives_ = 0;
  const auto key = [&](const MessageWork& message) {
    return std::make_tuple(distance_to(message, rank), static_cast<int>(message.direction));
  };
  const auto before = [&](const MessageWork& a, const MessageWork& b) { return key(a) < key(b); };
  if (messages_.size() > 1) std::stable_sort(messages_.begin(), messages_.end(), before);
  for (size_t i = 0; i < messages_.size(); ++i) {
    const MessageWork& message = messages_[i];
    if (message.peer == rank.rank()) {
      ++(message.is_send() ? self_sends_ : self_receives_);
      continue;
    }
    if (queues_.empty() || queues_.back().peer != message.peer || queues_.back().direction != message.direction) {
      queues_.push_back({.peer = message.peer, .direction = message.direction, .first = i});
    }
    ++queues_.back().count;
  }
  active_.reserve(queues_.size());
}

/// The i-th send to the rank itself goes into its i-th receive.
bool Messages::copy_to_self(Rank& rank) {
  if (self_sends_ != self_receives_) {
    rank.report(ncclInvalidUsage,
                formatted("rank {} has {} sends to itself and {} receives from itself in one group: they must pair",
                          rank.rank(), self_sends_, self_receives_));
    return false;
  }
  for (size_t i = 0; i < self_sends_; ++i) {
    const MessageWork& send = messages_[i];
    const MessageWork& receive = messages_[self_sends_ + i];
    if (send.bytes != receive.bytes) {
      rank.report(ncclInvalidUsage, formatted("rank {} sends {} bytes to itself and receives {}", rank.rank(),
                                              send.bytes, receive.bytes));
      return false;
    }
    if (send.bytes > 0 && send.buffer != receive.buffer) std::memmove(receive.buffer, send.buffer, send.bytes);
  }
  return true;
}

bool Messages::ready(Rank& rank, const Queue& queue) const {
  Link& link = rank.link_to(queue.peer, Lane::kMessages);
  return queue.direction == Direction::kSend ? Rank::has_room(link) : Rank::filled(link);
}

/// The message of the queue that has not ended.
MessageSignature Messages::present(Rank& rank, const Queue& queue) const {
  const MessageWork& message = messages_[queue.first + queue.next];
  const Link& link = rank.link_to(queue.peer, Lane::kMessages);
  const uint64_t begun = message.is_send() ? link.messages_out : link.messages_in;
  return {.number = begun + (queue.offset == 0 ? 1 : 0), .bytes = message.bytes, .type = message.stated};
}

void Messages::put_piece(Rank& rank, const Queue& queue, const std::byte* from, size_t bytes) {
  const MessageWork& message = messages_[queue.first + queue.next];
  Link& link = rank.link_to(queue.peer, Lane::kMessages);
  if (queue.offset == 0) ++link.messages_out;
  const MessageSignature signature{.number = link.messages_out, .bytes = message.bytes, .type = message.stated};
  link.out->notes[link.sent % kSlots].write(signature);
  if (bytes > 0) std::memcpy(rank.free_data(link, Lane::kMessages, bytes), from, bytes);
  rank.publish(queue.peer, Lane::kMessages, bytes, signature.tag() << 8);
}

/// False if it is not of the message that is expected.
bool Messages::take_piece(Rank& rank, const Queue& queue, std::byte* into, size_t bytes) {
  const MessageWork& message = messages_[queue.first + queue.next];
  Link& link = rank.link_to(queue.peer, Lane::kMessages);
  if (queue.offset == 0) ++link.messages_in;
  const MessageSignature signature{.number = link.messages_in, .bytes = message.bytes, .type = message.stated};
  if (Rank::filled_bytes(link) != bytes || Rank::filled_tag(link) != signature.tag()) {
    const MessageSignature theirs = link.in->notes[link.received % kSlots].read();
    rank.report_mismatch(signature.text(false, queue.peer), queue.peer, theirs.text(true, rank.rank()));
    return false;
  }
  if (bytes > 0) std::memcpy(into, rank.filled_data(link, Lane::kMessages, bytes), bytes);
  rank.release(queue.peer, Lane::kMessages);
  return true;
}

/// Moves one piece of the queue, which is ready. False if what arrived is not what was expected.
bool Messages::advance(Rank& rank, Queue& queue) {
  const MessageWork& message = messages_[queue.first + queue.next];
  const size_t bytes = std::min(message.bytes - queue.offset, rank.slot_bytes(Lane::kMessages));
  std::byte* const data = static_cast<std::byte*>(message.buffer) + queue.offset;
  if (queue.direction == Direction::kSend) {
    put_piece(rank, queue, data, bytes);
  } else if (!take_piece(rank, queue, data, bytes)) {
    return false;
  }
  queue.offset += bytes;
  if (queue.offset == message.bytes) {
    ++queue.next;
    queue.offset = 0;
  }
  return true;
}

void Messages::run(Rank& rank) {
  if (rank.stopped() || !copy_to_self(rank)) return;
  active_.clear();
  for (size_t i = 0; i < queues_.size(); ++i) {
    queues_[i].next = queues_[i].offset = 0;
    active_.push_back(i);
  }
  const auto any_ready = [&] {
    return std::any_of(active_.begin(), active_.end(), [&](size_t i) { return ready(rank, queues_[i]); });
  };
  const auto awaited = [&] {
    std::vector<Awaited> all;
    for (const size_t i : active_) {
      const Queue& queue = queues_[i];
      const bool sends = queue.direction == Direction::kSend;
      auto known = std::find_if(all.begin(), all.end(), [&](const Awaited& a) { return a.peer == queue.peer; });
      if (known == all.end()) known = all.insert(known, Awaited{.peer = queue.peer});
      known->what |= sends ? kAwaitsFreed : kAwaitsFilled;
      (sends ? known->sends : known->receives) = present(rank, queue);
    }
    return all;
  };
  while (!active_.empty()) {
    bool moved = false;
    for (const size_t i : active_) {
      if (!ready(rank, queues_[i])) continue;
      if (!advance(rank, queues_[i])) return;
      moved = true;
    }
    if (moved) {
      std::erase_if(active_, [&](size_t i) { return queues_[i].next == queues_[i].count; });
    } else if (!rank.await_anything(any_ready, awaited)) {
      return;
    }
    if (rank.stopped()) return;
  }
}

}  // namespace nitinol::cpu
