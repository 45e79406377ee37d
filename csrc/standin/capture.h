#pragma once

#include "csrc/standin/stream.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace berth::standin {

// One operation of a graph and the nodes that it comes after. Its address is the node's handle.
struct GraphNode {
  Operation operation;
  std::vector<GraphNode*> dependencies;
};

// What a capture makes. Nodes stay where they are; they are in an order that their dependencies
// allow.
struct Graph {
  int device = 0;
  std::vector<std::unique_ptr<GraphNode>> nodes;
};

// An executable graph shares the nodes of the graph it was made from.
struct GraphExecutable {
  std::shared_ptr<Graph> graph;
};

// A capture in progress, or over.
struct Capture {
  std::uint64_t id = 0;
  CaptureMode mode = kCaptureGlobal;
  std::thread::id thread;
  std::weak_ptr<Stream> origin;
  std::vector<std::weak_ptr<Stream>> streams;  // all that joined
  bool invalidated = false;
  bool over = false;
  std::shared_ptr<Graph> graph;
};

}  // namespace berth::standin
