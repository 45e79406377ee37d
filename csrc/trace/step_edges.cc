#include "csrc/trace/step_edges.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

namespace berth::trace {
namespace {

constexpr std::uint32_t kNoLane = 0xFFFFFFFF;

// The past of a lane at some moment: all before its request `position`, counted from the first
// repeat on. `exact`: nothing of it was freed between that moment and that request.
struct Past {
  std::uint32_t lane = 0;
  std::int64_t position = 0;
  bool exact = true;
};

struct Sighting {
  std::size_t past;
  std::uint32_t to_lane;
  std::int64_t to_position;
};

// Walks the entries of all repeats and notes who waited for which past.
class EdgeWalk {
 public:
  EdgeWalk(const Trace& trace, std::span<const StepLaneLog> lanes)
      : lane_index_(trace.lanes.size(), kNoLane), positions_(lanes.size(), 0), open_(lanes.size()) {
    for (std::uint32_t i = 0; i < lanes.size(); ++i) lane_index_[lanes[i].lane()] = i;
  }

  // Of what comes before the first repeat only blocks matter: one may be freed within it.
  void remember(const Event& event) {
    if (const auto* request = std::get_if<Request>(&event)) {
      if (lane_index_[request->lane] != kNoLane) lane_of_[request->id] = lane_index_[request->lane];
    } else if (const auto* free = std::get_if<Free>(&event)) {
      lane_of_.erase(free->id);
    }
  }

  void step(const Event& event) {
    if (const auto* request = std::get_if<Request>(&event)) {
      const std::uint32_t lane = lane_index_[request->lane];
      if (lane == kNoLane || request->bytes == 0) return;
      ++positions_[lane];
      open_[lane].clear();
      lane_of_[request->id] = lane;
    } else if (const auto* free = std::get_if<Free>(&event)) {
      const auto it = lane_of_.find(free->id);
      if (it == lane_of_.end()) return;
      for (const std::size_t past : open_[it->second]) pasts_[past].exact = false;
      lane_of_.erase(it);
    } else if (const auto* record = std::get_if<EventRecord>(&event)) {
      const std::uint32_t lane = lane_index_[record->lane];
      // A record on a lane that is left out still replaces the event's last one.
      recorded_[record->event] =
          lane == kNoLane ? std::optional<std::size_t>() : std::optional(past_of(lane));
    } else if (const auto* wait = std::get_if<EventWait>(&event)) {
      const std::uint32_t lane = lane_index_[wait->lane];
      if (const auto past = last_record(wait->event); past && lane != kNoLane) order(*past, lane);
    } else if (const auto* sync = std::get_if<Synchronize>(&event)) {
      if (sync->event != 0) {
        if (const auto past = last_record(sync->event)) order_all(*past);
      } else if (sync->lane == kAllLanes) {
        for (std::uint32_t lane = 0; lane < positions_.size(); ++lane) order_all(past_of(lane));
      } else if (const std::uint32_t lane = lane_index_[sync->lane]; lane != kNoLane) {
        order_all(past_of(lane));
      }
    }
  }

  [[nodiscard]] const std::vector<Past>& pasts() const noexcept { return pasts_; }
  [[nodiscard]] const std::vector<Sighting>& sightings() const noexcept { return sightings_; }

 private:
  std::size_t past_of(std::uint32_t lane) {
    pasts_.push_back({lane, positions_[lane], true});
    open_[lane].push_back(pasts_.size() - 1);
    return pasts_.size() - 1;
  }
  std::optional<std::size_t> last_record(std::uint64_t event) const {
    const auto it = recorded_.find(event);
    return it == recorded_.end() ? std::nullopt : it->second;
  }
  void order(std::size_t past, std::uint32_t to_lane) {
    if (pasts_[past].lane != to_lane) sightings_.push_back({past, to_lane, positions_[to_lane]});
  }
  void order_all(std::size_t past) {
    for (std::uint32_t lane = 0; lane < positions_.size(); ++lane) order(past, lane);
  }

  std::vector<std::uint32_t> lane_index_;       // of lanes of the trace
  std::vector<std::int64_t> positions_;         // requests made
  std::vector<std::vector<std::size_t>> open_;  // pasts taken since the last request
  std::unordered_map<BlockId, std::uint32_t> lane_of_;
  std::unordered_map<std::uint64_t, std::optional<std::size_t>> recorded_;
  std::vector<Past> pasts_;
  std::vector<Sighting> sightings_;
};

auto as_tuple(const StepEdge& e) {
  return std::tie(e.from_lane, e.to_lane, e.delta, e.to_tick, e.from_tick);
}
struct EdgeOrder {
  bool operator()(const StepEdge& a, const StepEdge& b) const { return as_tuple(a) < as_tuple(b); }
};

// The edge of a sighting and the repeat that waited, where it is one from a step to itself or the
// next.
std::optional<std::pair<StepEdge, std::int64_t>> edge_of(const Past& past, const Sighting& sighting,
                                                         std::span<const StepLaneLog> lanes) {
  const std::int64_t from = past.exact ? past.position : past.position - 1;
  if (from < 0) return std::nullopt;
  const std::int64_t from_period = lanes[past.lane].period();
  const std::int64_t to_period = lanes[sighting.to_lane].period();
  std::int64_t from_tick = from % from_period;
  const std::int64_t to_repeat = sighting.to_position / to_period;
  std::int64_t delta = to_repeat - from / from_period;
  if (delta == -1 && from_tick == 0) {
    // All of the step that the other lane is still in.
    from_tick = from_period;
    delta = 0;
  }
  if (delta < 0 || delta > 1) return std::nullopt;
  const StepEdge edge{.from_lane = past.lane,
                      .from_tick = static_cast<std::uint32_t>(from_tick),
                      .to_lane = sighting.to_lane,
                      .to_tick = static_cast<std::uint32_t>(sighting.to_position % to_period),
                      .delta = static_cast<std::uint32_t>(delta)};
  return std::pair{edge, to_repeat};
}

// Drops what others imply: of equal lanes and steps, an edge from an earlier tick to a later one.
std::vector<StepEdge> prune(std::vector<StepEdge> edges) {
  std::sort(edges.begin(), edges.end(), EdgeOrder());
  std::vector<StepEdge> kept;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    const StepEdge& edge = edges[i];
    // Sorted by to_tick and then from_tick: what implies it with the same to_tick comes after it,
    // else before, and the last one kept reaches furthest.
    const auto same = [&](const StepEdge& other) {
      return other.from_lane == edge.from_lane && other.to_lane == edge.to_lane &&
             other.delta == edge.delta;
    };
    if (i + 1 < edges.size() && same(edges[i + 1]) && edges[i + 1].to_tick == edge.to_tick)
      continue;
    if (!kept.empty() && same(kept.back()) && kept.back().from_tick >= edge.from_tick) continue;
    kept.push_back(edge);
  }
  return kept;
}

}  // namespace

std::vector<StepEdge> find_edges(const Trace& trace, std::span<const StepLaneLog> lanes,
                                 std::uint32_t repeats, std::uint32_t unroll) {
  if (lanes.size() < 2) return {};
  EdgeWalk walk(trace, lanes);
  const Tick first = lanes.front().ticks_of(0).first;
  const Tick last = lanes.front().ticks_of(repeats - 1).second;
  for (const Entry& entry : trace.entries) {
    if (entry.tick < first) {
      walk.remember(entry.event);
    } else if (entry.tick < last) {
      walk.step(entry.event);
    }
  }

  struct Seen {
    std::int64_t last = -1;    // repeat
    std::uint32_t inside = 0;  // of the repeats from the second to the last
    std::uint32_t all = 0;
    bool in_first = false;
  };
  std::map<StepEdge, Seen, EdgeOrder> seen;
  for (const Sighting& sighting : walk.sightings()) {
    const auto found = edge_of(walk.pasts()[sighting.past], sighting, lanes);
    if (!found) continue;
    Seen& s = seen[found->first];
    if (s.last == found->second) continue;
    s.last = found->second;
    ++s.all;
    if (s.last == 0) s.in_first = true;
    if (s.last >= 1 && s.last < repeats) ++s.inside;
  }
  std::vector<StepEdge> edges;
  for (const auto& [edge, s] : seen) {
    // The first repeat cannot show an edge that comes out of the repeat before it, or lies at its
    // very beginning; in return the last one may show it at its end.
    const bool needs_first = edge.delta == 0 && edge.to_tick != 0 && edge.from_tick != 0;
    if (s.inside + 1 != repeats || s.all < 2 || (needs_first && !s.in_first)) continue;
    for (std::uint32_t copy = 0; copy < unroll; ++copy) {
      const std::uint32_t to_copy = copy + edge.delta;
      edges.push_back({.from_lane = edge.from_lane,
                       .from_tick = edge.from_tick + copy * lanes[edge.from_lane].period(),
                       .to_lane = edge.to_lane,
                       .to_tick = edge.to_tick + to_copy % unroll * lanes[edge.to_lane].period(),
                       .delta = to_copy / unroll});
    }
  }
  return prune(std::move(edges));
}

}  // namespace berth::trace
