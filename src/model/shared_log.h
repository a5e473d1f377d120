// A ring of numbered notes, in shared memory for one: written by one rank, read by any, nothing ever waits.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace nitinol {

/// The last `kNotes` notes of `kWords` words each, numbered from 1 without a gap. All zero at first. What lies in the
/// memory is only as good as whoever writes it: numbers and words may be anything.
template <size_t kNotes, size_t kWords>
class SharedLog {
 public:
  static constexpr size_t kKept = kNotes;
  using Words = std::array<uint64_t, kWords>;

  /// By the one writer; `number` is one more than the last.
  void add(uint64_t number, const Words& words) {
    Note& note = notes_[number % kKept];
    note.number.store(0, std::memory_order_relaxed);
    for (size_t i = 0; i < kWords; ++i) note.words[i].store(words[i], std::memory_order_release);
    note.number.store(number, std::memory_order_release);
    last_.store(number, std::memory_order_release);
  }

  uint64_t last() const { return last_.load(std::memory_order_acquire); }

  /// Nothing if it was not written yet, was overwritten, or is being overwritten in this moment.
  std::optional<Words> find(uint64_t number) const {
    const Note& note = notes_[number % kKept];
    if (number == 0 || note.number.load(std::memory_order_acquire) != number) return std::nullopt;
    Words words;
    for (size_t i = 0; i < kWords; ++i) words[i] = note.words[i].load(std::memory_order_acquire);
    if (note.number.load(std::memory_order_acquire) != number) return std::nullopt;
    return words;
  }

 private:
  struct Note {
    std::atomic<uint64_t> number;
    std::array<std::atomic<uint64_t>, kWords> words;
  };
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  std::atomic<uint64_t> last_;
  std::array<Note, kNotes> notes_;
};

}  // namespace nitinol
