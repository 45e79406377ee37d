#include "csrc/place/fits/first_fit.h"

#include "csrc/core/bytes.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace berth::place {

std::string_view order_name(Order order) noexcept {
  switch (order) {
    case Order::kBirth:
      return "birth";
    case Order::kSize:
      return "size";
    case Order::kLength:
      return "length";
    case Order::kArea:
      return "area";
    case Order::kLoad:
      return "load";
    case Order::kLoadArea:
      return "load-area";
    case Order::kLengthSize:
      return "length-size";
    case Order::kSizeBirth:
      return "size-birth";
  }
  return "";
}

FirstFit::FirstFit(const Conflicts& conflicts) : conflicts_(conflicts) {
  for (const Buffer& buffer : conflicts.problem().buffers) has_pins_ |= buffer.pinned.has_value();
  if (!is_single() || has_pins_) placed_.emplace(conflicts);
}

void FirstFit::make_single() {
  single_ = std::make_unique<Single>();
  const Problem& problem = conflicts_.problem();
  std::vector<Arc> arcs;
  for (Index i = 0; i < conflicts_.size(); ++i)
    arcs.push_back(
        {i, problem.buffers[i].birth, problem.buffers[i].length, problem.buffers[i].pinned});
  const std::uint64_t period = arcs.empty() ? 0 : period_of(problem, problem.buffers.front());
  single_->strip = make_strip(conflicts_, arcs, period, true);
  single_->items.resize(conflicts_.size());
  for (std::uint32_t k = 0; k < single_->strip.items.size(); ++k)
    single_->items[single_->strip.items[k].buffer] = k;
  single_->fit.emplace(single_->strip);
}

std::optional<Packing> FirstFit::run_single(std::span<const Index> order, Fit fit, Bytes below,
                                            const Budget* budget) {
  if (!single_) make_single();
  const auto& buffers = conflicts_.problem().buffers;
  Packing packing{std::vector<Bytes>(conflicts_.size()), 0};
  const auto put = [&](Index i, Bytes offset) {
    packing.offsets[i] = offset;
    packing.high_water_mark = std::max(packing.high_water_mark, offset + conflicts_.bytes(i));
  };
  std::vector<std::uint32_t> items;
  for (const Index i : order) {
    if (buffers[i].pinned) {
      put(i, *buffers[i].pinned);
    } else {
      items.push_back(single_->items[i]);
    }
  }
  if (packing.high_water_mark >= below) return std::nullopt;
  const auto offsets = single_->fit->run(items, fit, below, budget);
  if (!offsets) return std::nullopt;
  for (std::size_t k = 0; k < offsets->size(); ++k)
    put(single_->strip.items[k].buffer, (*offsets)[k]);
  return packing;
}

std::vector<Index> FirstFit::sorted(Order order, std::span<const Bytes> loads) const {
  // Keys are sorted as integers, so that equal problems give equal orders on every machine.
  using Area = unsigned __int128;
  struct Key {
    Area first;
    Area second;
    Index index;
  };
  std::vector<Key> keys;
  keys.reserve(conflicts_.size());
  constexpr Area kDescending = ~Area{0};
  for (Index i = 0; i < conflicts_.size(); ++i) {
    const Area size = conflicts_.bytes(i);
    const Area length = conflicts_.problem().buffers[i].length;
    const Area birth = conflicts_.lifetime(i).birth;
    Key key{0, 0, i};
    switch (order) {
      case Order::kBirth:
        key = {birth, kDescending - length, i};
        break;
      case Order::kSize:
        key = {kDescending - size, kDescending - length, i};
        break;
      case Order::kLength:
        key = {kDescending - length, kDescending - size, i};
        break;
      case Order::kArea:
        key = {kDescending - size * length, 0, i};
        break;
      case Order::kLoad:
        key = {kDescending - loads[i], kDescending - length, i};
        break;
      case Order::kLoadArea:
        key = {kDescending - loads[i], kDescending - size * length, i};
        break;
      case Order::kLengthSize:
        // Lifetimes of one magnitude count as equal.
        for (Area rest = length; rest != 0; rest /= 2) ++key.first;
        key = {kDescending - key.first, kDescending - size, i};
        break;
      case Order::kSizeBirth:
        key = {kDescending - size, birth, i};
        break;
    }
    keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end(), [](const Key& a, const Key& b) {
    return std::tie(a.first, a.second, a.index) < std::tie(b.first, b.second, b.index);
  });
  std::vector<Index> result;
  result.reserve(keys.size());
  for (const Key& key : keys) result.push_back(key.index);
  return result;
}

void FirstFit::block_other_groups(std::uint32_t group, const Packing& packing) {
  blocked_.clear();
  std::vector<Span> all;
  if (!has_pins_) {
    if (packing.high_water_mark > 0) all.push_back({0, packing.high_water_mark});
  } else if (conflicts_.lanes().group_count() > 1) {
    for (Index i = 0; i < conflicts_.size(); ++i) {
      const std::uint32_t other = conflicts_.group(i);
      if (other == group) continue;
      if (other < group || conflicts_.problem().buffers[i].pinned) {
        all.push_back({packing.offsets[i], packing.offsets[i] + conflicts_.bytes(i)});
      }
    }
  }
  std::sort(all.begin(), all.end(), [](Span a, Span b) { return a.first < b.first; });
  for (const Span span : all) {
    if (!blocked_.empty() && span.first <= blocked_.back().last) {
      blocked_.back().last = std::max(blocked_.back().last, span.last);
    } else {
      blocked_.push_back(span);
    }
  }
}

std::optional<std::pair<Index, Index>> FirstFit::colliding_pins() {
  if (!has_pins_) return std::nullopt;
  const Problem& problem = conflicts_.problem();
  placed_->clear();
  std::optional<std::pair<Index, Index>> result;
  const auto touch = [&](Index i, Index j) {
    const Bytes a = *problem.buffers[i].pinned, b = *problem.buffers[j].pinned;
    if (a < b + conflicts_.bytes(j) && b < a + conflicts_.bytes(i)) result = {j, i};
  };
  std::vector<Index> pins;
  for (Index i = 0; i < conflicts_.size() && !result; ++i) {
    if (!problem.buffers[i].pinned) continue;
    placed_->for_each(i, [&](Index j) { touch(i, j); });
    placed_->add(i);
    pins.push_back(i);
  }
  if (result || conflicts_.lanes().group_count() == 1) return result;
  // Pins of two groups may share no byte at all.
  std::sort(pins.begin(), pins.end(), [&](Index i, Index j) {
    return *problem.buffers[i].pinned < *problem.buffers[j].pinned;
  });
  // The two furthest ends below, of different groups.
  Index first = 0, second = 0;
  Bytes first_end = 0, second_end = 0;
  for (const Index i : pins) {
    const Bytes begin = *problem.buffers[i].pinned, end = begin + conflicts_.bytes(i);
    if (first_end > begin && conflicts_.group(first) != conflicts_.group(i)) return {{first, i}};
    if (second_end > begin && conflicts_.group(second) != conflicts_.group(i)) return {{second, i}};
    if (end > first_end) {
      if (first_end > 0 && conflicts_.group(first) != conflicts_.group(i)) {
        second = first;
        second_end = first_end;
      }
      first = i;
      first_end = end;
    } else if (end > second_end && conflicts_.group(first) != conflicts_.group(i)) {
      second = i;
      second_end = end;
    }
  }
  return std::nullopt;
}

Bytes FirstFit::find_hole(Bytes size, Bytes unit, Fit fit) {
  std::sort(spans_.begin(), spans_.end(), [](Span a, Span b) { return a.first < b.first; });
  Bytes top = 0, best = 0, tightest = std::numeric_limits<Bytes>::max();
  for (const Span span : spans_) {
    if (span.first > top) {
      const Bytes offset = align_up(top, unit);
      if (offset <= span.first && span.first - offset >= size) {
        if (fit == Fit::kFirst) return offset;
        if (span.first - top < tightest) {
          tightest = span.first - top;
          best = offset;
        }
      }
    }
    top = std::max(top, span.last);
  }
  return tightest == std::numeric_limits<Bytes>::max() ? align_up(top, unit) : best;
}

std::optional<Packing> FirstFit::run(std::span<const Index> order, Fit fit, Bytes below,
                                     const Budget* budget) {
  if (is_single()) return run_single(order, fit, below, budget);
  const Problem& problem = conflicts_.problem();
  Packing packing{std::vector<Bytes>(conflicts_.size()), 0};
  offsets_.resize(conflicts_.size());
  placed_->clear();
  const auto place = [&](Index i, Bytes offset) {
    offsets_[i] = packing.offsets[i] = offset;
    packing.high_water_mark = std::max(packing.high_water_mark, offset + conflicts_.bytes(i));
    return packing.high_water_mark < below;
  };
  for (const Index i : order) {
    if (!problem.buffers[i].pinned) continue;
    if (!place(i, *problem.buffers[i].pinned)) return std::nullopt;
    placed_->add(i);
  }
  std::uint32_t count = 0;
  const std::uint32_t groups = conflicts_.lanes().group_count();
  std::vector<std::vector<Index>> by_group(groups);
  for (const Index i : order) by_group[conflicts_.group(i)].push_back(i);
  for (std::uint32_t group = 0; group < groups; ++group) {
    block_other_groups(group, packing);
    for (const Index i : by_group[group]) {
      if (problem.buffers[i].pinned) continue;
      if (budget != nullptr && ++count % 64 == 0 && budget->expired()) return std::nullopt;
      spans_ = blocked_;
      placed_->for_each(i, [&](Index j) {
        spans_.push_back({offsets_[j], offsets_[j] + conflicts_.bytes(j)});
      });
      if (!place(i, find_hole(conflicts_.bytes(i), conflicts_.unit(i), fit))) return std::nullopt;
      placed_->add(i);
    }
  }
  return packing;
}

}  // namespace berth::place
