#include "csrc/place/dives/dive.h"

#include "csrc/core/bytes.h"
#include "csrc/core/checksum.h"

#include <algorithm>
#include <array>
#include <utility>

namespace berth::place {
namespace {

constexpr std::int64_t kNoObstacle = std::int64_t{1} << 61;  // where no obstacle begins
// Deferrals after which a dive no longer looks ahead: those of real problems are less than one an
// item; long staircases of mixed sizes wake all that waits again and again, 60 times an item.
std::uint64_t most_deferrals(std::size_t items) {
  return (items > 200'000 ? 8 : 32) * items + 20'000;
}

}  // namespace

std::string_view rank_name(Rank rank) noexcept {
  switch (rank) {
    case Rank::kWAT:
      return "WAT";
    case Rank::kTAW:
      return "TAW";
    case Rank::kTWA:
      return "TWA";
    case Rank::kAWT:
      return "AWT";
    case Rank::kZWT:
      return "ZWT";
  }
  return "";
}

Dive::Dive(const Strip& strip) : strip_(strip) {
  const std::size_t count = strip.items.size();
  load_.assign(std::size_t{strip.sections} + 1, 0);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> spans;
  spans.reserve(count);
  for (const Strip::Item& item : strip.items) {
    spans.emplace_back(item.first, item.last);
    const auto size = static_cast<Value>(item.size);
    load_[item.first] += size;
    if (item.last <= strip.sections) {
      load_[item.last] -= size;
    } else {
      load_[0] += size;
      load_[item.last - strip.sections] -= size;
    }
  }
  for (std::size_t x = 1; x < load_.size(); ++x) load_[x] += load_[x - 1];
  load_.pop_back();
  set_obstacles();
  spans_.build(spans, strip.ring ? strip.sections : 0);
  need_.reset(load_);
  largest_.reserve(count);
  for (const Strip::Item& item : strip.items) largest_.push_back(max_need(item.first, item.last));
  ranks_.resize(count);
  next_.resize(count);
  previous_.resize(count);
  waits_for_.resize(count);
  offsets_.resize(count);
}

void Dive::set_obstacles() {
  if (strip_.obstacles.empty()) return;
  const std::uint32_t m = strip_.sections;
  std::vector<std::vector<Obstacle>> of_section(m);
  for (const Strip::Obstacle& obstacle : strip_.obstacles) {
    for (std::uint32_t x = obstacle.first; x < obstacle.last; ++x) {
      of_section[wrap(x)].push_back({static_cast<Value>(obstacle.begin - strip_.base),
                                     static_cast<Value>(obstacle.end - strip_.base)});
    }
  }
  for (std::uint32_t x = 0; x < m; ++x) {
    auto& obstacles = of_section[x];
    std::sort(obstacles.begin(), obstacles.end(),
              [](const Obstacle& a, const Obstacle& b) { return a.begin < b.begin; });
    first_obstacle_.push_back(static_cast<std::uint32_t>(obstacles_.size()));
    first_begins_.push_back(obstacles.empty() ? -kNoObstacle : -obstacles.front().begin);
    for (const Obstacle& obstacle : obstacles) {
      load_[x] += obstacle.end - obstacle.begin;
      if (obstacles_.size() > first_obstacle_.back() && obstacles_.back().end == obstacle.begin) {
        obstacles_.back().end = obstacle.end;
      } else {
        obstacles_.push_back(obstacle);
      }
    }
  }
  first_obstacle_.push_back(static_cast<std::uint32_t>(obstacles_.size()));
}

// The first section of the range whose next obstacle begins below `top`, or kNone.
std::uint32_t Dive::first_obstacle_below(std::uint32_t first, std::uint32_t last,
                                         Value top) const noexcept {
  const std::uint32_t m = strip_.sections;
  if (first >= m) {
    first -= m;
    last -= m;
  }
  std::uint32_t x = begins_.next_above(first, -top);
  if (x < std::min(last, m)) return x;
  if (last <= m) return kNone;
  x = begins_.next_above(0, -top);
  return x < last - m ? x : kNone;
}

// The plateau's floor has met the obstacle that is next in section x: there the floor goes on above
// it, as far as the neighbours have the same end.
void Dive::jump_obstacles(const Skyline::Plateau& plateau, std::uint32_t x) {
  std::uint32_t at = x < plateau.first ? x + strip_.sections : x;
  const std::uint32_t first = at;
  const Value end = obstacles_[next_obstacle_[x]].end;
  for (; at < plateau.last; ++at) {
    const std::uint32_t y = wrap(at);
    std::uint32_t& next = next_obstacle_[y];
    if (next == first_obstacle_[y + 1] || obstacles_[next].begin != plateau.floor ||
        obstacles_[next].end != end)
      break;
    add_need(y, y + 1, plateau.floor - end);
    ++next;
    const Value begin = next == first_obstacle_[y + 1] ? kNoObstacle : obstacles_[next].begin;
    begins_.add(y, y + 1, plateau.floor - begin);
  }
  const bool round = strip_.ring && skyline_.flat() && first >= strip_.sections;
  const std::uint32_t shift = round ? strip_.sections : 0;
  skyline_.raise(plateau, first - shift, at - shift, end);
  wake_sections(wrap(first), wrap(first) + (at - first));
}

Dive::Value Dive::max_need(std::uint32_t first, std::uint32_t last) const noexcept {
  const std::uint32_t m = strip_.sections;
  if (first >= m) return need_.max(first - m, last - m);
  if (last <= m) return need_.max(first, last);
  return std::max(need_.max(first, m), need_.max(0, last - m));
}

void Dive::add_need(std::uint32_t first, std::uint32_t last, Value value) noexcept {
  const std::uint32_t m = strip_.sections;
  if (last <= m) {
    need_.add(first, last, value);
  } else {
    need_.add(first, m, value);
    need_.add(0, last - m, value);
  }
}

double noise_factor(double amplitude, std::uint64_t seed, std::uint32_t i) noexcept {
  const std::uint64_t bits = hash_combine(seed, i) >> 11;
  return 1 + amplitude * (static_cast<double>(bits) * 0x1p-52 - 1);
}

void Dive::set_ranks(const DiveSettings& settings) {
  struct Key {
    std::array<double, 3> keys;
    std::uint32_t item;
  };
  std::vector<Key> keys;
  keys.reserve(strip_.items.size());
  for (std::uint32_t i = 0; i < strip_.items.size(); ++i) {
    const Strip::Item& item = strip_.items[i];
    const double factor = !settings.factors.empty() ? settings.factors[i]
                          : settings.noise > 0      ? noise_factor(settings.noise, settings.seed, i)
                                                    : 1;
    const double w = factor * static_cast<double>(item.length);
    const double z = factor * static_cast<double>(item.size);
    const double a = w * static_cast<double>(item.size);
    const double t = factor * static_cast<double>(largest_[i]);
    switch (settings.rank) {
      case Rank::kWAT:
        keys.push_back({{w, a, t}, i});
        break;
      case Rank::kTAW:
        keys.push_back({{t, a, w}, i});
        break;
      case Rank::kTWA:
        keys.push_back({{t, w, a}, i});
        break;
      case Rank::kAWT:
        keys.push_back({{a, w, t}, i});
        break;
      case Rank::kZWT:
        keys.push_back({{z, w, t}, i});
        break;
    }
  }
  std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
    if (a.keys[0] != b.keys[0]) return a.keys[0] > b.keys[0];
    return a.keys != b.keys ? a.keys > b.keys : a.item < b.item;
  });
  for (std::uint32_t rank = 0; rank < keys.size(); ++rank) ranks_[keys[rank].item] = rank;
}

void Dive::start(const DiveSettings& settings) {
  set_ranks(settings);
  const auto base = static_cast<Value>(strip_.base);
  const auto relative = [&](Bytes bytes) {
    return static_cast<Value>(std::min(bytes, kMaxBytes)) - base;
  };
  capacity_ = relative(settings.capacity);
  below_ = relative(settings.below);
  hard_ = settings.hard;
  look_ = settings.look;
  force_ = false;
  left_ = static_cast<std::uint32_t>(strip_.items.size());
  deferred_ = 0;
  deferrals_ = 0;
  spans_.open_all(ranks_);
  need_.reset(load_);
  if (!obstacles_.empty()) {
    next_obstacle_.assign(first_obstacle_.begin(), first_obstacle_.end() - 1);
    begins_.reset(first_begins_);
  }
  skyline_.reset(strip_.sections, strip_.ring);
  witness_.assign(strip_.sections, kNone);
  head_.assign(strip_.sections, kNone);
  waited_for_.reset(strip_.sections);
}

Dive::Value Dive::aligned(std::uint32_t i, Value floor) const noexcept {
  return static_cast<Value>(
      align_up(strip_.base + static_cast<Bytes>(floor), strip_.items[i].unit) - strip_.base);
}

bool Dive::aim_at(Value capacity) {
  if (capacity <= capacity_) return true;
  if (hard_) return false;
  capacity_ = capacity;
  wake_all();
  return true;
}

std::optional<std::vector<Bytes>> Dive::run(const DiveSettings& settings, const Budget* budget) {
  start(settings);
  Value mark = 0;
  std::uint32_t rounds = 0;
  while (left_ > 0) {
    if (budget != nullptr && ++rounds % 256 == 0 && budget->expired()) return std::nullopt;
    if (mark >= below_) return std::nullopt;
    const Skyline::Plateau plateau = skyline_.lowest();
    const bool flat = skyline_.flat();
    if (!obstacles_.empty()) {
      const std::uint32_t met =
          first_obstacle_below(plateau.first, plateau.last, plateau.floor + 1);
      if (met != kNone) {
        jump_obstacles(plateau, met);
        continue;
      }
    }
    const std::uint32_t i =
        flat ? spans_.best(0, 2 * strip_.sections) : spans_.best(plateau.first, plateau.last);
    if (i == kNone) {
      if (!close_plateau(plateau, flat)) return std::nullopt;
      continue;
    }
    const Value offset = aligned(i, plateau.floor);
    const Value top = offset + static_cast<Value>(strip_.items[i].size);
    std::uint32_t blocker = kNone;
    if (!obstacles_.empty()) {
      blocker = first_obstacle_below(strip_.items[i].first, strip_.items[i].last, top);
      if (blocker != kNone) {
        defer(i, blocker);
        continue;
      }
    }
    if (!force_ && !((offset == plateau.floor || fits_aligned(i, offset, blocker)) &&
                     is_safe(i, top, blocker))) {
      defer(i, blocker);
      continue;
    }
    if (offset != plateau.floor &&
        !aim_at(offset + max_need(strip_.items[i].first, strip_.items[i].last)))
      return std::nullopt;
    force_ = false;
    put(i, plateau, offset);
    mark = std::max(mark, top);
  }
  if (mark >= below_) return std::nullopt;
  std::vector<Bytes> result;
  result.reserve(offsets_.size());
  for (const Value offset : offsets_) result.push_back(strip_.base + static_cast<Bytes>(offset));
  return result;
}

// Nothing open fits on the plateau: lift it, or let in what waits.
bool Dive::close_plateau(const Skyline::Plateau& plateau, bool flat) {
  if (flat && deferred_ > 0 && !force_) {
    force_ = true;
    wake_all();
    return true;
  }
  Value lift = flat ? kNoObstacle : skyline_.lower_neighbour(plateau);
  if (!obstacles_.empty()) {
    const std::uint32_t m = strip_.sections;
    Value begin = begins_.max(wrap(plateau.first),
                              std::min(wrap(plateau.first) + (plateau.last - plateau.first), m));
    if (plateau.last > m && plateau.first < m)
      begin = std::max(begin, begins_.max(0, plateau.last - m));
    lift = std::min(lift, -begin);
  }
  const Value need = max_need(plateau.first, plateau.last);
  if (need > 0 && lift + need > capacity_) {
    if (!force_ && deferred_ > 0) {
      std::uint32_t i = spans_.any_deferred(plateau.first, plateau.last);
      if (i != kNone) {
        for (; i != kNone; i = spans_.any_deferred(plateau.first, plateau.last)) wake(i);
        force_ = true;
        return true;
      }
    }
    if (!aim_at(lift + need) || capacity_ >= below_) return false;
  }
  skyline_.raise(plateau, plateau.first, plateau.last, lift);
  return true;
}

bool Dive::fits_aligned(std::uint32_t i, Value floor, std::uint32_t& blocker) const {
  const Strip::Item& item = strip_.items[i];
  if (floor + max_need(item.first, item.last) <= capacity_) return true;
  const std::uint32_t x = need_.next_above(wrap(item.first), capacity_ - floor);
  blocker = x != kNone ? x : need_.next_above(0, capacity_ - floor);
  return false;
}

bool Dive::is_safe(std::uint32_t i, Value top, std::uint32_t& blocker) {
  const Strip::Item& item = strip_.items[i];
  const std::uint32_t m = strip_.sections;
  const Value spare = capacity_ - top;  // sections that need more must start lower than top
  // The sections outside of the item: one gap on a ring, counted on into the second round.
  struct Gap {
    std::uint32_t begin, end;
  };
  Gap left{0, item.first}, right{item.last, m};
  if (strip_.ring) {
    right = item.last >= m ? Gap{item.last - m, item.first} : Gap{item.last, item.first + m};
    left = right;
  }
  std::uint32_t x = right.begin;
  unsigned looked = 0;
  for (; looked < look_; ++looked, ++x) {
    if (x >= right.end) break;
    std::uint32_t next = x < m ? need_.next_above(x, spare) : kNone;
    if (next == kNone && right.end > m) {
      next = need_.next_above(x < m ? 0 : x - m, spare);
      if (next != kNone) next += m;
    }
    if (next == kNone || next >= right.end) {
      x = right.end;
      break;
    }
    x = next;
    if (!can_start_low(i, x, right.begin, right.end)) {
      blocker = wrap(x);
      return false;
    }
  }
  if (strip_.ring) {
    if (x >= right.end) return true;
    left.begin = x;  // the rest is checked from the right already
  }
  const std::uint32_t gap_begin = strip_.ring ? right.begin : left.begin;
  x = left.end;
  for (looked = 0; looked < look_ && x > left.begin; ++looked) {
    --x;
    std::uint32_t next = kNone;
    if (x >= m) {
      next = need_.previous_above(x - m, spare);
      if (next != kNone) {
        next += m;
      } else {
        next = need_.previous_above(m - 1, spare);
      }
    } else {
      next = need_.previous_above(x, spare);
    }
    if (next == kNone || next < left.begin) return true;
    x = next;
    if (!can_start_low(i, x, gap_begin, left.end)) {
      blocker = wrap(x);
      return false;
    }
  }
  return true;
}

// Whether some unplaced item over x, inside the gap beside item i, can be put low enough that what
// x needs still fits above.
bool Dive::can_start_low(std::uint32_t i, std::uint32_t x, std::uint32_t begin, std::uint32_t end) {
  const std::uint32_t section = wrap(x);
  const Value limit = capacity_ - need_.at(section);
  std::uint32_t& witness = witness_[section];
  if (witness != kNone && witness != i && spans_.is_alive(witness)) {
    const Strip::Item& item = strip_.items[witness];
    const std::uint32_t shift = strip_.ring && item.first < begin ? strip_.sections : 0;
    if (item.first + shift >= begin && item.last + shift <= end &&
        skyline_.highest(item.first, item.last) <= limit)
      return true;
  }
  const Skyline::Stretch range = skyline_.low_around(x, begin, end, limit);
  if (range.first > x || range.last <= x) return false;
  const std::uint32_t found = spans_.any_over(x, range.first, range.last);
  if (found == kNone) return false;
  witness = found;
  return true;
}

void Dive::put(std::uint32_t i, const Skyline::Plateau& plateau, Value offset) {
  const Strip::Item& item = strip_.items[i];
  const auto size = static_cast<Value>(item.size);
  offsets_[i] = offset;
  spans_.remove(i);
  --left_;
  // Into the plateau's round; a plateau all around takes every round.
  const bool behind = strip_.ring && !skyline_.flat() && item.first < plateau.first;
  const std::uint32_t shift = behind ? strip_.sections : 0;
  skyline_.raise(plateau, item.first + shift, item.last + shift, offset + size);
  add_need(item.first, item.last, -size);
  wake_sections(item.first, item.last);
}

void Dive::defer(std::uint32_t i, std::uint32_t section) {
  spans_.defer(i);
  ++deferred_;
  if (++deferrals_ > most_deferrals(strip_.items.size())) look_ = 0;
  waits_for_[i] = section;
  next_[i] = head_[section];
  previous_[i] = kNone;
  if (head_[section] != kNone) {
    previous_[head_[section]] = i;
  } else {
    waited_for_.insert(section);
  }
  head_[section] = i;
}

void Dive::wake(std::uint32_t i) {
  const std::uint32_t section = waits_for_[i];
  if (previous_[i] != kNone) {
    next_[previous_[i]] = next_[i];
  } else {
    head_[section] = next_[i];
    if (next_[i] == kNone) waited_for_.erase(section);
  }
  if (next_[i] != kNone) previous_[next_[i]] = previous_[i];
  spans_.reopen(i);
  --deferred_;
}

void Dive::wake_sections(std::uint32_t first, std::uint32_t last) {
  if (deferred_ == 0) return;
  if (last > strip_.sections) {
    wake_sections(0, last - strip_.sections);
    last = strip_.sections;
  }
  for (std::uint32_t x = waited_for_.next(first); x < last; x = waited_for_.next(x)) {
    while (head_[x] != kNone) wake(head_[x]);
  }
}

void Dive::wake_all() { wake_sections(0, strip_.sections); }

}  // namespace berth::place
