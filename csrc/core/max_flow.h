#pragma once

#include "csrc/core/bytes.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace berth {

// A network, its largest flow from kSource to kSink and its minimum cuts, by blocking flows along
// shortest paths (Dinic 1970). O(V^2 E) at worst, a few sweeps over the network in practice.
// Reusable: it keeps its memory. Not thread-safe.
class MaxFlow {
 public:
  using Vertex = std::uint32_t;
  static constexpr Vertex kSource = 0, kSink = 1;
  // No cut goes through such an arc where one can avoid it. All other capacities together stay
  // below half of it.
  static constexpr Bytes kInfinite = std::numeric_limits<Bytes>::max() / 2;

  // Leaves the source and the sink alone, without arcs.
  void clear();
  Vertex add_vertex();
  void add_arc(Vertex from, Vertex to, Bytes capacity);

  // The value of the cut; to be asked once after arcs were added.
  [[nodiscard]] Bytes run() { return *run(std::numeric_limits<std::uint64_t>::max()); }
  // Nothing where it took more than `work` looks at arcs.
  [[nodiscard]] std::optional<Bytes> run(std::uint64_t work);
  // Of the last run: vertices that the source still reaches, the least side of a minimum cut; and
  // those that still reach the sink, what is left of them being the largest.
  [[nodiscard]] bool reached(Vertex vertex) const { return level_[vertex] != kUnseen; }
  [[nodiscard]] std::vector<bool> reach_sink();

 private:
  static constexpr std::uint32_t kUnseen = std::numeric_limits<std::uint32_t>::max();
  struct Arc {
    Vertex to = 0;
    std::uint32_t back = 0;  // index of the reverse arc at `to`
    Bytes left = 0;
  };

  [[nodiscard]] bool find_levels();
  [[nodiscard]] Bytes push();

  std::vector<std::vector<Arc>> arcs_{2};
  std::size_t used_ = 2;  // of arcs_
  std::vector<std::uint32_t> level_, next_;
  std::vector<Vertex> queue_;
  std::vector<Arc*> path_;
  std::uint64_t looks_ = 0;
};

}  // namespace berth
