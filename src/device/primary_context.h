// The context of a thread that has never chosen a device.
#pragma once

#if defined(NITINOL_CUDA)

#include <cuda.h>

#include <mutex>

#include "device/driver_function.h"
#include "device/per_device.h"

namespace nitinol {

/// Makes a device's primary context current and leaves the thread as it was, mostly without one: to put back the device
/// that the runtime names on such a thread, which is device 0, would make a context on that GPU, which takes hundreds
/// of megabytes there.
class PrimaryContext {
 public:
  /// For a thread that has no context. False, and nothing is changed: it has one, or the driver has none for it.
  bool push(int device) {
    pushed_ = is_needed() && push_retained(device);
    return pushed_;
  }
  /// The same for a thread that may have one, as the program's own or a green one.
  bool push_in_any_case(int device) {
    pushed_ = driver().complete && push_retained(device);
    return pushed_;
  }
  /// False: nothing was pushed.
  bool pop() {
    CUcontext popped = nullptr;
    if (pushed_) static_cast<void>(driver().pop(&popped));
    return pushed_;
  }

 private:
  struct Driver {
    decltype(&::cuCtxGetCurrent) get = driver_function<decltype(get)>("cuCtxGetCurrent");
    decltype(&::cuDevicePrimaryCtxRetain) retain = driver_function<decltype(retain)>("cuDevicePrimaryCtxRetain");
    decltype(&::cuCtxPushCurrent) push = driver_function<decltype(push)>("cuCtxPushCurrent");
    decltype(&::cuCtxPopCurrent) pop = driver_function<decltype(pop)>("cuCtxPopCurrent");
    bool complete = get != nullptr && retain != nullptr && push != nullptr && pop != nullptr;
  };
  static const Driver& driver() {
    static const Driver found;
    return found;
  }

  /// For good: to let go of a context that nobody else has retained would destroy it.
  struct Retained {
    std::mutex mutex;
    CUcontext context = nullptr;

    CUcontext of(int device) {
      const std::lock_guard lock(mutex);
      if (context == nullptr && driver().retain(&context, device) != CUDA_SUCCESS) context = nullptr;
      return context;
    }
  };

  static bool is_needed() {
    CUcontext now = nullptr;
    return driver().complete && driver().get(&now) == CUDA_SUCCESS && now == nullptr;
  }
  static bool push_retained(int device) {
    const CUcontext primary = per_device<Retained>(device).of(device);
    return primary != nullptr && driver().push(primary) == CUDA_SUCCESS;
  }

  bool pushed_ = false;
};

}  // namespace nitinol

#else

namespace nitinol {

/// Virtual GPUs have no contexts.
class PrimaryContext {
 public:
  static constexpr bool push(int) { return false; }
  static constexpr bool push_in_any_case(int) { return false; }
  static constexpr bool pop() { return false; }
};

}  // namespace nitinol

#endif
