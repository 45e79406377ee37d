#include "csrc/plan/lookup.h"

#include "csrc/core/check.h"
#include "csrc/core/checksum.h"
#include "csrc/plan/lane_bytes.h"
#include "csrc/plan/structure.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace berth {
namespace {

std::uint64_t window_hash(std::uint32_t sequence, const Bytes* window) noexcept {
  std::uint64_t hash = sequence;
  for (std::size_t i = 0; i < PlanLookup::kWindow; ++i) hash = hash_combine(hash, window[i]);
  return hash;
}

}  // namespace

PlanLookup::PlanLookup(Plan plan) : plan_(std::move(plan)) {
  const std::optional<std::string> bad = structure_violation(plan_);
  BERTH_CHECK(!bad, kUsage, "a malformed plan: {}", *bad);
  make_entries();
  find_shared();
  find_covered();
  make_ends();
  make_alive();
  make_windows();
  entries_.push_back({.offset = Slot::kUnplanned,
                      .requested = 0,
                      .cell = kNone,
                      .birth = 0,
                      .length = 0,
                      .shared = 0});
}

void PlanLookup::make_entries() {
  const std::size_t count = plan_.slot_count();
  entries_.reserve(count + 1);
  first_slots_.reserve(plan_.sequences.size() + 1);
  forks_.reserve(plan_.sequences.size());
  if (plan_.sequences.size() > 1) sequence_of_.reserve(count);
  cells_ = OffsetTable(plan_.alignment);
  for (std::uint32_t s = 0; s < plan_.sequences.size(); ++s) {
    const Sequence& sequence = plan_.sequences[s];
    first_slots_.push_back(static_cast<SlotIndex>(entries_.size()));
    forks_.push_back(sequence.fork);
    if (plan_.sequences.size() > 1) {
      sequence_of_.insert(sequence_of_.end(), sequence.slots.size(), s);
    }
    for (const Slot& slot : sequence.slots) {
      CellIndex cell = kNone;
      if (slot.planned()) {
        cell = cells_.insert(slot.offset, static_cast<CellIndex>(cell_offsets_.size()));
        if (cell == cell_offsets_.size()) cell_offsets_.push_back(slot.offset);
      }
      entries_.push_back({.offset = slot.offset,
                          .requested = slot.requested,
                          .cell = cell,
                          .birth = slot.birth,
                          .length = slot.length,
                          .shared = 0});
    }
  }
  first_slots_.push_back(static_cast<SlotIndex>(entries_.size()));
  count_unplanned();
  for (SlotIndex i = 0; i < count; ++i) {
    if (!slot(i).bucket()) continue;
    buckets_.resize(count);
    buckets_[i] = true;
  }
}

void PlanLookup::count_unplanned() {
  // Before each own slot of each sequence, on its path.
  std::vector<std::size_t> before(entries_.size() + plan_.sequences.size());
  const auto place = [&](std::uint32_t s, std::uint32_t tick) {
    return first_slots_[s] + s + (tick - forks_[s]);
  };
  for (std::uint32_t s = 0; s < plan_.sequences.size(); ++s) {
    const Sequence& sequence = plan_.sequences[s];
    std::size_t count =
        sequence.parent < 0
            ? 0
            : before[place(static_cast<std::uint32_t>(sequence.parent), sequence.fork)];
    for (const Slot& slot : sequence.slots) {
      before[place(s, slot.birth)] = count;
      count += !slot.planned();
    }
    before[place(s, sequence.period)] = count;
    unplanned_slots_ = std::max(unplanned_slots_, count);
  }
}

// A slot is of a lane itself, so where more than one lane has some of its bytes another one has.
void PlanLookup::find_shared() {
  if (plan_.lane_keys.size() < 2) return;
  const std::vector<ByteRange> shared = shared_bytes(bytes_of_lanes(plan_));
  if (shared.empty()) return;
  for (SlotIndex i = 0; i < entries_.size(); ++i) {
    if (entries_[i].cell == kNone) continue;
    const auto behind =
        std::upper_bound(shared.begin(), shared.end(), entries_[i].offset,
                         [](Bytes offset, const ByteRange& range) { return offset < range.last; });
    if (behind != shared.end() && behind->first < entries_[i].offset + slot(i).size) {
      entries_[i].shared = 1;
    }
  }
}

void PlanLookup::find_covered() {
  cell_ends_ = cell_offsets_;
  for (const Entry& entry : entries_) {
    if (entry.cell == kNone) continue;
    Bytes& last = cell_ends_[entry.cell];
    last = std::max(last, entry.offset + align_up(entry.requested, plan_.alignment));
  }
  by_offset_.resize(cell_offsets_.size());
  std::iota(by_offset_.begin(), by_offset_.end(), CellIndex{0});
  std::sort(by_offset_.begin(), by_offset_.end(),
            [&](CellIndex a, CellIndex b) { return cell_offsets_[a] < cell_offsets_[b]; });
  for (const CellIndex index : by_offset_) {
    const ByteRange cell = cell_bytes(index);
    if (!covered_.empty() && cell.first < covered_.back().last + kLeastHole) {
      covered_.back().last = std::max(covered_.back().last, cell.last);
    } else {
      covered_.push_back(cell);
    }
  }
}

void PlanLookup::make_ends() {
  const std::size_t count = entries_.size();
  struct Wrapped {
    WrappedEnd end;
    SlotIndex slot;
  };
  std::vector<Wrapped> wrapped;
  ends_begin_.assign(count + 2, 0);
  // Calls visit(row, slot) for each planned slot that ends at an own tick of its sequence.
  const auto for_each_end = [&](auto&& visit, auto&& visit_wrapped) {
    for (std::uint32_t s = 0; s < plan_.sequences.size(); ++s) {
      const std::uint32_t period = plan_.sequences[s].period;
      for (SlotIndex i = first_slots_[s]; i < first_slots_[s + 1]; ++i) {
        if (entries_[i].cell == kNone) continue;
        std::uint32_t tick = entries_[i].birth + entries_[i].length;
        if (tick >= period) tick -= period;
        if (tick >= forks_[s]) {
          visit(first_slots_[s] + (tick - forks_[s]), i);
        } else {
          visit_wrapped(Wrapped{{s, tick}, i});
        }
      }
    }
  };
  // Counting sort: row r is counted at r + 2, so that the second pass leaves beginnings behind.
  for_each_end([&](std::size_t row, SlotIndex) { ++ends_begin_[row + 2]; },
               [&](const Wrapped& end) { wrapped.push_back(end); });
  std::partial_sum(ends_begin_.begin(), ends_begin_.end(), ends_begin_.begin());
  ends_.resize(ends_begin_.back() + wrapped.size());
  for_each_end([&](std::size_t row, SlotIndex slot) { ends_[ends_begin_[row + 1]++] = slot; },
               [](const Wrapped&) {});

  std::sort(wrapped.begin(), wrapped.end(), [](const Wrapped& a, const Wrapped& b) {
    return std::pair(a.end.sequence, a.end.tick) < std::pair(b.end.sequence, b.end.tick);
  });
  auto out = ends_.end() - static_cast<std::ptrdiff_t>(wrapped.size());
  for (const Wrapped& end : wrapped) {
    wrapped_ends_.push_back(end.end);
    *out++ = end.slot;
  }
}

std::span<const PlanLookup::SlotIndex> PlanLookup::ends_before_fork(
    std::uint32_t sequence, std::uint32_t tick) const noexcept {
  const auto less = [](const WrappedEnd& a, const WrappedEnd& b) {
    return std::pair(a.sequence, a.tick) < std::pair(b.sequence, b.tick);
  };
  const auto [first, last] = std::equal_range(wrapped_ends_.begin(), wrapped_ends_.end(),
                                              WrappedEnd{sequence, tick}, less);
  const SlotIndex* tail = ends_.data() + (ends_.size() - wrapped_ends_.size());
  return {tail + (first - wrapped_ends_.begin()), tail + (last - wrapped_ends_.begin())};
}

void PlanLookup::make_alive() {
  alive_.reserve(plan_.sequences.size());
  for (std::uint32_t s = 0; s < plan_.sequences.size(); ++s) {
    const SlotIndex first = first_slots_[s];
    const std::uint32_t count = first_slots_[s + 1] - first;
    std::vector<std::uint32_t> wrapped;
    for (std::uint32_t slot = 0; slot < count; ++slot) {
      const Entry& entry = entries_[first + slot];
      if (plan_.sequences[s].parent < 0 && entry.cell != kNone &&
          std::uint64_t{entry.birth} + entry.length > plan_.sequences[s].period)
        wrapped.push_back(slot);
    }
    std::vector<std::uint32_t> ends;
    alive_.emplace_back(
        count, wrapped,
        [&](std::uint32_t own_tick) -> const std::vector<std::uint32_t>& {
          ends.clear();
          for (const SlotIndex slot : ends_at(s, forks_[s] + own_tick))
            ends.push_back(slot - first);
          return ends;
        },
        [&](std::uint32_t slot) { return entries_[first + slot].cell != kNone; });
  }
}

void PlanLookup::make_windows() {
  window_table_.assign(std::bit_ceil(2 * entries_.size() + 2), WindowKey{});
  const std::size_t mask = window_table_.size() - 1;
  // One place of the table an own slot, or kNone where its path is too short.
  std::vector<std::uint32_t> places(entries_.size(), kNone);
  for (std::uint32_t s = 0; s < plan_.sequences.size(); ++s) {
    const Sequence& sequence = plan_.sequences[s];
    if (sequence.slots.empty() || sequence.period < kWindow) continue;
    // The size at a tick of the path: the sequence on it that owns the tick is the deepest one
    // whose fork is not behind it.
    const auto requested_at = [&](std::uint32_t tick) {
      const Sequence* owner = &sequence;
      while (tick < owner->fork) owner = &plan_.sequences[static_cast<std::size_t>(owner->parent)];
      return owner->slots[tick - owner->fork].requested;
    };
    Bytes window[kWindow] = {};
    for (std::size_t i = 1; i < kWindow; ++i) {
      const auto back = static_cast<std::uint32_t>(kWindow - i);
      const std::uint32_t fork = sequence.fork;
      window[i] = requested_at(fork >= back ? fork - back : fork + sequence.period - back);
    }
    for (std::size_t k = 0; k < sequence.slots.size(); ++k) {
      std::copy(window + 1, window + kWindow, window);
      window[kWindow - 1] = sequence.slots[k].requested;
      const std::uint64_t hash = window_hash(s, window);
      std::size_t place = hash & mask;
      while (window_table_[place].count != 0 && window_table_[place].hash != hash) {
        place = (place + 1) & mask;
      }
      window_table_[place].hash = hash;
      ++window_table_[place].count;
      places[first_slots_[s] + k] = static_cast<std::uint32_t>(place);
    }
  }
  std::uint32_t begin = 0;
  for (WindowKey& key : window_table_) {
    key.begin = begin;
    begin += std::exchange(key.count, 0);
  }
  window_ticks_.resize(begin);
  for (std::uint32_t s = 0; s < plan_.sequences.size(); ++s) {
    const Sequence& sequence = plan_.sequences[s];
    // The last slot comes first: after it the path is at tick 0, and ticks ascend.
    for (std::size_t k = 0; k < sequence.slots.size(); ++k) {
      const std::size_t at = k == 0 ? sequence.slots.size() - 1 : k - 1;
      const std::uint32_t place = places[first_slots_[s] + at];
      if (place == kNone) continue;
      WindowKey& key = window_table_[place];
      const auto tick = static_cast<std::uint32_t>(sequence.fork + at + 1);
      window_ticks_[key.begin + key.count++] = tick == sequence.period ? 0 : tick;
    }
  }
}

std::span<const std::uint32_t> PlanLookup::positions_after(
    std::uint32_t sequence, std::span<const Bytes, kWindow> window) const noexcept {
  const std::uint64_t hash = window_hash(sequence, window.data());
  const std::size_t mask = window_table_.size() - 1;
  for (std::size_t place = hash & mask; window_table_[place].count != 0;
       place = (place + 1) & mask) {
    const WindowKey& key = window_table_[place];
    if (key.hash == hash) return {window_ticks_.data() + key.begin, key.count};
  }
  return {};
}

}  // namespace berth
