#include "csrc/cli/core/graph_input.h"

#include "csrc/cli/core/input.h"
#include "csrc/core/check.h"
#include "csrc/graph/file.h"

namespace berth::cli {

graph::TracedGraph read_graph_input(const std::string& path) {
  const std::string wanted =
      fmt::format("a trace with operators (berth record --operators), or {}", graph::graph_forms());
  const OpenedFile file(path);
  switch (identify(file, wanted)) {
    case InputKind::kGraph:
    case InputKind::kStatistics: {  // a JSON object
      graph::TracedGraph read;
      read.graph = graph::read_graph(path);
      return read;
    }
    case InputKind::kTrace:
    case InputKind::kPickle:
      break;
    case InputKind::kSchedule:
      throw Error(
          ErrorKind::kInput,
          fmt::format("'{}' is a schedule: a graph or a trace with operators is wanted", path));
    case InputKind::kPlan:
      throw Error(ErrorKind::kInput,
                  fmt::format("'{}' is a plan: a graph or a trace with operators is wanted", path));
    case InputKind::kLifetimes:
      throw Error(
          ErrorKind::kInput,
          fmt::format(
              "'{}' has lifetimes and no operators: a graph or a trace with operators is wanted",
              path));
  }
  const Trace trace = read_trace_input(file);
  try {
    return graph::graph_from_trace(trace);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("'{}': {}", path, error.what()));
  }
}

}  // namespace berth::cli
