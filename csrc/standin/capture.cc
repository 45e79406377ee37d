// Captures and graphs of Machine.

#include "csrc/standin/machine.h"

#include <algorithm>
#include <utility>

namespace berth::standin {

CaptureMode& Machine::thread_capture_mode() {
  thread_local CaptureMode mode = kCaptureGlobal;
  return mode;
}

Status Machine::begin_capture(Stream& stream, const std::shared_ptr<Stream>& owner,
                              CaptureMode mode) {
  if (stream.legacy) return kStreamCaptureUnsupported;
  if (stream.capture) return kIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->id = next_capture_++;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = owner;
  capture->streams.emplace_back(owner);
  capture->graph = std::make_shared<Graph>();
  capture->graph->device = stream.device;
  captures_.push_back(capture);
  stream.capture = std::move(capture);
  stream.capture_nodes.clear();
  return kSuccess;
}

Status Machine::end_capture(Stream& stream, std::shared_ptr<Graph>& graph) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (!capture) return kIllegalState;
  if (capture->origin.lock().get() != &stream) return kStreamCaptureUnmatched;
  if (capture->mode != kCaptureRelaxed && capture->thread != std::this_thread::get_id())
    return kStreamCaptureWrongThread;
  // Each stream that joined must have come back: the origin's next node would come after all their
  // work.
  bool unjoined = false;
  std::vector<bool> covered(capture->graph->nodes.size(), false);
  std::vector<std::size_t> pending = stream.capture_nodes;
  std::unordered_map<const GraphNode*, std::size_t> numbers;
  for (std::size_t i = 0; i < capture->graph->nodes.size(); ++i)
    numbers[capture->graph->nodes[i].get()] = i;
  while (!pending.empty()) {
    const std::size_t node = pending.back();
    pending.pop_back();
    if (covered[node]) continue;
    covered[node] = true;
    for (const GraphNode* dependency : capture->graph->nodes[node]->dependencies) {
      pending.push_back(numbers.at(dependency));
    }
  }
  for (const auto& weak : capture->streams) {
    const auto joined = weak.lock();
    if (!joined) continue;
    for (const std::size_t node : joined->capture_nodes) unjoined = unjoined || !covered[node];
    joined->capture.reset();
    joined->capture_nodes.clear();
  }
  capture->over = true;
  std::erase(captures_, capture);
  graph.reset();
  if (capture->invalidated) return kStreamCaptureInvalidated;
  if (unjoined) return kStreamCaptureUnjoined;
  graph = capture->graph;
  return kSuccess;
}

Status Machine::capture_operation(Stream& stream, Operation operation) {
  Capture& capture = *stream.capture;
  if (capture.invalidated) return kStreamCaptureInvalidated;
  auto node = std::make_unique<GraphNode>();
  for (const std::size_t before : stream.capture_nodes)
    node->dependencies.push_back(capture.graph->nodes[before].get());
  node->operation = std::move(operation);
  stream.capture_nodes = {capture.graph->nodes.size()};
  capture.graph->nodes.push_back(std::move(node));
  return kSuccess;
}

Status Machine::refuse_during_capture() {
  const CaptureMode mode = thread_capture_mode();
  if (mode == kCaptureRelaxed) return kSuccess;
  bool refused = false;
  for (const auto& capture : captures_) {
    const bool own =
        capture->thread == std::this_thread::get_id() && capture->mode != kCaptureRelaxed;
    const bool anybody = mode == kCaptureGlobal && capture->mode == kCaptureGlobal;
    if (own || anybody) {
      invalidate(*capture);
      refused = true;
    }
  }
  return refused ? kStreamCaptureUnsupported : kSuccess;
}

Status Machine::refuse_during_capture(Stream& stream) {
  if (stream.capture) {
    invalidate(*stream.capture);
    return kStreamCaptureUnsupported;
  }
  return kSuccess;
}

Status Machine::launch(Lock& lock, Stream& stream, const std::shared_ptr<Graph>& graph) {
  for (const auto& node : graph->nodes) {
    Operation operation = node->operation;
    if (operation.event) {
      const std::shared_ptr<Event> event = operation.event;
      const Status status = operation.kind == Operation::Kind::kRecord
                                ? record_event(lock, stream, event, 0)
                                : wait_event(lock, stream, event, 0);
      if (status != kSuccess) return status;
      continue;
    }
    // The work may refer to what the graph owns.
    operation.work = [graph, work = std::move(operation.work)] {
      if (work) work();
    };
    if (const Status status = enqueue(lock, stream, std::move(operation)); status != kSuccess)
      return status;
  }
  return kSuccess;
}

}  // namespace berth::standin
