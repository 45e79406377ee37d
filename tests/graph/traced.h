#pragma once

#include "csrc/graph/edges.h"
#include "csrc/graph/file.h"
#include "csrc/graph/from_trace.h"
#include "tests/catch.h"
#include "tests/support/recording.h"

#include <algorithm>
#include <functional>
#include <map>

// Graphs of recorded steps, and their peaks by other ways than berth's.
namespace berth::test {

using graph::Edges;
using graph::Graph;
using graph::OperatorId;
using graph::StorageClass;
using graph::StorageId;
using graph::TracedGraph;
using trace::BlockId;

// The graph of a step that is run four times. `step` gets its number.
inline TracedGraph graph_of(Recording& run, const std::function<void(int)>& step) {
  run.mark();
  for (int number = 0; number < 4; ++number) {
    step(number);
    run.mark();
  }
  const TracedGraph traced = graph::graph_from_trace(run.builder.trace());
  CHECK(graph::parse_graph(to_json(traced.graph), "x") == traced.graph);
  return traced;
}

// A step whose storages die at their last reader, with nothing of the order planner's.
inline Bytes peak_at_last_readers(const Graph& graph) {
  const Edges edges = edges_of(graph);
  const auto operators = static_cast<OperatorId>(graph.operators.size());
  std::vector<Bytes> live(operators, 0);
  for (OperatorId op = 0; op < operators; ++op)
    live[op] = graph.operators[op].alternatives[0].workspace;
  for (StorageId s = 0; s < graph.storages.size(); ++s) {
    OperatorId first = operators, last = 0;
    bool used = false;
    const auto use = [&](OperatorId op) {
      first = std::min(first, op);
      last = std::max(last, op);
      used = true;
    };
    for (const auto& [value, made] : edges.values) {
      if (value.storage != s) continue;
      if (made.maker) use(*made.maker);
      for (const OperatorId reader : made.readers) use(reader);
    }
    if (graph.storages[s].kind == StorageClass::kResident) {
      first = 0;
      last = operators - 1;
      used = true;
    } else if (graph.storages[s].kind == StorageClass::kInput) {
      first = 0;
    }
    for (OperatorId op = first; used && op <= last; ++op) live[op] += graph.storages[s].bytes;
  }
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

// The most bytes that a run had alive from one tick to another, from its requests, and from what
// operators reach of the blocks that were there before.
inline Bytes peak_of_run(const Trace& trace, trace::Tick first, trace::Tick last) {
  std::map<BlockId, Bytes> sizes;
  for (const trace::Entry& entry : trace.entries)
    if (const auto* operand = std::get_if<trace::Operand>(&entry.event)) {
      const Bytes end = (operand->byte_offset + operand->bytes + 63) / 64 * 64;
      sizes[operand->block] = std::max(sizes[operand->block], end);
    }
  sizes[0] = 0;
  for (const trace::Entry& entry : trace.entries)
    if (const auto* request = std::get_if<trace::Request>(&entry.event)) sizes[request->id] = 0;
  Bytes live = 0, peak = 0;
  for (const auto& [block, bytes] : sizes) live += bytes;
  for (const trace::Entry& entry : trace.entries) {
    if (entry.tick >= last) break;
    if (entry.tick >= first) peak = std::max(peak, live);
    if (const auto* request = std::get_if<trace::Request>(&entry.event))
      live += sizes[request->id] = (request->bytes + 63) / 64 * 64;
    if (const auto* free = std::get_if<trace::Free>(&entry.event)) live -= sizes[free->id];
    if (entry.tick >= first) peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace berth::test
