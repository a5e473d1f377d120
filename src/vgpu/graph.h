// Graphs: operations and what each depends on; and what is instantiated from them.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "vgpu/event.h"
#include "vgpu/stream.h"

namespace nitinol::vgpu {

struct Graph;

// What programs attach to graphs to know when nobody can run them any more. Counted: by the program, by each graph and
// by each instance.
class UserObject {
 public:
  UserObject(void* pointer, cudaHostFn_t destroy, int count) : pointer_(pointer), destroy_(destroy), count_(count) {}
  void retain(int count) { count_.fetch_add(count); }
  void release(int count);

 private:
  void* pointer_;
  cudaHostFn_t destroy_;
  std::atomic<int> count_;
};

// The references that one graph or instance has.
class UserObjectRefs {
 public:
  UserObjectRefs() = default;
  UserObjectRefs(const UserObjectRefs& other);
  UserObjectRefs& operator=(const UserObjectRefs&) = delete;
  ~UserObjectRefs();
  void add(UserObject* object, int count);  // takes over references
  bool remove(UserObject* object, int count);
  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    UserObject* object;
    int count;
  };
  std::vector<Entry> entries_;
};

struct GraphNode {
  Graph* graph = nullptr;
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  std::shared_ptr<Task> task;  // what it runs, if anything
  Event* event = nullptr;      // of nodes that record or wait for one
  std::vector<GraphNode*> dependencies;
  size_t index = 0;
};

struct Graph {
  std::vector<std::unique_ptr<GraphNode>> nodes;
  UserObjectRefs objects;

  GraphNode* add(GraphNode node);
};

// A graph made ready to launch. Its nodes are laid out in lanes: sequences that run one after the other. Lane 0 runs in
// the stream of the launch, the others in streams of their own, with waits where a node depends on another lane.
class GraphInstance {
 public:
  explicit GraphInstance(const Graph& graph);
  ~GraphInstance();
  GraphInstance(const GraphInstance&) = delete;
  GraphInstance& operator=(const GraphInstance&) = delete;

  // False if some of the graph's nodes depend on each other in a circle.
  bool complete(const Graph& graph) const { return steps_.size() == graph.nodes.size(); }
  void launch(Stream& stream);
  // Takes over another graph's parameters, if it has the same form.
  bool update(const Graph& graph);

 private:
  struct Step {
    cudaGraphNodeType type;
    std::shared_ptr<Task> task;
    Event* event;
    std::vector<size_t> dependencies;  // steps
    size_t lane;
  };

  void assign_lanes();
  void push_step(size_t index, Submission& submission, const std::vector<Point>& snapshots);
  void finish_launch(Submission& submission);

  std::mutex mutex_;
  std::vector<Step> steps_;       // in an order in which dependencies come first
  std::vector<Stream*> lanes_;    // lane 0: null
  std::vector<Point> step_ends_;  // of the launch in progress
  Point last_end_;                // of the launch before
  std::shared_ptr<UserObjectRefs> objects_;
};

inline Graph* graph_of(cudaGraph_t handle) { return reinterpret_cast<Graph*>(handle); }
inline GraphNode* node_of(cudaGraphNode_t handle) { return reinterpret_cast<GraphNode*>(handle); }
inline cudaGraphNode_t handle_of(GraphNode* node) { return reinterpret_cast<cudaGraphNode_t>(node); }
// Nothing if one of them is no node, or another graph's.
std::optional<std::vector<GraphNode*>> nodes_of(const Graph& graph, const cudaGraphNode_t* handles, size_t count);

}  // namespace nitinol::vgpu
