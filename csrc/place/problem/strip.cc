#include "csrc/place/problem/strip.h"

#include "csrc/core/bytes.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace berth::place {
namespace {

// A birth or an end. Ticks are less than 2^63, and at one tick ends come first.
struct Event {
  std::uint64_t key;
  std::uint32_t arc;

  Event(std::uint64_t tick, bool birth, std::uint32_t i)
      : key(2 * tick + (birth ? 1 : 0)), arc(i) {}
  [[nodiscard]] bool birth() const noexcept { return key % 2 == 1; }
};

}  // namespace

Strip make_strip(const Conflicts& conflicts, std::span<const Arc> arcs, std::uint64_t period,
                 bool keep_whole) {
  Strip strip;
  strip.ring = period != 0;
  // What lives all around never dies.
  std::vector<Event> events;
  events.reserve(2 * arcs.size());
  const auto count = static_cast<std::uint32_t>(arcs.size());
  std::vector<std::uint32_t> always;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (period != 0 && arcs[i].length >= period) {
      always.push_back(i);
      continue;
    }
    const std::uint64_t end = arcs[i].birth + arcs[i].length;
    events.emplace_back(arcs[i].birth, true, i);
    events.emplace_back(period != 0 && end >= period ? end - period : end, false, i);
  }
  std::sort(events.begin(), events.end(),
            [](const Event& a, const Event& b) { return a.key < b.key; });
  if (period != 0) {
    // Any birth that follows an end opens a section, so the first section may start there.
    for (std::size_t e = 0; e < events.size(); ++e) {
      const Event& before = events[e == 0 ? events.size() - 1 : e - 1];
      if (events[e].birth() && !before.birth()) {
        std::rotate(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(e), events.end());
        break;
      }
    }
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> spans(count);
  std::uint32_t section = 0;
  bool after_end = true;
  for (const Event& event : events) {
    if (event.birth()) {
      if (after_end) ++section;
      after_end = false;
      spans[event.arc].first = section - 1;
    } else {
      after_end = true;
      spans[event.arc].second = section;  // of the current section, the end
    }
  }
  strip.sections = std::max(section, 1u);
  for (const Arc& arc : arcs) strip.unit = std::max(strip.unit, conflicts.unit(arc.buffer));
  for (const std::uint32_t i : always) spans[i] = {0, strip.sections};

  for (const Arc& arc : arcs) keep_whole |= arc.fixed.has_value();
  std::vector<Index> whole;
  for (std::uint32_t i = 0; i < count; ++i) {
    auto [first, last] = spans[i];
    if (last <= first) last += strip.sections;
    const Index b = arcs[i].buffer;
    if (const auto& fixed = arcs[i].fixed) {
      strip.obstacles.push_back({first, last, *fixed, *fixed + conflicts.bytes(b), b});
      continue;
    }
    // Below all others is best for what shifts them by whole alignments.
    if (!keep_whole && last - first == strip.sections && conflicts.bytes(b) % strip.unit == 0) {
      whole.push_back(b);
      continue;
    }
    strip.items.push_back({first, last, b, arcs[i].length, conflicts.bytes(b), conflicts.unit(b)});
  }
  for (const Index b : whole) {
    strip.bottom.emplace_back(b, strip.base);
    strip.base += conflicts.bytes(b);
  }
  return strip;
}

namespace {

// The bytes that obstacles take together in each section, upwards.
class TakenBytes {
 public:
  struct Span {
    Bytes begin, end;
    friend bool operator==(const Span&, const Span&) = default;
  };

  TakenBytes(const Strip& strip, std::vector<Strip::Obstacle> obstacles)
      : firsts_(std::size_t{strip.sections} + 1, 0) {
    std::sort(obstacles.begin(), obstacles.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
    std::vector<Bytes> ends(strip.sections, 0);
    std::vector<std::uint32_t> counts(strip.sections, 0);
    // Twice: to count the spans, then to fill them in.
    for (const bool fill : {false, true}) {
      for (const Strip::Obstacle& obstacle : obstacles) {
        for (std::uint32_t at = obstacle.first; at < obstacle.last; ++at) {
          const std::uint32_t x = at < strip.sections ? at : at - strip.sections;
          if (counts[x] == 0 || obstacle.begin > ends[x]) {
            ++counts[x];
            ends[x] = obstacle.end;
            if (fill) spans_[firsts_[x] + counts[x] - 1].begin = obstacle.begin;
          }
          ends[x] = std::max(ends[x], obstacle.end);
          if (fill) spans_[firsts_[x] + counts[x] - 1].end = ends[x];
        }
      }
      if (fill) break;
      for (std::uint32_t x = 0; x < strip.sections; ++x) firsts_[x + 1] = firsts_[x] + counts[x];
      spans_.resize(firsts_.back());
      std::fill(counts.begin(), counts.end(), 0);
    }
  }

  [[nodiscard]] std::span<const Span> of(std::uint32_t x) const {
    return {spans_.data() + firsts_[x], firsts_[x + 1] - firsts_[x]};
  }

 private:
  std::vector<std::size_t> firsts_;
  std::vector<Span> spans_;
};

// Disjoint obstacles that take the same bytes: those of one section that go on in the next are one.
void merge_obstacles(Strip& strip) {
  const TakenBytes taken(strip, std::move(strip.obstacles));
  strip.obstacles.clear();
  std::vector<Strip::Obstacle> open, still;
  for (std::uint32_t x = 0; x < strip.sections; ++x) {
    still.clear();
    auto it = open.begin();
    for (const TakenBytes::Span& span : taken.of(x)) {
      for (; it != open.end() && it->begin < span.begin; ++it) strip.obstacles.push_back(*it);
      if (it != open.end() && it->begin == span.begin && it->end == span.end) {
        still.push_back(*it++);
        still.back().last = x + 1;
      } else {
        still.push_back({x, x + 1, span.begin, span.end, Strip::Obstacle::kMerged});
      }
    }
    strip.obstacles.insert(strip.obstacles.end(), it, open.end());
    std::swap(open, still);
  }
  strip.obstacles.insert(strip.obstacles.end(), open.begin(), open.end());
}

}  // namespace

Strip make_strip_around(const Conflicts& conflicts, std::vector<Arc> arcs, std::uint64_t period) {
  if (period == 0) {
    std::uint64_t first = ~std::uint64_t{0}, last = 0;
    for (const Arc& arc : arcs) {
      if (arc.fixed) continue;
      first = std::min(first, arc.birth);
      last = std::max(last, arc.birth + arc.length);
    }
    std::erase_if(arcs, [&](Arc& arc) {
      const std::uint64_t begin = std::max(arc.birth, first);
      const std::uint64_t end = std::min(arc.birth + arc.length, last);
      if (begin >= end) return true;
      arc.birth = begin;
      arc.length = end - begin;
      return false;
    });
  }
  Strip strip = make_strip(conflicts, arcs, period);
  if (!strip.obstacles.empty()) merge_obstacles(strip);
  return strip;
}

std::optional<std::vector<Strip>> make_strips(const Conflicts& conflicts) {
  const Problem& problem = conflicts.problem();
  std::vector<bool> has_children(problem.branches.size(), false);
  for (std::uint32_t b = 0; b < problem.branches.size(); ++b) {
    if (problem.branches[b].parent != b) has_children[problem.branches[b].parent] = true;
  }
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Lane {
    std::uint32_t branch = kNone;
    std::vector<Arc> arcs;
  };
  std::vector<Lane> lanes(problem.lanes.size());
  for (Index i = 0; i < conflicts.size(); ++i) {
    const Buffer& buffer = problem.buffers[i];
    Lane& lane = lanes[buffer.lane];
    if (lane.branch == kNone) {
      lane.branch = buffer.branch;
      if (problem.branches[buffer.branch].parent != buffer.branch || has_children[buffer.branch])
        return std::nullopt;
    }
    if (lane.branch != buffer.branch) return std::nullopt;
    if (buffer.pinned && problem.lanes.size() > 1) return std::nullopt;
    lane.arcs.push_back({i, buffer.birth, buffer.length, buffer.pinned});
  }
  std::vector<Strip> strips;
  for (const Lane& lane : lanes) {
    if (lane.arcs.empty()) continue;
    const Buffer& any = problem.buffers[lane.arcs.front().buffer];
    strips.push_back(make_strip(conflicts, lane.arcs, period_of(problem, any)));
    strips.back().group = conflicts.lanes().group(any.lane);
  }
  return strips;
}

Bytes max_load(const Strip& strip) {
  std::vector<Bytes> loads(std::size_t{strip.sections} + 1, 0);
  const auto add = [&](const auto& span, Bytes size) {
    loads[span.first] += size;
    if (span.last <= strip.sections) {
      loads[span.last] -= size;
    } else {
      loads[0] += size;
      loads[span.last - strip.sections] -= size;
    }
  };
  for (const Strip::Item& item : strip.items) add(item, item.size);
  for (const Strip::Obstacle& obstacle : strip.obstacles)
    add(obstacle, obstacle.end - obstacle.begin);
  Bytes most = 0, load = 0;
  for (std::uint32_t x = 0; x < strip.sections; ++x) {
    load += loads[x];
    most = std::max(most, load);
  }
  most += strip.base;
  for (const Strip::Obstacle& obstacle : strip.obstacles) most = std::max(most, obstacle.end);
  return most;
}

}  // namespace berth::place
