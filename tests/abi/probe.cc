// Prints what values.def lists of the nccl.h it is compiled with, and refuses to compile if a prototype differs.
// Compiled with both headers; a test compares the outputs.
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <type_traits>

#ifdef PROBE_DEVICE
#include "nccl_device.h"
#else
#include "nccl.h"
#endif

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

// NOLINTBEGIN(bugprone-macro-parentheses): types cannot stand in parentheses
#ifdef PROBE_DEVICE
// By a cast, since a header may overload a name for device code; the twins are not declared in every header.
#define FUNCTION(result, name, parameters) static_assert(sizeof(static_cast<result(*) parameters>(&nccl##name)) > 0);
#include "device_functions.def"
#undef FUNCTION
#endif

#ifndef PROBE_DEVICE
#define FUNCTION(result, name, parameters)                                    \
  static_assert(std::is_same_v<decltype(&nccl##name), result(*) parameters>); \
  static_assert(std::is_same_v<decltype(&pnccl##name), result(*) parameters>);
#include "functions.def"
#undef FUNCTION
// NOLINTEND(bugprone-macro-parentheses)
static_assert(std::is_same_v<ncclComm_t, struct ncclComm*>);
static_assert(std::is_same_v<ncclWindow_t, struct ncclWindow_vidmem*>);
static_assert(std::is_same_v<ncclConfig_t, struct ncclConfig_v22800>);
static_assert(std::is_same_v<ncclSimInfo_t, struct ncclSimInfo_v22200>);
static_assert(std::is_same_v<decltype(ncclConfig_t::netName), const char*>);
static_assert(std::is_same_v<decltype(ncclConfig_t::commName), const char*>);
static_assert(std::is_same_v<decltype(ncclConfig_t::magic), unsigned int>);
static_assert(std::is_same_v<decltype(ncclSimInfo_t::estimatedTime), float>);
#endif

namespace {

template <typename T>
void print_bytes(const char* what, const T& object) {
  unsigned char bytes[sizeof(T)];
  std::memcpy(bytes, &object, sizeof(T));
  std::printf("%s:", what);
  for (const unsigned char byte : bytes) std::printf(" %02x", byte);
  std::printf("\n");
}

}  // namespace

#define VALUE(constant) std::printf("%s = %.17g\n", #constant, static_cast<double>(constant));
#define SIZE(type) std::printf("sizeof(%s) = %zu, alignof %zu\n", #type, sizeof(type), alignof(type));
#define OFFSET(type, field) \
  std::printf("%s.%s at %zu, %zu bytes\n", #type, #field, offsetof(type, field), sizeof(type::field));

int main() {
#ifdef PROBE_DEVICE
#include "device_values.def"
#else
#include "values.def"
  ncclConfig_t config;
  std::memset(&config, 0, sizeof config);
  config = NCCL_CONFIG_INITIALIZER;
  print_bytes("NCCL_CONFIG_INITIALIZER", config);
  ncclSimInfo_t info;
  std::memset(&info, 0, sizeof info);
  info = NCCL_SIM_INFO_INITIALIZER;
  print_bytes("NCCL_SIM_INFO_INITIALIZER, without padding", info.estimatedTime);
  std::printf("%zu %x %u\n", info.size, info.magic, info.version);
  std::printf("suffix '%s', null %d %d\n", NCCL_SUFFIX, NCCL_COMM_NULL == NULL, NCCL_CONFIG_UNDEF_PTR == NULL);
#endif
  return 0;
}
