// Helpers of the bootstrap's tests: ranks as threads, and short settings.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "bootstrap/bootstrap.h"

namespace nitinol::testing {

inline BootstrapOptions quick_options() {
  BootstrapOptions options;
  options.interfaces = "=lo";
  options.family = AF_INET;
  options.retry_sleep = std::chrono::milliseconds(5);
  options.init_timeout = std::chrono::milliseconds(60'000);
  options.operation_timeout = std::chrono::milliseconds(60'000);
  return options;
}

/// Runs `body` for each rank in a thread of its own.
inline void run_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (auto& thread : threads) thread.join();
}

/// All ranks of a new communicator, joined in threads.
inline std::vector<std::unique_ptr<Bootstrap>> join_all(int nranks, const std::vector<UniqueId>& ids,
                                                        const BootstrapOptions& options = quick_options()) {
  std::vector<std::unique_ptr<Bootstrap>> all(static_cast<std::size_t>(nranks));
  run_threads(nranks, [&](int rank) {
    all[static_cast<std::size_t>(rank)] = Bootstrap::join({ids, rank, nranks, options, nullptr});
  });
  return all;
}

inline std::vector<std::unique_ptr<Bootstrap>> join_all(int nranks, const BootstrapOptions& options = quick_options()) {
  return join_all(nranks, {make_unique_id(options)}, options);
}

/// The Error that `action` throws; one with ncclSuccess if it throws none.
inline Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  return Error(ncclSuccess, "no error");
}

/// Whether the other end of a connection closes it without another byte.
inline bool ends(int fd) {
  pollfd entry{fd, POLLIN, 0};
  char byte = 0;
  return ::poll(&entry, 1, 20'000) == 1 && ::recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

}  // namespace nitinol::testing
