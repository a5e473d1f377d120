/* Nitinol's own extensions to the NCCL API. Everything here may also be looked up with dlsym: programs that must run on other
 * libraries too should do that. */
#ifndef NITINOL_H_
#define NITINOL_H_

#include "nccl.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NITINOL_VERSION_CODE 100

#ifdef __cplusplus
}
#endif

#endif
