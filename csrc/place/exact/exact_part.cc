#include "csrc/place/exact/exact_part.h"

#include "csrc/core/bytes.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace berth::place {
namespace {

using Value = ExactPart::Value;

// Prefix sums of counts and bytes, over positions that change.
class Sums {
 public:
  explicit Sums(std::size_t size) : nodes_(size + 1) {}
  void add(std::size_t at, std::int64_t count, Value bytes) {
    for (++at; at < nodes_.size(); at += at & (~at + 1)) {
      nodes_[at].count += count;
      nodes_[at].bytes += bytes;
    }
  }
  struct Sum {
    std::int64_t count = 0;
    Value bytes = 0;
  };
  // Of the positions before `end`.
  [[nodiscard]] Sum before(std::size_t end) const {
    Sum sum;
    for (; end > 0; end &= end - 1) {
      sum.count += nodes_[end].count;
      sum.bytes += nodes_[end].bytes;
    }
    return sum;
  }

 private:
  std::vector<Sum> nodes_;
};

bool overlap(std::uint32_t sections, std::uint32_t a_first, std::uint32_t a_last,
             std::uint32_t b_first, std::uint32_t b_last) {
  return (a_first < b_last && b_first < a_last) ||
         (a_first + sections < b_last && b_first < a_last + sections) ||
         (b_first + sections < a_last && a_first < b_last + sections);
}

// Whether a hole for `item` is left however `neighbours` others of `bytes` lie.
bool always_fits(const ExactPart& all, const ExactPart::Item& item, std::int64_t neighbours,
                 Value bytes) {
  const Value free = all.capacity - all.start - bytes;
  const Value hole = item.size + item.align - 2;  // the largest that is too small
  if (free <= 0) return false;
  return hole <= 0 || (free - 1) / hole >= neighbours + 1;
}

// Takes out what fits last, round by round; what is left fits earlier for it.
void peel(ExactPart& all, std::vector<std::uint32_t>& peeled) {
  constexpr std::size_t kMaxRingItems = 2000;
  if (all.ring && all.items.size() > kMaxRingItems) return;
  std::vector<bool> gone(all.items.size(), false);
  // Those that begin at a section, and those that end there.
  Sums begins(std::size_t{all.sections} + 1), ends(std::size_t{all.sections} + 1), total(1);
  const auto count = [&](std::uint32_t first, std::uint32_t last, std::int64_t n, Value bytes) {
    begins.add(first, n, bytes);
    ends.add(std::min(last, all.sections), n, bytes);
    total.add(0, n, bytes);
  };
  for (const auto& item : all.items) count(item.first, item.last, 1, item.size);
  for (const auto& wall : all.walls) count(wall.first, wall.last, 1, wall.end - wall.begin);
  const auto others = [&](std::size_t i) {
    const ExactPart::Item& own = all.items[i];
    Sums::Sum sum;
    if (!all.ring) {
      const Sums::Sum before = ends.before(std::size_t{own.first} + 1);
      const Sums::Sum until = begins.before(own.last);
      sum = {until.count - before.count - 1, until.bytes - before.bytes - own.size};
      return sum;
    }
    const auto add = [&](const auto& other, Value bytes) {
      if (!overlap(all.sections, own.first, own.last, other.first, other.last)) return;
      ++sum.count;
      sum.bytes += bytes;
    };
    for (std::size_t j = 0; j < all.items.size(); ++j) {
      if (j != i && !gone[j]) add(all.items[j], all.items[j].size);
    }
    for (const auto& wall : all.walls) add(wall, wall.end - wall.begin);
    return sum;
  };
  for (bool more = true; more;) {
    more = false;
    for (std::size_t i = 0; i < all.items.size(); ++i) {
      if (gone[i]) continue;
      const Sums::Sum sum = others(i);
      if (!always_fits(all, all.items[i], sum.count, sum.bytes)) continue;
      gone[i] = more = true;
      count(all.items[i].first, all.items[i].last, -1, -all.items[i].size);
      peeled.push_back(all.items[i].item);
    }
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < all.items.size(); ++i) {
    if (!gone[i]) all.items[kept++] = all.items[i];
  }
  all.items.resize(kept);
  std::reverse(peeled.begin(), peeled.end());
}

// Turns a ring that some cut leaves whole into a line that starts there. Items by first.
void cut_ring(ExactPart& all) {
  std::uint32_t reach = 0;  // furthest end, of those that wrap around at first
  for (const auto& item : all.items) {
    if (item.last > all.sections) reach = std::max(reach, item.last - all.sections);
  }
  for (const auto& wall : all.walls) {
    if (wall.last > all.sections) reach = std::max(reach, wall.last - all.sections);
  }
  std::uint32_t cut = all.items.empty() ? 0 : all.sections;
  std::vector<ExactPart::Wall> walls = all.walls;
  std::sort(walls.begin(), walls.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  auto wall = walls.begin();
  for (const auto& item : all.items) {
    for (; wall != walls.end() && wall->first < item.first; ++wall)
      reach = std::max(reach, wall->last);
    if (item.first >= reach) {
      cut = item.first;
      break;
    }
    reach = std::max(reach, item.last);
  }
  if (cut == all.sections) return;
  all.ring = false;
  const auto turn = [&](auto& span) {
    if (span.first < cut) {
      span.first += all.sections;
      span.last += all.sections;
    }
    span.first -= cut;
    span.last -= cut;
  };
  for (auto& item : all.items) turn(item);
  for (auto& w : all.walls) turn(w);
  std::stable_sort(all.items.begin(), all.items.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
}

// Sections that hold all that another holds are enough. Lines only.
void drop_sections(ExactPart& part) {
  std::vector<std::uint8_t> births(std::size_t{part.sections} + 1, 0);
  std::vector<std::uint8_t> ends(std::size_t{part.sections} + 1, 0);
  const auto note = [&](const auto& span) {
    births[span.first] = 1;
    ends[span.last] = 1;
  };
  for (const auto& item : part.items) note(item);
  for (const auto& wall : part.walls) note(wall);
  // Of a birth at x the section it is in; of an end at x the end of the sections before it.
  std::vector<std::uint32_t> begin(births.size()), end(births.size());
  std::uint32_t count = 0;
  bool after_end = true;
  for (std::size_t x = 0; x < births.size(); ++x) {
    end[x] = count;
    after_end |= ends[x] != 0;
    if (births[x] != 0) {
      if (after_end) ++count;
      after_end = false;
    }
    begin[x] = count == 0 ? 0 : count - 1;
  }
  const auto renumber = [&](auto& span) {
    span.first = begin[span.first];
    span.last = end[span.last];
  };
  for (auto& item : part.items) renumber(item);
  for (auto& wall : part.walls) renumber(wall);
  part.sections = count;
}

}  // namespace

ExactParts make_exact_parts(const Strip& strip, Bytes capacity, const ExactRules& rules) {
  ExactParts result;
  // Alignments that sizes keep by themselves need no care.
  Bytes sizes = 0, bounds = 0, aligns = 0;
  for (const auto& item : strip.items) sizes = std::gcd(sizes, item.size);
  for (const auto& obstacle : strip.obstacles)
    bounds = std::gcd(bounds, std::gcd(obstacle.begin, obstacle.end));
  const Bytes natural = std::gcd(std::gcd(sizes, bounds), strip.base);
  for (const auto& item : strip.items) {
    if (natural % item.unit != 0) aligns = std::gcd(aligns, item.unit);
  }
  if (aligns == 0 && bounds == 0) {
    result.origin = strip.base;
    result.unit = std::max<Bytes>(sizes, 1);
  } else {
    result.unit = std::gcd(natural, aligns);
  }
  if (!rules.units) result.unit = 1;
  const Bytes unit = result.unit;
  ExactPart all;
  all.sections = strip.sections;
  all.ring = strip.ring;
  all.start = static_cast<Value>((strip.base - result.origin) / unit);
  all.capacity = static_cast<Value>((capacity - result.origin) / unit);
  result.capacity = result.origin + static_cast<Bytes>(all.capacity) * unit;
  for (std::uint32_t i = 0; i < strip.items.size(); ++i) {
    const Strip::Item& item = strip.items[i];
    all.items.push_back({item.first, item.last, i, item.length,
                         static_cast<Value>(item.size / unit),
                         static_cast<Value>(std::max<Bytes>(item.unit / unit, 1))});
  }
  for (const Strip::Obstacle& obstacle : strip.obstacles) {
    const auto begin = static_cast<Value>(obstacle.begin / unit);
    const auto end = std::min(static_cast<Value>(obstacle.end / unit), all.capacity);
    if (begin < end) all.walls.push_back({obstacle.first, obstacle.last, begin, end});
  }
  std::stable_sort(all.items.begin(), all.items.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (rules.peel) peel(all, result.peeled);
  if (all.items.empty()) return result;
  if (all.ring && rules.split) cut_ring(all);
  if (all.ring || !rules.split) {
    result.largest = all.items.size();
    result.parts.push_back(std::move(all));
    return result;
  }
  std::uint32_t begin = 0, reach = 0;
  std::vector<ExactPart::Item> items;
  const auto finish = [&] {
    if (items.empty()) return;
    ExactPart part;
    part.sections = reach - begin;
    part.start = all.start;
    part.capacity = all.capacity;
    for (auto& item : items) {
      item.first -= begin;
      item.last -= begin;
    }
    for (const auto& wall : all.walls) {
      if (wall.first >= reach || wall.last <= begin) continue;
      part.walls.push_back({std::max(wall.first, begin) - begin, std::min(wall.last, reach) - begin,
                            wall.begin, wall.end});
    }
    part.items = std::move(items);
    items.clear();
    drop_sections(part);
    result.largest = std::max(result.largest, part.items.size());
    result.parts.push_back(std::move(part));
  };
  for (const auto& item : all.items) {
    if (item.first >= reach) {
      finish();
      begin = item.first;
    }
    items.push_back(item);
    reach = std::max(reach, item.last);
  }
  finish();
  return result;
}

void put_back_peeled(const Strip& strip, const ExactParts& parts, std::vector<Bytes>& offsets) {
  if (parts.peeled.empty()) return;
  std::vector<bool> placed(strip.items.size(), true);
  for (const std::uint32_t i : parts.peeled) placed[i] = false;
  std::vector<std::uint32_t> by_first(strip.items.size());
  std::iota(by_first.begin(), by_first.end(), 0);
  std::vector<std::pair<Bytes, Bytes>> taken;
  for (const std::uint32_t i : parts.peeled) {
    const Strip::Item& own = strip.items[i];
    taken.clear();
    const auto take = [&](const auto& other, Bytes begin, Bytes end) {
      if (overlap(strip.sections, own.first, own.last, other.first, other.last))
        taken.emplace_back(begin, end);
    };
    for (std::size_t j = 0; j < strip.items.size(); ++j) {
      if (placed[j]) take(strip.items[j], offsets[j], offsets[j] + strip.items[j].size);
    }
    for (const auto& obstacle : strip.obstacles) take(obstacle, obstacle.begin, obstacle.end);
    std::sort(taken.begin(), taken.end());
    Bytes at = align_up(strip.base, own.unit);
    for (const auto& [begin, end] : taken) {
      if (at + own.size <= begin) break;
      at = std::max(at, align_up(end, own.unit));
    }
    offsets[i] = at;
    placed[i] = true;
  }
}

}  // namespace berth::place
