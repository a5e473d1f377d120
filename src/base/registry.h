// The live objects of one type in this process.
#pragma once

#include <mutex>
#include <vector>

namespace nitinol {

/// To be held under its lock. It is never destroyed: objects may go away while the process exits.
template <class T>
struct Registry {
  std::mutex mutex;
  std::vector<T*> all;

  static Registry& of_process() {
    static auto* const the_one = new Registry;
    return *the_one;
  }
};

}  // namespace nitinol
