#include "csrc/standin/entry.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace berth::standin {

extern "C" {

int cudaStreamBeginCapture(StreamHandle handle, int mode) {
  BERTH_STANDIN_ENTER();
  return call_on_stream(handle, [&](Entry& entry, const StreamPointer& stream) {
    if (mode < kCaptureGlobal || mode > kCaptureRelaxed) return kInvalidValue;
    return entry.machine.begin_capture(*stream, stream, static_cast<CaptureMode>(mode));
  });
}

int cudaStreamEndCapture(StreamHandle handle, Opaque* graph) {
  BERTH_STANDIN_ENTER();
  return call_on_stream(handle, [&](Entry& entry, const StreamPointer& stream) {
    std::shared_ptr<Graph> made;
    const Status status = entry.machine.end_capture(*stream, made);
    if (graph != nullptr) *graph = made.get();
    if (made) entry.machine.graphs.emplace(made.get(), made);
    return status;
  });
}

int cudaStreamIsCapturing(StreamHandle handle, int* status) {
  BERTH_STANDIN_ENTER();
  *status = kCaptureNone;
  return call_on_stream(handle, [&](Entry&, const StreamPointer& stream) {
    if (stream->capture)
      *status = stream->capture->invalidated ? kCaptureInvalidated : kCaptureActive;
    return kSuccess;
  });
}

int cudaStreamGetCaptureInfo(StreamHandle handle, int* status, unsigned long long* id,
                             Opaque* graph, const Opaque** dependencies, const void** edges,
                             std::size_t* count) {
  BERTH_STANDIN_ENTER();
  *status = kCaptureNone;
  return call_on_stream(handle, [&](Entry& entry, const StreamPointer& stream) {
    if (!stream->capture) return kSuccess;
    const Capture& capture = *stream->capture;
    *status = capture.invalidated ? kCaptureInvalidated : kCaptureActive;
    if (id != nullptr) *id = capture.id;
    if (graph != nullptr) *graph = capture.graph.get();
    if (edges != nullptr) *edges = nullptr;
    if (count != nullptr) *count = stream->capture_nodes.size();
    if (dependencies != nullptr) {
      // Valid until the next call of the thread, which is as long as the documentation promises.
      thread_local std::vector<Opaque> nodes;
      nodes.clear();
      for (const std::size_t node : stream->capture_nodes)
        nodes.push_back(capture.graph->nodes[node].get());
      *dependencies = nodes.data();
    }
    // The graph of an open capture can be asked for its nodes.
    entry.machine.graphs.emplace(capture.graph.get(), capture.graph);
    return kSuccess;
  });
}

int cudaThreadExchangeStreamCaptureMode(int* mode) {
  BERTH_STANDIN_ENTER();
  if (mode == nullptr || *mode < kCaptureGlobal || *mode > kCaptureRelaxed)
    return remember(kInvalidValue);
  const CaptureMode wanted = static_cast<CaptureMode>(*mode);
  *mode = std::exchange(Machine::thread_capture_mode(), wanted);
  return kSuccess;
}

int cudaGraphInstantiateWithFlags(Opaque* executable, Opaque graph, unsigned long long /*flags*/) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const auto found = entry.machine.graphs.find(graph);
  if (found == entry.machine.graphs.end()) return remember(kInvalidValue);
  auto made = std::make_shared<GraphExecutable>(GraphExecutable{found->second});
  *executable = made.get();
  entry.machine.executables.emplace(made.get(), std::move(made));
  return kSuccess;
}

int cudaGraphInstantiate(Opaque* executable, Opaque graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(executable, graph, flags);
}

// All nodes run in the launching stream, in the order of their capture.
int cudaGraphLaunch(Opaque executable, StreamHandle handle) {
  BERTH_STANDIN_ENTER();
  return call_on_stream(handle, [&](Entry& entry, const StreamPointer& stream) {
    const auto found = entry.machine.executables.find(executable);
    if (found == entry.machine.executables.end()) return kInvalidValue;
    return entry.machine.launch(entry.lock, *stream, found->second->graph);
  });
}

int cudaGraphExecDestroy(Opaque executable) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  return entry.machine.executables.erase(executable) != 0 ? kSuccess : remember(kInvalidValue);
}

int cudaGraphDestroy(Opaque graph) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  return entry.machine.graphs.erase(graph) != 0 ? kSuccess : remember(kInvalidValue);
}

int cudaGraphGetNodes(Opaque graph, Opaque* nodes, std::size_t* count) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const auto found = entry.machine.graphs.find(graph);
  if (found == entry.machine.graphs.end() || count == nullptr) return remember(kInvalidValue);
  const auto& all = found->second->nodes;
  if (nodes != nullptr) {
    *count = std::min(*count, all.size());
    for (std::size_t i = 0; i < *count; ++i) nodes[i] = all[i].get();
  } else {
    *count = all.size();
  }
  return kSuccess;
}

int cudaGraphNodeGetDependencies(Opaque node, Opaque* dependencies, void* /*edges*/,
                                 std::size_t* count) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  if (node == nullptr || count == nullptr) return remember(kInvalidValue);
  const auto& all = static_cast<const GraphNode*>(node)->dependencies;
  if (dependencies != nullptr) {
    *count = std::min(*count, all.size());
    for (std::size_t i = 0; i < *count; ++i) dependencies[i] = all[i];
  } else {
    *count = all.size();
  }
  return kSuccess;
}

int cudaGraphDebugDotPrint(Opaque graph, const char* path, unsigned /*flags*/) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const auto found = entry.machine.graphs.find(graph);
  std::FILE* file = found == entry.machine.graphs.end() ? nullptr : std::fopen(path, "we");
  if (file == nullptr) return remember(kInvalidValue);
  std::fputs("digraph capture {\n", file);
  for (const auto& node : found->second->nodes) {
    std::fprintf(file, "  \"%p\" [label=\"%s\"];\n", static_cast<void*>(node.get()),
                 kind_name(node->operation.kind));
    for (const GraphNode* before : node->dependencies) {
      std::fprintf(file, "  \"%p\" -> \"%p\";\n", static_cast<const void*>(before),
                   static_cast<void*>(node.get()));
    }
  }
  std::fputs("}\n", file);
  std::fclose(file);
  return kSuccess;
}

}  // extern "C"
}  // namespace berth::standin
