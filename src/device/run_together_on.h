// Runs at the same time what uses devices.
#pragma once

#include <cstddef>

#include "base/run_together.h"
#include "device/guards.h"

namespace nitinol {

/// run_together(), where body(i) uses the device device_of(i): threads of the library's own settle on it. The first
/// body runs on the caller's thread, whose device is the caller's business.
template <class DeviceOf, class Body>
void run_together_on(std::size_t count, const DeviceOf& device_of, const Body& body) {
  run_together(count, [&](std::size_t i) {
    if (i != 0) settle_on(device_of(i));
    body(i);
  });
}

}  // namespace nitinol
