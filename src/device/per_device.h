// What a process has once for each of its devices.
#pragma once

#include <map>
#include <memory>
#include <mutex>

namespace nitinol {

/// The device's, made at the first call and never freed: communicators may go when the process ends. Any thread.
template <class T>
T& per_device(int device) {
  struct Devices {
    std::mutex mutex;
    std::map<int, std::unique_ptr<T>> all;
  };
  static Devices* const devices = new Devices;
  const std::lock_guard lock(devices->mutex);
  std::unique_ptr<T>& one = devices->all[device];
  if (one == nullptr) one = std::make_unique<T>();
  return *one;
}

}  // namespace nitinol
