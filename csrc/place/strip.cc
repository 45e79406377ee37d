#include "csrc/place/strip.h"

#include "csrc/core/bytes.h"

#include <algorithm>
#include <utility>

namespace berth::packing {
namespace {

struct Event {
  std::uint64_t tick;
  bool birth;  // at one tick deaths come first
  std::uint32_t arc;
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
    events.push_back({arcs[i].birth, true, i});
    events.push_back({period != 0 && end >= period ? end - period : end, false, i});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.tick != b.tick ? a.tick < b.tick : a.birth < b.birth;
  });
  if (period != 0) {
    // Any birth that follows a death opens a section, so the first section may start there.
    for (std::size_t e = 0; e < events.size(); ++e) {
      const Event& before = events[e == 0 ? events.size() - 1 : e - 1];
      if (events[e].birth && !before.birth) {
        std::rotate(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(e), events.end());
        break;
      }
    }
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> spans(count);
  std::uint32_t section = 0;
  bool after_death = true;
  for (const Event& event : events) {
    if (event.birth) {
      if (after_death) ++section;
      after_death = false;
      spans[event.arc].first = section - 1;
    } else {
      after_death = true;
      spans[event.arc].second = section;  // of the current section, the end
    }
  }
  strip.sections = std::max(section, 1u);
  for (const Arc& arc : arcs) strip.unit = std::max(strip.unit, conflicts.unit(arc.buffer));
  for (const std::uint32_t i : always) spans[i] = {0, strip.sections};

  const std::vector<Buffer>& buffers = conflicts.problem().buffers;
  for (const Arc& arc : arcs) keep_whole |= buffers[arc.buffer].pinned.has_value();
  std::vector<Index> whole;
  for (std::uint32_t i = 0; i < count; ++i) {
    auto [first, last] = spans[i];
    if (last <= first) last += strip.sections;
    const Index b = arcs[i].buffer;
    if (const auto& pin = buffers[b].pinned) {
      strip.blocks.push_back({first, last, *pin, *pin + conflicts.bytes(b), b});
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
    lane.arcs.push_back({i, buffer.birth, buffer.length});
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
  for (const Strip::Block& block : strip.blocks) add(block, block.end - block.begin);
  Bytes most = 0, load = 0;
  for (std::uint32_t x = 0; x < strip.sections; ++x) {
    load += loads[x];
    most = std::max(most, load);
  }
  most += strip.base;
  for (const Strip::Block& block : strip.blocks) most = std::max(most, block.end);
  return most;
}

}  // namespace berth::packing
