// For tests: an environment variable that is set, or removed, while an object lives. Not for use while other threads
// read settings.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include "base/settings.h"

namespace nitinol {

class ScopedVariable {
 public:
  /// nullptr removes the variable.
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    put(value);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { put(old_ ? old_->c_str() : nullptr); }

 private:
  void put(const char* value) const {
    if (value == nullptr) {
      unsetenv(name_.c_str());
    } else {
      setenv(name_.c_str(), value, 1);
    }
    settings().forget();
  }
  std::string name_;
  std::optional<std::string> old_;
};

}  // namespace nitinol
