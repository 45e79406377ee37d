#include "csrc/graph/tried_alternatives.h"

#include <algorithm>
#include <limits>
#include <set>

namespace berth::graph {
namespace {

std::uint64_t saturated_sum(std::uint64_t a, std::uint64_t b) noexcept {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
  return a > kMost || b > kMost - a ? kMost : a + b;
}

std::string joined(const std::string& before, std::uint32_t algorithm) {
  return before.empty() ? std::to_string(algorithm) : before + ", " + std::to_string(algorithm);
}

}  // namespace

void TriedAlternatives::add(const Unit& unit) {
  for (const trace::Alternative& run : unit.alternatives) {
    auto& known = known_[run.key];
    if (known.size() == Graph::kMaxAlternatives && !known.contains(run.algorithm)) continue;
    const Tried one{run.duration_ns, run.workspace_bytes};
    const auto [there, added] = known.emplace(run.algorithm, one);
    // The first run of an algorithm is the slowest.
    if (!added) there->second.ns = std::min(there->second.ns, one.ns);
  }
}

// Leaves those that no other beats in both, fastest first.
void TriedAlternatives::prune(std::vector<Tried>& tried) {
  std::sort(tried.begin(), tried.end(), [](const Tried& a, const Tried& b) {
    return a.ns != b.ns ? a.ns < b.ns : a.workspace < b.workspace;
  });
  Bytes least = std::numeric_limits<Bytes>::max();
  std::erase_if(tried, [&least](const Tried& one) {
    const bool beaten = one.workspace >= least;
    least = std::min(least, one.workspace);
    return beaten;
  });
  if (tried.size() >= Graph::kMaxAlternatives) tried.resize(Graph::kMaxAlternatives - 1);
}

std::vector<Alternative> TriedAlternatives::alternatives(const Unit& unit,
                                                         const Alternative& recorded,
                                                         Bytes alignment) const {
  std::vector<Alternative> result = {recorded};
  std::map<std::uint64_t, std::uint32_t> chosen;  // algorithm by key
  std::set<std::uint64_t> keys;
  for (const trace::Alternative& one : unit.alternatives) {
    keys.insert(one.key);
    if (one.chosen) chosen[one.key] = one.algorithm;
  }
  if (keys.empty() || chosen.size() != keys.size()) return result;
  Tried base;
  std::vector<Tried> tried = {{}};
  for (const auto& [key, algorithm] : chosen) {
    const auto& known = known_.at(key);
    const auto found = known.find(algorithm);
    if (found == known.end()) return result;  // beyond the most
    const Tried& taken = found->second;
    base.algorithm = joined(base.algorithm, algorithm);
    base.ns = saturated_sum(base.ns, taken.ns);
    base.workspace = std::max(base.workspace, taken.workspace);
    std::vector<Tried> next;
    for (const Tried& before : tried)
      for (const auto& [other, one] : known)
        next.push_back({saturated_sum(before.ns, one.ns), std::max(before.workspace, one.workspace),
                        joined(before.algorithm, other)});
    prune(next);
    tried = std::move(next);
  }
  result.front().algorithm = base.algorithm;
  const std::uint64_t rest = recorded.ns - std::min(recorded.ns, base.ns);
  const Bytes room =
      recorded.workspace - std::min(recorded.workspace, align_up(base.workspace, alignment));
  for (Tried& one : tried) {
    one.ns = saturated_sum(rest, one.ns);
    one.workspace = room + align_up(one.workspace, alignment);
  }
  prune(tried);
  std::erase_if(tried, [&](const Tried& one) {
    return one.ns >= recorded.ns && one.workspace >= recorded.workspace;
  });
  for (Tried& one : tried) {
    Alternative& made = result.emplace_back(recorded);
    made.ns = one.ns;
    made.workspace = one.workspace;
    made.algorithm = std::move(one.algorithm);
  }
  return result;
}

}  // namespace berth::graph
