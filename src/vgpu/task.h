// Task: something to run later, move-only, small ones without an allocation. TaskQueue: a ring of things queued.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace nitinol::vgpu {

class Task {
 public:
  Task() = default;

  template <typename Function, typename = std::enable_if_t<!std::is_same_v<std::decay_t<Function>, Task>>>
  explicit Task(Function&& function) {
    using Stored = std::decay_t<Function>;
    if constexpr (fits<Stored>()) {
      new (storage_) Stored(std::forward<Function>(function));
      table_ = &kInlineTable<Stored>;
    } else {
      new (storage_) Stored*(new Stored(std::forward<Function>(function)));
      table_ = &kHeapTable<Stored>;
    }
  }

  Task(Task&& other) noexcept { take(other); }
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() { reset(); }

  // May be called more than once.
  void operator()() { table_->run(storage_); }

  void reset() {
    if (table_ != nullptr) std::exchange(table_, nullptr)->destroy(storage_);
  }

  // Forgets the function without destroying it: whoever made it keeps what it owns. Only for functions stored inline.
  void forget() { table_ = nullptr; }

 private:
  struct Table {
    void (*run)(void* storage);
    void (*move)(void* to, void* from);
    void (*destroy)(void* storage);
  };
  static constexpr size_t kInlineSize = 56;

  template <typename Stored>
  static constexpr bool fits() {
    if (sizeof(Stored) > kInlineSize || alignof(Stored) > alignof(void*)) return false;
    return std::is_nothrow_move_constructible_v<Stored>;
  }

  template <typename Stored>
  static constexpr Table kInlineTable = {
      [](void* storage) { (*static_cast<Stored*>(storage))(); },
      [](void* to, void* from) {
        new (to) Stored(std::move(*static_cast<Stored*>(from)));
        static_cast<Stored*>(from)->~Stored();
      },
      [](void* storage) { static_cast<Stored*>(storage)->~Stored(); },
  };

  template <typename Stored>
  static constexpr Table kHeapTable = {
      [](void* storage) { (**static_cast<Stored**>(storage))(); },
      [](void* to, void* from) { new (to) Stored*(*static_cast<Stored**>(from)); },
      [](void* storage) { delete *static_cast<Stored**>(storage); },
  };

  void take(Task& other) {
    table_ = std::exchange(other.table_, nullptr);
    if (table_ != nullptr) table_->move(storage_, other.storage_);
  }

  const Table* table_ = nullptr;
  alignas(void*) unsigned char storage_[kInlineSize];
};

// First in, first out; keeps its memory.
template <typename T>
class RingQueue {
 public:
  bool empty() const { return size_ == 0; }
  T& front() { return slots_[first_]; }

  // The new last one, for the caller to fill: it is what some earlier one was left as.
  T& add() {
    if (size_ == slots_.size()) grow();
    return slots_[(first_ + size_++) & (slots_.size() - 1)];
  }

  void pop() {
    first_ = (first_ + 1) & (slots_.size() - 1);
    --size_;
  }

 private:
  void grow() {
    std::vector<T> larger(slots_.empty() ? 8 : 2 * slots_.size());
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move(slots_[(first_ + i) & (slots_.size() - 1)]);
    slots_ = std::move(larger);
    first_ = 0;
  }

  std::vector<T> slots_;  // as many as a power of two
  size_t first_ = 0;
  size_t size_ = 0;
};

}  // namespace nitinol::vgpu
