// The API's functions about graphs and user objects.
#include <algorithm>

#include "cuda_runtime_api.h"
#include "vgpu/capture.h"
#include "vgpu/engine.h"
#include "vgpu/host_function.h"
#include "vgpu/runtime.h"

namespace nitinol::vgpu {
namespace {

GraphInstance* instance_of(cudaGraphExec_t handle) { return reinterpret_cast<GraphInstance*>(handle); }
UserObject* object_of(cudaUserObject_t handle) { return reinterpret_cast<UserObject*>(handle); }

struct NodePlace {
  cudaGraphNode_t* out;
  cudaGraph_t graph;
  const cudaGraphNode_t* dependencies;
  size_t dependency_count;
};

cudaError_t add_node(const NodePlace& place, GraphNode node) {
  if (place.out == nullptr || place.graph == nullptr) return cudaErrorInvalidValue;
  Graph& graph = *graph_of(place.graph);
  std::lock_guard lock(capture_mutex());
  auto dependencies = nodes_of(graph, place.dependencies, place.dependency_count);
  if (!dependencies) return cudaErrorInvalidValue;
  node.dependencies = *std::move(dependencies);
  *place.out = handle_of(graph.add(std::move(node)));
  return cudaSuccess;
}

template <typename Function>
cudaError_t add_work(const NodePlace& place, cudaGraphNodeType type, Function function) {
  GraphNode node;
  node.type = type;
  node.task = std::make_shared<Task>(std::move(function));
  return add_node(place, std::move(node));
}

cudaError_t add_event_node(const NodePlace& place, cudaGraphNodeType type, cudaEvent_t handle) {
  GraphNode node;
  node.type = type;
  node.event = find_event(handle);
  return node.event != nullptr ? add_node(place, std::move(node)) : cudaErrorInvalidValue;
}

// CUDA's way of returning lists: without an array the number, else as many as fit, the rest filled with nulls.
cudaError_t list_nodes(const std::vector<GraphNode*>& nodes, cudaGraphNode_t* out, size_t* count) {
  if (count == nullptr) return cudaErrorInvalidValue;
  if (out == nullptr) {
    *count = nodes.size();
    return cudaSuccess;
  }
  for (size_t i = 0; i < *count; ++i) out[i] = i < nodes.size() ? handle_of(nodes[i]) : nullptr;
  *count = std::min(*count, nodes.size());
  return cudaSuccess;
}

void fill(const cudaMemsetParams& params) {
  for (size_t row = 0; row < params.height; ++row) {
    char* at = static_cast<char*>(params.dst) + row * params.pitch;
    for (size_t i = 0; i < params.width; ++i, at += params.elementSize) {
      std::copy_n(reinterpret_cast<const char*>(&params.value), params.elementSize, at);
    }
  }
}

}  // namespace
// What is declared in the global namespace: functions with C linkage are the same in any namespace.
#pragma GCC visibility push(default)
extern "C" {

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  return guarded([&] {
    if (graph == nullptr || flags != 0) return cudaErrorInvalidValue;
    *graph = reinterpret_cast<cudaGraph_t>(new Graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return guarded([&] {
    if (graph == nullptr) return cudaErrorInvalidValue;
    delete graph_of(graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return guarded([&] {
    if (graph == nullptr) return cudaErrorInvalidValue;
    std::lock_guard lock(capture_mutex());
    std::vector<GraphNode*> all;
    for (const auto& node : graph_of(graph)->nodes) all.push_back(node.get());
    return list_nodes(all, nodes, count);
  });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return guarded([&] {
    if (node == nullptr || type == nullptr) return cudaErrorInvalidValue;
    *type = node_of(node)->type;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* dependencies, cudaGraphEdgeData* edges,
                                         size_t* count) {
  return guarded([&] {
    if (node == nullptr) return cudaErrorInvalidValue;
    std::lock_guard lock(capture_mutex());
    const cudaError_t error = list_nodes(node_of(node)->dependencies, dependencies, count);
    if (error == cudaSuccess && edges != nullptr && dependencies != nullptr) {
      std::fill_n(edges, *count, cudaGraphEdgeData{});
    }
    return error;
  });
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                     const cudaGraphEdgeData*, size_t count) {
  return guarded([&] {
    if (graph == nullptr) return cudaErrorInvalidValue;
    std::lock_guard lock(capture_mutex());
    const auto earlier = nodes_of(*graph_of(graph), from, count);
    const auto later = nodes_of(*graph_of(graph), to, count);
    if (!earlier || !later) return cudaErrorInvalidValue;
    for (size_t i = 0; i < count; ++i) {
      GraphNode* const node = (*earlier)[i];
      auto& known = (*later)[i]->dependencies;
      if (node == (*later)[i] || std::find(known.begin(), known.end(), node) != known.end()) {
        return cudaErrorInvalidValue;
      }
      known.push_back(node);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                  size_t count) {
  return guarded([&] { return add_node({node, graph, dependencies, count}, GraphNode{}); });
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                 size_t count, const cudaHostNodeParams* params) {
  return guarded([&] {
    if (params == nullptr || params->fn == nullptr) return cudaErrorInvalidValue;
    note_function_of_program();
    return add_work({node, graph, dependencies, count}, cudaGraphNodeTypeHost, [p = *params] {
      const InHostFunction inside;
      p.fn(p.userData);
    });
  });
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                     size_t count, void* dst, const void* src, size_t size, cudaMemcpyKind kind) {
  return guarded([&] {
    if (dst == nullptr || src == nullptr || kind > cudaMemcpyDefault) return cudaErrorInvalidValue;
    return add_work({node, graph, dependencies, count}, cudaGraphNodeTypeMemcpy,
                    [=] { std::copy_n(static_cast<const char*>(src), size, static_cast<char*>(dst)); });
  });
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                   size_t count, const cudaMemsetParams* params) {
  return guarded([&] {
    if (params == nullptr || params->dst == nullptr) return cudaErrorInvalidValue;
    const unsigned size = params->elementSize;
    if (size != 1 && size != 2 && size != 4) return cudaErrorInvalidValue;
    return add_work({node, graph, dependencies, count}, cudaGraphNodeTypeMemset, [p = *params] { fill(p); });
  });
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                        size_t count, cudaEvent_t event) {
  return guarded([&] {
    return add_event_node({node, graph, dependencies, count}, cudaGraphNodeTypeEventRecord, event);
  });
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                      size_t count, cudaEvent_t event) {
  return guarded([&] { return add_event_node({node, graph, dependencies, count}, cudaGraphNodeTypeWaitEvent, event); });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return guarded([&] {
    constexpr unsigned long long kKnown = cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUpload |
                                          cudaGraphInstantiateFlagUseNodePriority;
    if (exec == nullptr || graph == nullptr || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
    auto instance = std::make_unique<GraphInstance>(*graph_of(graph));
    if (!instance->complete(*graph_of(graph))) return cudaErrorInvalidValue;  // nodes depend on each other in a circle
    *exec = reinterpret_cast<cudaGraphExec_t>(instance.release());
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(exec, graph, flags);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  return guarded([&] {
    if (exec == nullptr) return cudaErrorInvalidValue;
    return find_stream(stream) != nullptr ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  return guarded([&] {
    Stream* stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (exec == nullptr) return cudaErrorInvalidValue;
    if (cudaError_t error = check_not_capturing(*stream)) return error;  // CUDA captures no launches of graphs
    instance_of(exec)->launch(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return guarded([&] {
    if (exec == nullptr) return cudaErrorInvalidValue;
    delete instance_of(exec);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
  return guarded([&] {
    if (exec == nullptr || graph == nullptr || info == nullptr) return cudaErrorInvalidValue;
    const bool done = instance_of(exec)->update(*graph_of(graph));
    *info = {done ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged, nullptr, nullptr};
    return done ? cudaSuccess : cudaErrorGraphExecUpdateFailure;
  });
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* pointer, cudaHostFn_t destroy, unsigned count,
                                 unsigned flags) {
  return guarded([&] {
    if (object == nullptr || destroy == nullptr || count == 0 || count > INT_MAX) return cudaErrorInvalidValue;
    if (flags != cudaUserObjectNoDestructorSync) return cudaErrorInvalidValue;
    *object = reinterpret_cast<cudaUserObject_t>(new UserObject(pointer, destroy, static_cast<int>(count)));
    return cudaSuccess;
  });
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned count) {
  return guarded([&] {
    if (object == nullptr || count == 0 || count > INT_MAX) return cudaErrorInvalidValue;
    object_of(object)->retain(static_cast<int>(count));
    return cudaSuccess;
  });
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
  return guarded([&] {
    if (object == nullptr || count == 0 || count > INT_MAX) return cudaErrorInvalidValue;
    object_of(object)->release(static_cast<int>(count));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags) {
  return guarded([&] {
    if (graph == nullptr || object == nullptr || count == 0 || count > INT_MAX) return cudaErrorInvalidValue;
    if (flags > cudaGraphUserObjectMove) return cudaErrorInvalidValue;
    std::lock_guard lock(capture_mutex());
    if (flags != cudaGraphUserObjectMove) object_of(object)->retain(static_cast<int>(count));
    graph_of(graph)->objects.add(object_of(object), static_cast<int>(count));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count) {
  return guarded([&] {
    if (graph == nullptr || object == nullptr || count == 0 || count > INT_MAX) return cudaErrorInvalidValue;
    return graph_of(graph)->objects.remove(object_of(object), static_cast<int>(count)) ? cudaSuccess
                                                                                       : cudaErrorInvalidValue;
  });
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace nitinol::vgpu
