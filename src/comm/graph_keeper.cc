#include "comm/graph_keeper.h"

#include <mutex>
#include <utility>
#include <vector>

#include "device/check.h"
#include "device/guards.h"

namespace nitinol {
namespace {

struct Gone {
  std::mutex mutex;
  std::vector<std::shared_ptr<void>> kept;
  std::vector<std::shared_ptr<void>> for_good;
};

Gone& gone() {
  static Gone* const instance = new Gone;  // graphs may go when the process ends
  return *instance;
}

/// Called by CUDA, on a thread that may not use it.
void on_graph_gone(void* pointer) {
  const std::unique_ptr<std::shared_ptr<void>> what(static_cast<std::shared_ptr<void>*>(pointer));
  const std::lock_guard lock(gone().mutex);
  gone().kept.push_back(std::move(*what));
}

}  // namespace

void keep_with_graph(cudaStream_t stream, std::shared_ptr<void> what) {
  let_go_of_gone_graphs();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  cuda_check(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, nullptr, nullptr, nullptr),
             "cudaStreamGetCaptureInfo");
  auto held = std::make_unique<std::shared_ptr<void>>(std::move(what));
  cudaUserObject_t object = nullptr;
  cuda_check(cudaUserObjectCreate(&object, held.get(), on_graph_gone, 1, cudaUserObjectNoDestructorSync),
             "cudaUserObjectCreate");
  static_cast<void>(held.release());  // on_graph_gone() frees it
  const cudaError_t status_of_retain = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
  if (status_of_retain != cudaSuccess) static_cast<void>(cudaUserObjectRelease(object, 1));
  cuda_check(status_of_retain, "cudaGraphRetainUserObject");
}

void let_go_of_gone_graphs() {
  const RelaxedCaptureGuard relaxed;        // what goes is freed, and this may happen during another capture
  std::vector<std::shared_ptr<void>> kept;  // goes after the lock
  const std::lock_guard lock(gone().mutex);
  kept.swap(gone().kept);
}

void keep_for_good(std::shared_ptr<void> what) {
  if (what == nullptr) return;
  const std::lock_guard lock(gone().mutex);
  gone().for_good.push_back(std::move(what));
}

}  // namespace nitinol
