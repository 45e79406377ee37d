#include "csrc/core/check.h"
#include "csrc/pool/state.h"

#include <algorithm>
#include <new>
#include <utility>

namespace berth {
namespace {

// The smallest multiple of `unit` that is not below `value`.
Bytes round_up(Bytes value, Bytes unit) noexcept { return (value + unit - 1) / unit * unit; }

// Twice the device's memory where nothing else is asked: holes may then lie anywhere without
// addresses running out. x86-64 has 2^47.
Bytes default_range(const Device& device) noexcept {
  return 2 * std::min(device.properties().total_bytes, Bytes{1} << 44);
}

}  // namespace

// --- Ranges -------------------------------------------------------------------------------------

Pool::State::State(Device& the_device, LaneEvents& the_events, const PoolOptions& the_options)
    : device(the_device),
      events(the_events),
      options(the_options),
      maps(the_device.properties().maps_pages),
      asynchronous(the_device.properties().asynchronous),
      stitching(the_device.properties().aliases),
      page(the_device.properties().page_bytes),
      stitches(the_device, the_events),
      waiting(the_events) {
  BERTH_CHECK(is_power_of_two(options.alignment) && options.alignment <= page, kUsage,
              "the pool's alignment {} is no power of two up to the device's page of {}",
              options.alignment, page);
  BERTH_CHECK(options.growth_bytes <= kMaxBytes / 4 &&
                  options.resident_growth_bytes <= kMaxBytes / 4 &&
                  options.range_bytes <= kMaxBytes / 4,
              kUsage, "the pool cannot grow by {} or {} in a range of {}",
              format_bytes(options.growth_bytes), format_bytes(options.resident_growth_bytes),
              format_bytes(options.range_bytes));
  unit = std::max(round_up(options.growth_bytes, page), page);
  grain = stitching ? page : unit;
  if (stitching) options.resident_growth_bytes = 0;
  options.resident_growth_bytes = std::max(round_up(options.resident_growth_bytes, unit), unit);
  if (!maps) {
    nobody.order_by_size();
    return;
  }

  // Host memory first: where it is short no range is left behind.
  for (int end = 0; end < kEnds; ++end) {
    segments.push_back(std::make_unique<Segment>());
    segments.back()->end = static_cast<End>(end);
  }
  for (AddressRange* const range : {&ends, &residents}) {
    Bytes size = round_up(
        std::max(options.range_bytes == 0 ? default_range(device) : options.range_bytes, unit),
        unit);
    while (true) {
      void* base = nullptr;
      const Status status = device.reserve(size, page, &base);
      if (status.ok()) {
        *range = {reinterpret_cast<Bytes>(base), size};
        break;
      }
      // A process whose addresses are limited (RLIMIT_AS) gets a smaller range.
      if (options.range_bytes == 0 && size / 2 >= unit) {
        size = round_up(size / 2, unit);
        continue;
      }
      if (range == &residents) (void)device.release(pointer_at(ends.first), ends.size);
      throw Error(ErrorKind::kSystem, fmt::format("the pool cannot reserve {} of addresses: {}",
                                                  format_bytes(size), device.describe(status)));
    }
  }
  const Bytes lows[kEnds] = {ends.first, ends.first + ends.size, residents.first};
  for (int end = 0; end < kEnds; ++end) segments[end]->first = segments[end]->last = lows[end];
}

Pool::State::~State() {
  // Pages go back when the device is done with them; where it fails there is nothing to be done.
  if (asynchronous) (void)device.synchronize_all();
  // What is used goes last.
  count_at_home(true);
  stitches.drop();
  if (maps) {
    (void)device.release(pointer_at(ends.first), ends.size);
    (void)device.release(pointer_at(residents.first), residents.size);
  } else {
    for (const auto& segment : segments)
      (void)device.release(pointer_at(segment->first), segment->last - segment->first);
  }
}

bool Pool::State::contains(Bytes at) const noexcept {
  if (maps) return is_home(at) || stitches.contains(at);
  const auto after =
      std::upper_bound(segments.begin(), segments.end(), at,
                       [](Bytes key, const auto& segment) { return key < segment->first; });
  return after != segments.begin() && at < (*std::prev(after))->last;
}

// --- Growth -------------------------------------------------------------------------------------

Bytes Pool::State::beside_edge(End end, const LaneHoles& mine, Bytes size) noexcept {
  const Chunk* const edge = maps ? mapped(end).edge() : nullptr;
  return may_take(edge, mine) ? std::min(edge->size, size) : 0;
}

Bytes Pool::State::growth_for(End end, const LaneHoles& mine, Bytes size) noexcept {
  return round_up(size - beside_edge(end, mine, size), unit);
}

Chunk* Pool::State::grow(End end, LaneHoles& mine, Bytes size, bool* fresh) noexcept {
  if (!maps) return grow_segment(end, mine, size, fresh);
  if (Chunk* const hole = grow_returned(end, mine, size, 0, fresh)) return hole;
  return grow_edge(end, mine, size, fresh);
}

bool Pool::State::grow_by(End end, LaneHoles& mine, Bytes pages) noexcept {
  bool fresh = false;
  return grow_returned(end, mine, pages, pages, &fresh) != nullptr ||
         grow_edge(end, mine, pages + beside_edge(end, mine, kMaxBytes / 4), &fresh) != nullptr;
}

Chunk* Pool::State::grow_returned(End end, LaneHoles& mine, Bytes size, Bytes pages,
                                  bool* fresh) noexcept {
  // Only after a trim() are there such pages; few, and this path ends in a system call anyway.
  for (Chunk* gap = returned[static_cast<int>(end)].front(); gap != nullptr;
       gap = HoleTree::after(gap)) {
    Chunk* const before = may_take(gap->previous, mine) ? gap->previous : nullptr;
    Chunk* const after = may_take(gap->next, mine) ? gap->next : nullptr;
    const bool from_top = end == End::kHigh;
    Chunk* const near = from_top ? after : before;
    Chunk* const far = from_top ? before : after;
    const Bytes have = near == nullptr ? 0 : near->size;
    if (pages > gap->size) continue;
    if (have + gap->size + (far == nullptr ? 0 : far->size) < size) continue;
    const Bytes need =
        std::max(pages, std::min(round_up(size - std::min(size, have), unit), gap->size));
    if (need == 0) continue;
    const Bytes at = from_top ? gap->last() - need : gap->first();
    if (!device.commit(pointer_at(at), need, Device::Residency::kOnDemand, device.handle_bytes())
             .ok())
      continue;
    count_reserved(need);
    *fresh = !(near != nullptr && near->owner == &mine) &&
             !(need == gap->size && far != nullptr && far->owner == &mine);
    HoleTree& tree = returned[static_cast<int>(end)];
    tree.erase(gap);
    Chunk* chunk = gap;
    if (need != gap->size) {
      chunk = slab.take();
      chunk->pointer = pointer_at(at);
      chunk->size = need;
      gap->size -= need;
      if (from_top) {
        gap->segment->link_after(gap, chunk);
      } else {
        gap->pointer = pointer_at(at + need);
        gap->segment->link_after(gap->previous, chunk);
      }
      tree.insert(gap);
    }
    chunk->owner = &mine;
    return add_hole(chunk);
  }
  return nullptr;
}

Chunk* Pool::State::grow_edge(End end, LaneHoles& mine, Bytes size, bool* fresh) noexcept {
  Segment& segment = mapped(end);
  Chunk* const edge = may_take(segment.edge(), mine) ? segment.edge() : nullptr;
  const Bytes have = edge == nullptr ? 0 : edge->size;
  if (size > kMaxBytes / 2) return nullptr;
  const Bytes least = round_up(size - std::min(size, have), unit);
  const Bytes room = end == End::kResident ? residents.first + residents.size - segment.last
                                           : mapped(End::kHigh).first - mapped(End::kLow).last;
  const Bytes wish = end == End::kResident ? round_up(least, options.resident_growth_bytes) : least;
  for (Bytes more = wish;; more = least) {
    if (more <= room) {
      const Bytes at = end == End::kHigh ? segment.first - more : segment.last;
      if (device.commit(pointer_at(at), more, Device::Residency::kOnDemand, device.handle_bytes())
              .ok()) {
        Chunk* const chunk = slab.take();
        chunk->pointer = pointer_at(at);
        chunk->size = more;
        chunk->owner = &mine;
        if (end == End::kHigh) {
          segment.first = at;
          segment.link_after(nullptr, chunk);
        } else {
          segment.last = at + more;
          segment.link_after(segment.tail, chunk);
        }
        count_reserved(more);
        *fresh = edge == nullptr || edge->owner != &mine;
        return add_hole(chunk);
      }
    }
    if (more == least) return nullptr;
  }
}

bool Pool::State::prepare_segments() noexcept {
  try {
    segments.reserve(segments.size() + 1);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

Chunk* Pool::State::grow_segment(End end, LaneHoles& mine, Bytes size, bool* fresh) noexcept {
  if (size > kMaxBytes / 2) return nullptr;
  // mutant: segments-large
  const bool large =
      options.large_segment_bytes != 0 && stats.reserved / 2 >= options.large_segment_bytes;
  const Bytes least = round_up(size, unit);
  const Bytes shared = large ? options.large_segment_bytes : options.segment_bytes;
  const bool shares = size > unit / 2 && size < shared / 2;
  const Bytes wish = shares ? std::max(least, round_up(shared, unit)) : least;
  std::unique_ptr<Segment> segment(new (std::nothrow) Segment);
  if (segment == nullptr || !prepare_segments()) return nullptr;
  for (Bytes more = wish;; more = least) {
    void* base = nullptr;
    if (device.reserve(more, options.alignment, &base).ok()) {
      // A device may have let go of the lock that covers us: others then used what was prepared.
      if (!slab.prepare(4) || !table.prepare() || !prepare_segments()) {
        (void)device.release(base, more);
        return nullptr;
      }
      segment->end = end;
      segment->first = reinterpret_cast<Bytes>(base);
      segment->last = segment->first + more;
      Chunk* const chunk = slab.take();
      chunk->pointer = base;
      chunk->size = more;
      chunk->owner = &mine;
      segment->link_after(nullptr, chunk);
      const auto place =
          std::upper_bound(segments.begin(), segments.end(), segment,
                           [](const auto& a, const auto& b) { return a->first < b->first; });
      segments.insert(place, std::move(segment));
      count_reserved(more);
      *fresh = true;
      return add_hole(chunk);
    }
    if (more == least) return nullptr;
  }
}

// --- Giving back --------------------------------------------------------------------------------

Bytes Pool::State::trim() noexcept {
  if (asynchronous) {
    // mutant: s5-trim
    if (!events.synchronize()) return 0;
    free_ready(kAllLanes);
    stitches.drop();
    unmap_moved();
    // Nobody has to wait for any hole.
    disown_all();
  }
  if (!maps) return release_free_segments();
  Bytes given = 0;
  for (const auto& segment : segments) {
    for (Chunk* chunk = segment->head; chunk != nullptr; chunk = chunk->next)
      if (chunk->kind == Chunk::Kind::kHole) given += give_back(chunk);
    shrink(*segment);
  }
  return given;
}

ByteRange Pool::State::whole_handles(const Chunk* hole) const noexcept {
  const Bytes base = hole->segment->end == End::kResident ? residents.first : ends.first;
  const ByteRange grains{base + round_up(hole->first() - base, grain),
                         base + (hole->last() - base) / grain * grain};
  return grains.first < grains.last ? device.whole_handles(grains) : grains;
}

// Of a hole, its whole handles: what is left at the sides stays a hole. The chunk stays where it is
// in the list.
Bytes Pool::State::give_back(Chunk* hole) noexcept {
  const auto [low, high] = whole_handles(hole);
  if (low >= high || stitches.map({low, high}) || !slab.prepare(2)) return 0;
  if (!device.decommit(pointer_at(low), high - low).ok()) return 0;
  Chunk* const chunk = take_out(hole, {low, high}, Chunk::Kind::kReturned);
  stats.reserved -= high - low;
  end_pages(chunk);
  return high - low;
}

void Pool::State::end_pages(Chunk* chunk) noexcept {
  chunk->kind = Chunk::Kind::kReturned;
  Segment& segment = *chunk->segment;
  HoleTree& tree = returned[static_cast<int>(segment.end)];
  for (Chunk* const neighbour : {chunk->previous, chunk->next}) {
    if (neighbour == nullptr || neighbour->kind != Chunk::Kind::kReturned) continue;
    tree.erase(neighbour);
    chunk->pointer = std::min(chunk->pointer, neighbour->pointer);
    chunk->size += neighbour->size;
    segment.unlink(neighbour);
    slab.give(neighbour);
  }
  tree.insert(chunk);
}

// Pages given back at the edge go back to the gap between the ends.
void Pool::State::shrink(Segment& segment) noexcept {
  Chunk* const edge = segment.edge();
  if (edge == nullptr || edge->kind != Chunk::Kind::kReturned) return;
  if (segment.end == End::kHigh)
    segment.first = edge->last();
  else
    segment.last = edge->first();
  returned[static_cast<int>(segment.end)].erase(edge);
  segment.unlink(edge);
  slab.give(edge);
}

Bytes Pool::State::idle() const noexcept {
  if (maps) return 0;
  Bytes sum = 0;
  for (const auto& segment : segments) {
    const Chunk* chunk = segment->head;
    while (chunk != nullptr && chunk->kind == Chunk::Kind::kHole) chunk = chunk->next;
    // mutant: plain-idle-only
    if (chunk == nullptr) sum += segment->last - segment->first;
  }
  return sum;
}

Bytes Pool::State::release_free_segments() noexcept {
  Bytes given = 0;
  for (Bytes next = 0;;) {
    const auto it = std::find_if(segments.begin(), segments.end(), [&](const auto& segment) {
      return segment->first >= next && segment->head == segment->tail &&
             segment->head->kind == Chunk::Kind::kHole;
    });
    if (it == segments.end()) return given;
    Segment& segment = **it;
    const Bytes size = segment.last - segment.first;
    next = segment.last;
    // Nobody may take it meanwhile: a device may let go of the lock that covers us.
    Chunk* const only = segment.head;
    only->owner->at(segment.end).erase(only);
    only->kind = Chunk::Kind::kMoved;
    if (!device.release(pointer_at(segment.first), size).ok()) {
      (void)add_hole(only);
      continue;
    }
    slab.give(only);
    stats.reserved -= size;
    given += size;
    segments.erase(std::find_if(segments.begin(), segments.end(),
                                [&](const auto& one) { return one.get() == &segment; }));
  }
}

}  // namespace berth
