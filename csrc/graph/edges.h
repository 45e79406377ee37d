#pragma once

#include "csrc/graph/graph.h"

#include <map>
#include <vector>

namespace berth::graph {

// What follows from reads and writes, each operator taken by one alternative.
//
// Read after write: a value's maker comes before its readers. Write after read: they come before
// who makes the storage's next version, and so does the maker before. These edges carry no bytes of
// their own; a storage lives from its first write to the last read of its last version. Random
// operators keep the order in which they were recorded, and so do, among themselves, collectives
// and those that wait for the host.
struct Edges {
  struct Made {
    std::optional<OperatorId> maker;  // nothing: it was there
    std::vector<OperatorId> readers;  // each once, ascending
  };
  std::map<ValueId, Made> values;
  std::vector<std::pair<OperatorId, OperatorId>> order;  // all pairs (earlier, later), each once
};

// `choice` has an alternative for each operator; empty: the first. Throws Error(kInput) for two
// makers of one value, and for a value that nobody makes. O((reads + writes) log of them).
[[nodiscard]] Edges edges_of(const Graph& graph, const std::vector<std::uint32_t>& choice = {});

}  // namespace berth::graph
