#include "base/thread_name.h"

#include <pthread.h>

#include <string>

#include "base/settings.h"

namespace nitinol {

void set_thread_name(std::string_view name) {
  if (!settings().flag(Setting::kSetThreadName)) return;
  constexpr std::size_t kLongest = 15;
  pthread_setname_np(pthread_self(), std::string(name.substr(0, kLongest)).c_str());
}

}  // namespace nitinol
