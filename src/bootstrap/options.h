// What the bootstrap takes from the settings, as plain values: this folder reads no environment.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace nitinol {

struct BootstrapOptions {
  std::string interfaces;                                // NCCL_SOCKET_IFNAME; empty: the automatic choice
  int family = AF_UNSPEC;                                // NCCL_SOCKET_FAMILY: AF_INET, AF_INET6, or AF_UNSPEC for both
  std::optional<std::string> comm_id;                    // NCCL_COMM_ID; set but empty is an error
  std::int64_t retry_count = 34;                         // NCCL_SOCKET_RETRY_CNT
  std::chrono::milliseconds retry_sleep{100};            // NCCL_SOCKET_RETRY_SLEEP_MSEC; grows linearly
  std::int64_t stagger_threshold = 256;                  // NCCL_UID_STAGGER_THRESHOLD, ranks per id
  std::int64_t stagger_rate = 7000;                      // NCCL_UID_STAGGER_RATE, first contacts per second
  std::chrono::milliseconds init_timeout{300'000};       // NITINOL_INIT_TIMEOUT: how long ranks may take to arrive
  std::chrono::milliseconds operation_timeout{300'000};  // how long one barrier, all_gather ... may wait for the others
  std::chrono::milliseconds patience_with_stopped{0};    // the same for those whose process is stopped; 0: as long
  std::chrono::milliseconds grace_of_gone{500};  // how much later the failure watch tells of lost and departed ranks
  std::chrono::milliseconds patience_with_cause{500};  // the cause of a rank's end may be told so much later
  std::chrono::milliseconds warn_after{0};             // NITINOL_WARN_AFTER: a longer wait is in the log; 0: none is
};

}  // namespace nitinol
