#include "transport/p2p/driver.h"

#include "base/error.h"
#include "device/driver_function.h"

namespace nitinol::p2p {

namespace {

template <class Function>
bool find(const char* name, Function& function) {
  function = driver_function<Function>(name);
  return function != nullptr;
}

Driver look_up() {
  Driver d;
  d.complete = find("cuMemGetAllocationGranularity", d.granularity) && find("cuMemCreate", d.create) &&
               find("cuMemRelease", d.release) && find("cuMemAddressReserve", d.reserve) &&
               find("cuMemAddressFree", d.unreserve) && find("cuMemMap", d.map) && find("cuMemUnmap", d.unmap) &&
               find("cuMemSetAccess", d.set_access) && find("cuMemExportToShareableHandle", d.share) &&
               find("cuMemImportFromShareableHandle", d.import) && find("cuGetErrorString", d.error_string) &&
               find("cuDeviceGetAttribute", d.attribute);
  return d;
}

}  // namespace

const Driver& driver() {
  static const Driver found = look_up();
  return found;
}

void driver_check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  if (driver().error_string == nullptr || driver().error_string(result, &text) != CUDA_SUCCESS) text = "unknown error";
  fail(ncclUnhandledCudaError, "{}: {} (CUresult {})", what, text, static_cast<int>(result));
}

}  // namespace nitinol::p2p
