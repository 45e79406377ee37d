#include "csrc/place/bounds/arc_clique.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

namespace berth::place {
namespace {

struct RingArc {
  std::uint32_t first, length;
  Bytes size;
};

std::vector<RingArc> arcs_of(const Strip& strip) {
  std::vector<RingArc> arcs;
  for (const Strip::Item& item : strip.items)
    arcs.push_back({item.first, item.last - item.first, item.size});
  for (const Strip::Obstacle& obstacle : strip.obstacles)
    arcs.push_back({obstacle.first, obstacle.last - obstacle.first, obstacle.end - obstacle.begin});
  return arcs;
}

// Of a clique, some arc holds no other: all others hold its first section or its last. Those with
// the first all meet, so do the rest; what is left is to leave out the lightest arcs such that no
// two of the two sides are apart, which costs as much as the heaviest matching of pairs that are
// (Koenig). An arc of the first kind reaches back by x from there and on to y, one of the second
// covers [p, q): they are apart where y <= p and x <= ring - q. Such pairs are matched by taking
// the second kind by rising p, each with the largest x that it may.
class CliqueAt {
 public:
  CliqueAt(const std::vector<RingArc>& arcs, std::uint32_t ring) : arcs_(arcs), ring_(ring) {}

  Bytes weight(const RingArc& anchor) {
    starts_.clear();
    ends_.clear();
    Bytes sum = 0;
    for (const RingArc& arc : arcs_) {
      const std::uint32_t ahead =
          arc.first >= anchor.first ? arc.first - anchor.first : arc.first + ring_ - anchor.first;
      if (ahead == 0 || ahead + arc.length > ring_) {
        const std::uint32_t back = ahead == 0 ? 0 : ring_ - ahead;
        starts_.push_back({arc.length - back, back, arc.size});
        sum += arc.size;
      } else if (ahead < anchor.length && ahead + arc.length >= anchor.length) {
        ends_.push_back({ahead, ring_ - (ahead + arc.length), arc.size});
        sum += arc.size;
      }
    }
    const auto by_near = [](const Reach& a, const Reach& b) { return a.near < b.near; };
    std::sort(starts_.begin(), starts_.end(), by_near);
    std::sort(ends_.begin(), ends_.end(), by_near);
    open_.clear();
    std::size_t next = 0;
    for (const Reach& end : ends_) {
      for (; next < starts_.size() && starts_[next].near <= end.near; ++next)
        open_[starts_[next].far] += starts_[next].size;
      Bytes left = end.size;
      while (left > 0) {
        const auto above = open_.upper_bound(end.far);
        if (above == open_.begin()) break;
        const auto it = std::prev(above);
        const Bytes matched = std::min(left, it->second);
        left -= matched;
        sum -= matched;
        it->second -= matched;
        if (it->second == 0) open_.erase(it);
      }
    }
    return sum;
  }

 private:
  struct Reach {
    std::uint32_t near, far;  // y and x, or p and ring - q
    Bytes size;
  };
  const std::vector<RingArc>& arcs_;
  std::uint32_t ring_;
  std::vector<Reach> starts_, ends_;
  std::map<std::uint32_t, Bytes> open_;  // by x: unmatched bytes
};

}  // namespace

Bytes heaviest_arc_clique(const Strip& strip, Bytes known, std::uint64_t work) {
  if (!strip.ring) return known;
  const std::vector<RingArc> arcs = arcs_of(strip);
  const std::uint32_t ring = strip.sections;
  std::uint64_t longest = 0;
  for (const RingArc& arc : arcs) longest = std::max<std::uint64_t>(longest, arc.length);
  if (3 * longest < ring) return known;
  std::vector<Bytes> loads(std::size_t{ring} + 1, 0);
  for (const RingArc& arc : arcs) {
    const std::uint32_t last = arc.first + arc.length;
    loads[arc.first] += arc.size;
    loads[last > ring ? last - ring : last] -= arc.size;
    if (last > ring) loads[0] += arc.size;
  }
  for (std::uint32_t x = 1; x < ring; ++x) loads[x] += loads[x - 1];
  // Where most lives at both ends first.
  std::vector<std::pair<Bytes, std::size_t>> anchors;
  for (std::size_t i = 0; i < arcs.size(); ++i) {
    const std::uint32_t last = arcs[i].first + arcs[i].length - 1;
    const Bytes most =
        strip.base + loads[arcs[i].first] + loads[last >= ring ? last - ring : last] - arcs[i].size;
    if (most > known) anchors.emplace_back(most, i);
  }
  std::sort(anchors.begin(), anchors.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  CliqueAt clique(arcs, ring);
  for (const auto& [most, i] : anchors) {
    if (most <= known || work < arcs.size()) break;
    work -= arcs.size();
    known = std::max(known, strip.base + clique.weight(arcs[i]));
  }
  return known;
}

}  // namespace berth::place
