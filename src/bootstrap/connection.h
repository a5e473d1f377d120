// An authenticated connection that carries frames. The network thread reads; anyone may send, and never waits for it:
// what the socket does not take at once is queued.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/fork_guard.h"
#include "bootstrap/frame.h"
#include "bootstrap/reactor.h"

namespace nitinol {

using SharedBytes = std::shared_ptr<const std::vector<std::byte>>;

/// How a connection came to its end.
struct Ending {
  std::string reason;         ///< to be put behind a sentence: " (reason)", or nothing if the peer just closed
  bool closed_here = false;   ///< not the peer did it: somebody in this process has closed what is not his
  bool lacks_memory = false;  ///< and it was for that
};

class Connection : public Reactor::Leaver, public std::enable_shared_from_this<Connection> {
 public:
  /// Run on the network thread. `on_closed` is the last call; neither comes after a close from this side, except for
  /// one that is under way.
  struct Events {
    std::function<void(Frame)> on_frame;
    std::function<void(const Ending&)> on_closed;
  };

  /// Takes the descriptor only if it throws nothing.
  static std::shared_ptr<Connection> start(UniqueFd&& fd, Reactor& reactor, Events events);

  Connection(Reactor& reactor, Events events);
  ~Connection() override;

  void send(const Frame& frame);
  /// Sends a frame of the given header with a payload that several connections may share.
  void send(const Frame& header, const SharedBytes& payload);
  /// Sends bytes of whole frames without taking memory. False: the socket did not take them all, or others are on their
  /// way; it is to be closed.
  bool send_at_once(std::span<const std::byte> bytes) noexcept;
  /// The same at the end of the process: nothing is sent, and nobody waited for, while another thread sends.
  void send_if_free(std::span<const std::byte> bytes) noexcept;
  /// What the peer is to be sent if there is no memory to go on: whole frames.
  void keep_last_word(SharedBytes bytes);
  /// Sends a small frame with a descriptor beside it, as the first that this Unix connection sends. False: not
  /// possible.
  bool send_descriptor(const Frame& frame, int descriptor);

  /// True once everything was handed to the system, or cannot be any more.
  bool flushed() const;

  /// Sends what is queued, then closes; the peer gets a few seconds to close its side first.
  void close_after_flush() noexcept;
  void close_now() noexcept;

 private:
  struct Chunk {
    SharedBytes bytes;
    std::size_t offset = 0;
  };

  bool send_at_once_locked(std::span<const std::byte> bytes) noexcept;
  void begin();
  void leave() override;
  void linger();
  void on_events(std::uint32_t events);
  bool read_some();  // false: closed
  void flush_locked();
  void ask_to_arm();
  void update_interest();
  void on_closed_descriptor(std::uint32_t events);
  template <typename Step>
  void attempt(const Step& step);
  void say_last_word() noexcept;
  void finish(const Ending& ending);
  void give_up_descriptor();

  Reactor& reactor_;
  mutable std::mutex mutex_;  // guards fd_ against closing, queue_, last_word_, arming_, armed_, broken_
  GuardedFd fd_;
  std::deque<Chunk> queue_;
  SharedBytes last_word_;
  std::atomic<bool> at_once_{false};  // it is to close without a flush
  bool arming_ = false;               // the network thread has been asked to look at the queue
  bool armed_ = false;                // waiting for room in the socket
  bool is_ours_ = true;               // false: the program has closed it
  bool broken_ = false;               // sending failed; the reading side finds out why
  // Network thread only:
  Events events_;
  FrameReader reader_;
  Reactor::Token token_ = 0;
  bool closing_ = false;
  bool shut_ = false;
  std::optional<Reactor::Timer> linger_;  ///< holds this object until it ends
};

/// For send and recv: nobody waits in them, not even if the program has closed the socket and its number is another's.
inline constexpr int kNeverWait = MSG_NOSIGNAL | MSG_DONTWAIT;

/// Settings of a TCP connection that lives long: no delay, and a peer whose host vanished is noticed in about a minute.
void tune_tcp(int fd);

}  // namespace nitinol
