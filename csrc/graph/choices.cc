#include "csrc/graph/choices.h"

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

void Choices::add(const Unit& unit) {
  for (const trace::Choice& choice : unit.choices) {
    auto& known = known_[choice.key];
    if (known.size() == Graph::kMaxAlternatives && !known.contains(choice.algorithm)) continue;
    const Way way{choice.duration_ns, choice.workspace_bytes};
    const auto [there, added] = known.emplace(choice.algorithm, way);
    // The first run of an implementation is the slowest.
    if (!added) there->second.ns = std::min(there->second.ns, way.ns);
  }
}

// Leaves those that no other beats in both, fastest first.
void Choices::prune(std::vector<Way>& ways) {
  std::sort(ways.begin(), ways.end(), [](const Way& a, const Way& b) {
    return a.ns != b.ns ? a.ns < b.ns : a.workspace < b.workspace;
  });
  Bytes least = std::numeric_limits<Bytes>::max();
  std::erase_if(ways, [&least](const Way& way) {
    const bool beaten = way.workspace >= least;
    least = std::min(least, way.workspace);
    return beaten;
  });
  if (ways.size() >= Graph::kMaxAlternatives) ways.resize(Graph::kMaxAlternatives - 1);
}

std::vector<Alternative> Choices::alternatives(const Unit& unit, const Alternative& recorded,
                                               Bytes alignment) const {
  std::vector<Alternative> result = {recorded};
  std::map<std::uint64_t, std::uint32_t> chosen;  // algorithm by key
  std::set<std::uint64_t> keys;
  for (const trace::Choice& choice : unit.choices) {
    keys.insert(choice.key);
    if (choice.chosen) chosen[choice.key] = choice.algorithm;
  }
  if (keys.empty() || chosen.size() != keys.size()) return result;
  Way base;
  std::vector<Way> ways = {{}};
  for (const auto& [key, algorithm] : chosen) {
    const auto& known = known_.at(key);
    const auto found = known.find(algorithm);
    if (found == known.end()) return result;  // beyond the most
    const Way& taken = found->second;
    base.algorithm = joined(base.algorithm, algorithm);
    base.ns = saturated_sum(base.ns, taken.ns);
    base.workspace = std::max(base.workspace, taken.workspace);
    std::vector<Way> next;
    for (const Way& way : ways)
      for (const auto& [other, one] : known)
        next.push_back({saturated_sum(way.ns, one.ns), std::max(way.workspace, one.workspace),
                        joined(way.algorithm, other)});
    prune(next);
    ways = std::move(next);
  }
  result.front().algorithm = base.algorithm;
  const std::uint64_t rest = recorded.ns - std::min(recorded.ns, base.ns);
  const Bytes room =
      recorded.workspace - std::min(recorded.workspace, align_up(base.workspace, alignment));
  for (Way& way : ways) {
    way.ns = saturated_sum(rest, way.ns);
    way.workspace = room + align_up(way.workspace, alignment);
  }
  prune(ways);
  std::erase_if(ways, [&](const Way& way) {
    return way.ns >= recorded.ns && way.workspace >= recorded.workspace;
  });
  for (Way& way : ways) {
    Alternative& one = result.emplace_back(recorded);
    one.ns = way.ns;
    one.workspace = way.workspace;
    one.algorithm = std::move(way.algorithm);
  }
  return result;
}

}  // namespace berth::graph
