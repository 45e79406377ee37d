#include "csrc/place/problem/conflict_index.h"

#include <utility>

namespace berth::place {

ConflictIndex::ConflictIndex(const Conflicts& conflicts)
    : conflicts_(conflicts), lanes_of_group_(conflicts.lanes().group_count()) {
  const Problem& problem = conflicts.problem();
  std::vector<std::vector<Index>> buffers(problem.lanes.size());
  for (Index i = 0; i < conflicts.size(); ++i) buffers[problem.buffers[i].lane].push_back(i);
  lanes_.reserve(problem.lanes.size());
  for (std::uint32_t lane = 0; lane < problem.lanes.size(); ++lane) {
    lanes_of_group_[conflicts.lanes().group(lane)].push_back(lane);
    lanes_.emplace_back(conflicts, std::move(buffers[lane]));
  }
}

}  // namespace berth::place
