// Objects that are used again, since others may still look at them when they have gone.
#pragma once

#include <mutex>
#include <vector>

namespace nitinol::vgpu {

// Every object of a kind there is, so that leak checkers see them, and those free for reuse.
template <class Object>
class Pool {
 public:
  Object* take() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) {
      if (free_.capacity() <= all_.size()) free_.reserve(2 * all_.size() + 1);  // who gives back needs no memory
      all_.push_back(nullptr);
      return all_.back() = new Object;
    }
    Object* const object = free_.back();
    free_.pop_back();
    return object;
  }
  void give_back(Object* object) {
    std::lock_guard lock(mutex_);
    free_.push_back(object);
  }

 private:
  std::mutex mutex_;
  std::vector<Object*> all_;
  std::vector<Object*> free_;
};

template <class Object>
Pool<Object>& pool() {
  static auto* const instance = new Pool<Object>;
  return *instance;
}

}  // namespace nitinol::vgpu
