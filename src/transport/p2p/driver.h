// The calls of the CUDA driver for which the runtime has no counterpart: memory that other processes can map. They are
// looked up at run time, so that the library does not need libcuda to load.
#pragma once

#include <cuda.h>

namespace nitinol::p2p {

struct Driver {
  decltype(&::cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&::cuMemCreate) create = nullptr;
  decltype(&::cuMemRelease) release = nullptr;
  decltype(&::cuMemAddressReserve) reserve = nullptr;
  decltype(&::cuMemAddressFree) unreserve = nullptr;
  decltype(&::cuMemMap) map = nullptr;
  decltype(&::cuMemUnmap) unmap = nullptr;
  decltype(&::cuMemSetAccess) set_access = nullptr;
  decltype(&::cuMemExportToShareableHandle) share = nullptr;
  decltype(&::cuMemImportFromShareableHandle) import = nullptr;
  decltype(&::cuGetErrorString) error_string = nullptr;
  decltype(&::cuDeviceGetAttribute) attribute = nullptr;
  bool complete = false;  ///< the driver has them all
};

/// Looked up once.
const Driver& driver();

/// Throws Error(ncclUnhandledCudaError, "<what>: <text>") unless the call succeeded.
void driver_check(CUresult result, const char* what);

}  // namespace nitinol::p2p
