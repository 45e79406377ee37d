#pragma once

#include "csrc/graph/graph.h"
#include "csrc/graph/units.h"

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>

namespace berth::graph {

// The alternatives that a run tried of each problem, by the key of the problem. What one call
// tried is known to all of the same key. Kept are the first Graph::kMaxAlternatives of each.
class TriedAlternatives {
 public:
  void add(const Unit& unit);

  // `recorded` first, then alternatives of the unit that are faster than all that need no more
  // workspace, fastest first; Graph::kMaxAlternatives in all at most. `recorded` alone where a
  // problem of the unit does not say what was chosen. A unit may hold several problems: they run
  // one after the other, so that times add up and workspaces share their bytes. An algorithm is
  // named by its number, those of several problems by theirs, in the order of the keys: "1, 7".
  [[nodiscard]] std::vector<Alternative> alternatives(const Unit& unit, const Alternative& recorded,
                                                      Bytes alignment) const;

 private:
  struct Tried {
    std::uint64_t ns = 0;
    Bytes workspace = 0;
    std::string algorithm = {};  // numbers, one a problem
  };
  static void prune(std::vector<Tried>& tried);

  std::unordered_map<std::uint64_t, std::map<std::uint32_t, Tried>> known_;  // by key, by algorithm
};

}  // namespace berth::graph
