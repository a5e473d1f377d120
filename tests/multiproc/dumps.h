// What a communicator's flight recorder comes to say.
#pragma once

#include <chrono>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>

#include "cluster.h"
#include "nccl.h"
#include "nitinol.h"

namespace nitinol::testing {

using Dump = nlohmann::json;

/// Once what is dumped is so.
inline void dump_until(ncclComm_t comm, const std::string& path, const std::function<bool(const Dump&)>& is_so) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (true) {
    EXPECT_CALL(nitinolCommDump(comm, path.c_str()));
    std::ifstream file(path);
    const auto dump = Dump::parse(file);
    if (is_so(dump)) return;
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("it never comes so far: " + dump.dump(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// Whether the first operation reaches other ranks' memory.
inline bool is_setting_up(const Dump& dump) {
  return !dump["traceEvents"].empty() && dump["traceEvents"][0]["args"]["state"] == "setup";
}

}  // namespace nitinol::testing
