// The C++ half of header_c.c, in C++11, the oldest dialect that CUDA's own headers take.
#include <cstdio>
#include <type_traits>

#include "nccl.h"
#include "nccl_device.h"
#include "nitinol.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

// NOLINTBEGIN(bugprone-macro-parentheses): types cannot stand in parentheses
#define FUNCTION(result, name, parameters)                                                       \
  static_assert(std::is_same<decltype(&nccl##name), result(*) parameters>::value, "nccl" #name); \
  static_assert(std::is_same<decltype(&pnccl##name), result(*) parameters>::value, "pnccl" #name);
#include "device_functions.def"
#include "functions.def"
#undef FUNCTION
// NOLINTEND(bugprone-macro-parentheses)

static_assert(std::is_trivial<ncclUniqueId>::value && sizeof(ncclUniqueId) == 128, "an id is plain bytes");
static_assert(sizeof(ncclRedOp_t) == sizeof(int) && ncclMaxRedOp == 0x7fffffff, "operators fill an int");

// A profiler defines a function of the API itself and reaches the library through the other name.
static int seen = 0;
ncclResult_t ncclGetVersion(int* version) {
  ++seen;
  return pncclGetVersion(version);
}

int main() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  int version = 0;
  const bool good = ncclGetVersion(&version) == ncclSuccess && version == NCCL_VERSION_CODE && seen == 1 &&
                    config.size == sizeof config && info.size == sizeof info;
  std::printf("version %d, seen %d\n", version, seen);
  return good ? 0 : 1;
}
