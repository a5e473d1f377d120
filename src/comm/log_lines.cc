// The lines of the log that tell of a communicator's beginning and end, as scripts that read NCCL's expect them.
#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/settings.h"
#include "base/split.h"
#include "comm/communicator.h"
#include "diagnostics/ras/report.h"

namespace nitinol {
namespace {

/// "7000" of 0000:07:00.0; "0" where CUDA does not say.
std::string bus_id_of(int device) {
  std::array<char, 32> text{};
  if (cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return "0";
  }
  std::string digits = text.data();
  std::erase_if(digits, [](char c) { return c == ':' || c == '.'; });
  std::transform(digits.begin(), digits.end(), digits.begin(), [](unsigned char c) { return std::tolower(c); });
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  return digits;
}

/// The device's number on the host, as far as CUDA_VISIBLE_DEVICES tells it by numbers.
int64_t number_on_host(int device) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::vector<std::string_view> numbers = split(visible != nullptr ? visible : "", ',');
  const auto place = static_cast<size_t>(device);
  return place < numbers.size() ? parse_integer(numbers[place]).value_or(device) : device;
}

}  // namespace

std::string Communicator::place_in_log() const {
  return formatted("comm {} rank {} nranks {} cudaDev {}", handle_, rank_, ranks_, device_);
}

void Communicator::log_init(const char* step) const {
  if (!log_enabled(LogLevel::kInfo, Subsystem::kInit)) return;
  constexpr size_t kDigitsOfId = 16;
  const std::string name = config_.name.empty() ? "" : formatted(" commName {}", config_.name);
  log_info(Subsystem::kInit, "{} {} nvmlDev {} busId {} commId 0x{}{} - Init {}", made_by_, place_in_log(),
           number_on_host(device_), bus_id_of(device_), ras::text_of(identity_).substr(0, kDigitsOfId), name, step);
}

void Communicator::log_completion(Subsystem subsystem, const char* step) const {
  if (!log_enabled(LogLevel::kInfo, subsystem)) return;
  log_info(subsystem, "{} busId {} - {} COMPLETE", place_in_log(), bus_id_of(device_), step);
}

}  // namespace nitinol
