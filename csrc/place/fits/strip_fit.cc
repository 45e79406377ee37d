#include "csrc/place/fits/strip_fit.h"

#include "csrc/core/bytes.h"

#include <algorithm>
#include <limits>

namespace berth::place {
namespace {

// Items that begin in half of the shortest ranges, about, and how much longer the next ones are; of
// large strips more, for memory.
constexpr std::size_t kItems = 256, kItemsOfLarge = 1024;
constexpr std::int64_t kStep = 2, kStepOfLarge = 4;
constexpr std::size_t kLarge = 200'000;

}  // namespace

StripFit::StripFit(const Strip& strip) : strip_(strip) {
  std::int64_t longest = 1;
  for (const Strip::Item& item : strip.items)
    longest = std::max<std::int64_t>(longest, item.last - item.first);
  const std::size_t count = std::max<std::size_t>(strip.items.size(), 1);
  const std::size_t items = count > kLarge ? kItemsOfLarge : kItems;
  const std::int64_t step = count > kLarge ? kStepOfLarge : kStep;
  std::int64_t width = static_cast<std::int64_t>(items * strip.sections / count);
  std::size_t lists = 0;
  for (width = std::max<std::int64_t>(width, 1); 4 * width < strip.sections; width *= step) {
    const auto ranges = static_cast<std::size_t>((strip.sections + width - 1) / width);
    levels_.push_back({width, lists, ranges});
    lists += ranges;
    if (width >= longest) break;
  }
  has_whole_ = levels_.empty() || levels_.back().width < longest;
  lists_.resize(lists + (has_whole_ ? 1 : 0));
}

void StripFit::clear() {
  for (List& list : lists_) {
    list.chunks.clear();
    list.begins.clear();
  }
  used_ = 0;
}

void StripFit::insert(List& list, const Entry& entry) {
  const auto fresh = [&] {
    if (used_ == pool_.size()) pool_.emplace_back();
    pool_[used_].size = 0;
    return used_++;
  };
  if (list.chunks.empty()) {
    list.chunks.push_back(fresh());
    list.begins.push_back(entry.begin);
  }
  auto at = static_cast<std::size_t>(
      std::upper_bound(list.begins.begin(), list.begins.end(), entry.begin) - list.begins.begin());
  if (at > 0) --at;
  if (pool_[list.chunks[at]].size == kChunk) {
    const std::uint32_t upper = fresh();
    Chunk &from = pool_[list.chunks[at]], &to = pool_[upper];
    from.size = to.size = kChunk / 2;
    std::copy_n(from.entries.begin() + kChunk / 2, kChunk / 2, to.entries.begin());
    list.chunks.insert(list.chunks.begin() + static_cast<std::ptrdiff_t>(at) + 1, upper);
    list.begins.insert(list.begins.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                       to.entries[0].begin);
    if (entry.begin >= to.entries[0].begin) ++at;
  }
  Chunk& chunk = pool_[list.chunks[at]];
  Entry* const end = chunk.entries.data() + chunk.size;
  Entry* const place =
      std::upper_bound(chunk.entries.data(), end, entry,
                       [](const auto& a, const auto& b) { return a.begin < b.begin; });
  std::copy_backward(place, end, end + 1);
  *place = entry;
  ++chunk.size;
  list.begins[at] = chunk.entries[0].begin;
}

// Into every list that it meets, in each round where it does.
void StripFit::enter(std::int64_t first, std::int64_t last, Bytes begin, Bytes end) {
  const std::int64_t round = strip_.sections;
  for (const std::int64_t shift : {-round, std::int64_t{0}, round}) {
    if (shift != 0 && !strip_.ring) continue;
    const std::int64_t f = first + shift, l = last + shift;
    if (l <= 0 || f >= 2 * round) continue;
    const Entry entry{begin, end, static_cast<std::int32_t>(f), static_cast<std::int32_t>(l)};
    if (has_whole_) insert(lists_.back(), entry);
    for (const Level& level : levels_) {
      // Range r covers [r w, (r + 2) w).
      const std::int64_t from = std::max<std::int64_t>(f / level.width - 1, 0);
      const std::int64_t to =
          std::min((l - 1) / level.width, static_cast<std::int64_t>(level.count) - 1);
      for (std::int64_t r = from; r <= to; ++r) {
        if ((r + 2) * level.width > f)
          insert(lists_[level.first_list + static_cast<std::size_t>(r)], entry);
      }
    }
  }
}

const StripFit::List& StripFit::list_of(const Strip::Item& item) const {
  for (const Level& level : levels_) {
    const std::int64_t range = item.first / level.width;
    if (item.last <= (range + 2) * level.width)
      return lists_[level.first_list + static_cast<std::size_t>(range)];
  }
  return lists_.back();
}

Bytes StripFit::lowest_hole(const List& list, const Strip::Item& item) const {
  Bytes at = align_up(strip_.base, item.unit);
  Bytes until = at + item.size;
  const auto first = static_cast<std::int32_t>(item.first);
  const auto last = static_cast<std::int32_t>(item.last);
  for (const std::uint32_t c : list.chunks) {
    const Chunk& chunk = pool_[c];
    for (std::uint32_t k = 0; k < chunk.size; ++k) {
      const Entry& entry = chunk.entries[k];
      if (entry.begin >= until) return at;
      if (entry.first < last && entry.last > first && entry.end > at) {
        at = align_up(entry.end, item.unit);
        until = at + item.size;
      }
    }
  }
  return at;
}

// The lowest of the tightest; above all where there is none.
Bytes StripFit::tightest_hole(const List& list, const Strip::Item& item) const {
  Bytes top = strip_.base, best = 0, tightest = std::numeric_limits<Bytes>::max();
  const auto first = static_cast<std::int32_t>(item.first);
  const auto last = static_cast<std::int32_t>(item.last);
  for (const std::uint32_t c : list.chunks) {
    const Chunk& chunk = pool_[c];
    for (std::uint32_t k = 0; k < chunk.size; ++k) {
      const Entry& entry = chunk.entries[k];
      if (entry.first >= last || entry.last <= first || entry.end <= top) continue;
      if (entry.begin > top && entry.begin - top < tightest) {
        const Bytes offset = align_up(top, item.unit);
        if (offset + item.size <= entry.begin) {
          tightest = entry.begin - top;
          best = offset;
        }
      }
      top = entry.end;
    }
  }
  return tightest == std::numeric_limits<Bytes>::max() ? align_up(top, item.unit) : best;
}

std::optional<std::vector<Bytes>> StripFit::run(std::span<const std::uint32_t> order, Fit fit,
                                                Bytes below, const Budget* budget) {
  clear();
  for (const Strip::Obstacle& obstacle : strip_.obstacles)
    enter(obstacle.first, obstacle.last, obstacle.begin, obstacle.end);
  std::vector<Bytes> offsets(strip_.items.size());
  std::uint32_t count = 0;
  for (const std::uint32_t i : order) {
    if (budget != nullptr && ++count % 256 == 0 && budget->expired()) return std::nullopt;
    const Strip::Item& item = strip_.items[i];
    const List& list = list_of(item);
    offsets[i] = fit == Fit::kFirst ? lowest_hole(list, item) : tightest_hole(list, item);
    if (offsets[i] + item.size >= below) return std::nullopt;
    enter(item.first, item.last, offsets[i], offsets[i] + item.size);
  }
  return offsets;
}

}  // namespace berth::place
