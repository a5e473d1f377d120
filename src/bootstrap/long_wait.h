// What the log says of waits for other ranks that take long.
#pragma once

#include <exception>

#include "base/log.h"

namespace nitinol {

/// A warning, of a text that is made only if somebody reads it. Nobody gives a wait up because there is no memory to
/// tell of it.
template <typename Text>
void tell_of_wait(const Text& text) noexcept {
  try {
    if (log_enabled(LogLevel::kWarn, Subsystem::kBootstrap)) log_note("{}", text());
  } catch (const std::exception&) {
  }
}

}  // namespace nitinol
