/* A C99 program that includes the public headers and uses every declaration: it compiles without warnings, links
 * against the library, and each function has the type that the definition lists say. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "nccl.h"
#include "nccl_device.h"
#include "nitinol.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

typedef void (*any_function)(void);

#define FUNCTION(result, name, parameters) result(*use_##name[2]) parameters = {nccl##name, pnccl##name};
#include "device_functions.def"
#include "functions.def"
#undef FUNCTION

static any_function all_functions[] = {
#define FUNCTION(result, name, parameters) (any_function) nccl##name, (any_function)pnccl##name,
#include "device_functions.def"
#include "functions.def"
#undef FUNCTION
};

const double all_values[] = {
#define VALUE(constant) (double)(constant),
#define SIZE(type) (double)sizeof(type),
#define OFFSET(type, field) (double)offsetof(type, field),
#include "device_values.def"
#include "values.def"
#undef VALUE
#undef SIZE
#undef OFFSET
};

static int failures = 0;

static void expect(int condition, const char* what) {
  if (condition) return;
  printf("failed: %s\n", what);
  ++failures;
}

int main(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  int version = 0;
  size_t i;
  for (i = 0; i < sizeof all_functions / sizeof all_functions[0]; ++i) expect(all_functions[i] != 0, "a function");
  for (i = 0; i < sizeof all_values / sizeof all_values[0]; ++i) expect(all_values[i] == all_values[i], "a value");
  expect(sizeof(ncclConfig_t) == 80 && config.size == 80 && config.magic == 0xcafebeef, "the config's head");
  expect(config.version == 22809 && config.netName == NULL && config.blocking == INT_MIN, "the config's fields");
  expect(info.size == 24 && info.magic == 0x74685283 && info.estimatedTime == -1.0f, "the simulation info");
  expect(ncclGetVersion(&version) == ncclSuccess && version == NCCL_VERSION_CODE, "ncclGetVersion");
  expect(pncclGetVersion(NULL) == ncclInvalidArgument, "ncclGetVersion of NULL");
  expect(strcmp(ncclGetErrorString(ncclSuccess), "no error") == 0, "ncclGetErrorString");
  expect(ncclGetLastError(NCCL_COMM_NULL) != NULL, "ncclGetLastError");
  return failures == 0 ? 0 : 1;
}
