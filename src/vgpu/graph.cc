// See graph.h.
#include "vgpu/graph.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "vgpu/capture.h"

namespace nitinol::vgpu {

void UserObject::release(int count) {
  if (count_.fetch_sub(count) > count) return;
  destroy_(pointer_);
  delete this;
}

UserObjectRefs::UserObjectRefs(const UserObjectRefs& other) : entries_(other.entries_) {
  for (Entry& entry : entries_) {
    entry.count = 1;
    entry.object->retain(1);
  }
}

UserObjectRefs::~UserObjectRefs() {
  for (const Entry& entry : entries_) entry.object->release(entry.count);
}

void UserObjectRefs::add(UserObject* object, int count) {
  for (Entry& entry : entries_) {
    if (entry.object != object) continue;
    entry.count += count;
    return;
  }
  entries_.push_back({object, count});
}

bool UserObjectRefs::remove(UserObject* object, int count) {
  for (Entry& entry : entries_) {
    if (entry.object != object || entry.count < count) continue;
    entry.count -= count;
    if (entry.count == 0) std::erase_if(entries_, [&](const Entry& other) { return other.object == object; });
    object->release(count);
    return true;
  }
  return false;
}

std::optional<std::vector<GraphNode*>> nodes_of(const Graph& graph, const cudaGraphNode_t* handles, size_t count) {
  std::vector<GraphNode*> nodes;
  for (size_t i = 0; i < count; ++i) {
    GraphNode* const node = handles != nullptr ? node_of(handles[i]) : nullptr;
    if (node == nullptr || node->graph != &graph) return std::nullopt;
    nodes.push_back(node);
  }
  return nodes;
}

GraphNode* Graph::add(GraphNode node) {
  node.graph = this;
  node.index = nodes.size();
  nodes.push_back(std::make_unique<GraphNode>(std::move(node)));
  return nodes.back().get();
}

namespace {

std::vector<const GraphNode*> in_dependency_order(const Graph& graph) {
  std::vector<size_t> missing(graph.nodes.size());
  std::vector<std::vector<size_t>> followers(graph.nodes.size());
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (const auto& node : graph.nodes) {
    missing[node->index] = node->dependencies.size();
    for (const GraphNode* dependency : node->dependencies) followers[dependency->index].push_back(node->index);
    if (node->dependencies.empty()) ready.push(node->index);
  }
  std::vector<const GraphNode*> order;
  while (!ready.empty()) {
    const size_t index = ready.top();
    ready.pop();
    order.push_back(graph.nodes[index].get());
    for (const size_t follower : followers[index]) {
      if (--missing[follower] == 0) ready.push(follower);
    }
  }
  return order;
}

}  // namespace

GraphInstance::GraphInstance(const Graph& graph) : objects_(std::make_shared<UserObjectRefs>(graph.objects)) {
  const std::vector<const GraphNode*> order = in_dependency_order(graph);
  std::vector<size_t> place(graph.nodes.size());
  for (const GraphNode* node : order) {
    place[node->index] = steps_.size();
    Step step{node->type, node->task, node->event, {}, 0};
    for (const GraphNode* dependency : node->dependencies) step.dependencies.push_back(place[dependency->index]);
    steps_.push_back(std::move(step));
  }
  step_ends_.resize(steps_.size());
  assign_lanes();
}

GraphInstance::~GraphInstance() {
  for (Stream* lane : lanes_) {
    if (lane != nullptr) destroy_stream(*lane);
  }
}

// A node goes on in the lane of something that it depends on, best directly; else it begins a new lane.
void GraphInstance::assign_lanes() {
  std::vector<size_t> tails;  // the last step of each lane
  auto is_tail = [&](size_t step) { return tails[steps_[step].lane] == step; };
  for (size_t i = 0; i < steps_.size(); ++i) {
    size_t lane = tails.size();
    for (const size_t dependency : steps_[i].dependencies) {
      if (is_tail(dependency)) lane = std::min(lane, steps_[dependency].lane);
    }
    if (lane == tails.size() && !steps_[i].dependencies.empty()) {
      std::vector<bool> seen(i);
      std::vector<size_t> open = steps_[i].dependencies;
      while (!open.empty()) {
        const size_t step = open.back();
        open.pop_back();
        if (seen[step]) continue;
        seen[step] = true;
        if (is_tail(step)) lane = std::min(lane, steps_[step].lane);
        open.insert(open.end(), steps_[step].dependencies.begin(), steps_[step].dependencies.end());
      }
    }
    if (lane == tails.size()) tails.push_back(i);
    tails[lane] = i;
    steps_[i].lane = lane;
  }
  lanes_.resize(std::max<size_t>(1, tails.size()), nullptr);
  for (size_t lane = 1; lane < lanes_.size(); ++lane) {
    lanes_[lane] = create_stream(StreamKind::kLane, 0, cudaStreamNonBlocking, 0);
  }
}

void GraphInstance::push_step(size_t index, Submission& submission, const std::vector<Point>& snapshots) {
  const Step& step = steps_[index];
  for (const size_t dependency : step.dependencies) {
    if (steps_[dependency].lane != step.lane) submission.wait(step_ends_[dependency]);
  }
  if (step.type == cudaGraphNodeTypeWaitEvent) {
    submission.wait(snapshots[index]);
  } else if (step.type == cudaGraphNodeTypeEventRecord) {
    record_event(*step.event, submission);
  } else if (step.task != nullptr) {
    submission.run(Task([task = step.task] { (*task)(); }));
  }
  step_ends_[index] = submission.end();
}

void GraphInstance::launch(Stream& stream) {
  std::lock_guard lock(mutex_);
  // Waits refer to what was recorded before the launch, also where the graph itself records the event.
  std::vector<Point> snapshots(steps_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].type == cudaGraphNodeTypeWaitEvent) snapshots[i] = event_point(*steps_[i].event);
  }
  if (lanes_.size() == 1) {
    Submission submission(stream);
    submission.wait(last_end_);
    for (size_t i = 0; i < steps_.size(); ++i) push_step(i, submission, snapshots);
    finish_launch(submission);
    return;
  }
  Point start;
  {
    Submission submission(stream);
    submission.wait(last_end_);
    start = submission.end();
  }
  std::vector<Point> lane_ends(lanes_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const size_t lane = steps_[i].lane;
    Submission submission(lane == 0 ? stream : *lanes_[lane]);
    if (lane != 0 && !lane_ends[lane]) submission.wait(start);
    push_step(i, submission, snapshots);
    lane_ends[lane] = submission.end();
  }
  Submission submission(stream);
  for (size_t lane = 1; lane < lanes_.size(); ++lane) submission.wait(lane_ends[lane]);
  finish_launch(submission);
}

void GraphInstance::finish_launch(Submission& submission) {
  if (!objects_->empty()) submission.run(Task([objects = objects_] {}));
  last_end_ = submission.end();
}

bool GraphInstance::update(const Graph& graph) {
  const std::vector<const GraphNode*> order = in_dependency_order(graph);
  std::lock_guard lock(mutex_);
  if (order.size() != steps_.size()) return false;
  std::vector<size_t> place(graph.nodes.size());
  for (size_t i = 0; i < order.size(); ++i) {
    place[order[i]->index] = i;
    std::vector<size_t> dependencies;
    for (const GraphNode* dependency : order[i]->dependencies) dependencies.push_back(place[dependency->index]);
    if (order[i]->type != steps_[i].type || dependencies != steps_[i].dependencies) return false;
  }
  for (size_t i = 0; i < order.size(); ++i) {
    steps_[i].task = order[i]->task;
    steps_[i].event = order[i]->event;
  }
  objects_ = std::make_shared<UserObjectRefs>(graph.objects);
  return true;
}

}  // namespace nitinol::vgpu
