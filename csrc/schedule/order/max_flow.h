#pragma once

#include "csrc/core/bytes.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace berth::schedule {

// A network whose largest flow, and so its least cut, is looked for. Built anew for each question;
// keeps its room. Not thread-safe. Dinic 1970: O(V^2 E) at worst, a few sweeps over the network in
// practice.
class MaxFlow {
 public:
  static constexpr std::uint32_t kSource = 0, kSink = 1;
  // Of an arc that no cut may have.
  static constexpr Bytes kInfinite = std::numeric_limits<Bytes>::max() / 2;

  // Source and sink alone.
  void clear();
  [[nodiscard]] std::uint32_t add_vertex();
  void add_arc(std::uint32_t from, std::uint32_t to, Bytes capacity);
  // Uses the capacities up.
  [[nodiscard]] Bytes run();

  // After run(): on the source's side of the cut that has the least there.
  [[nodiscard]] bool reached(std::uint32_t vertex) const { return level_[vertex] != kUnseen; }
  // And of the one that has the most there: by vertex, whether it is on the sink's side.
  [[nodiscard]] std::vector<bool> reaching_sink();

 private:
  static constexpr std::uint32_t kUnseen = std::numeric_limits<std::uint32_t>::max();
  struct Arc {
    std::uint32_t to = 0;
    std::uint32_t back = 0;  // index of the reverse arc at `to`
    Bytes left = 0;
  };
  [[nodiscard]] bool find_levels();
  [[nodiscard]] Bytes push();

  std::vector<std::vector<Arc>> arcs_;
  std::size_t used_ = 0;  // of arcs_
  std::vector<std::uint32_t> level_, next_, queue_;
};

}  // namespace berth::schedule
