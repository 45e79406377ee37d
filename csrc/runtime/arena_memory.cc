#include "csrc/runtime/arena_memory.h"

#include <algorithm>
#include <utility>

namespace berth {
namespace {

// What comes at one time where a page of the device is small, so that few calls do.
constexpr Bytes kLeastUnit = Bytes{2} << 20;

}  // namespace

ArenaMemory::ArenaMemory(Device& device, PageSource* source, Bytes alignment) noexcept
    : device_(device),
      source_(source),
      alignment_(alignment),
      unit_(device.properties().aliases
                ? 1
                : std::max<Bytes>(kLeastUnit / device.properties().page_bytes, 1)) {}

ArenaMemory::~ArenaMemory() {
  if (base_ == nullptr) return;
  // Where that fails there is nothing to be done.
  if (device_.properties().asynchronous) (void)device_.synchronize_all();
  (void)device_.release(base_, range_bytes_);
}

Bytes ArenaMemory::range_of(Bytes bytes) const noexcept {
  // An allocation of half a unit and more takes whole units of the driver's: that much is held.
  const Bytes unit = unit_ * page();
  const bool in_units = !device_.properties().maps_pages && bytes >= unit / 2;
  return align_up(bytes, in_units ? unit : page());
}

Status ArenaMemory::reserve(Bytes bytes) noexcept {
  const DeviceProperties& properties = device_.properties();
  if (const Status status = let_go(); !status.ok()) return status;
  // Addresses cost nothing where pages are mapped one by one: take as many as any later plan may
  // need.
  Bytes range = range_of(bytes);
  void* base = nullptr;
  Status status;
  if (properties.maps_pages) {
    const Bytes roomy = std::max(range, align_up(properties.total_bytes, page()));
    status = device_.reserve(roomy, std::max<Bytes>(alignment_, page()), &base);
    if (status.ok()) range = roomy;
  }
  if (base == nullptr) status = device_.reserve(range, std::max<Bytes>(alignment_, page()), &base);
  Bytes free = 0;
  if (!status.ok() && !properties.maps_pages && source_ != nullptr &&
      device_.free_bytes(&free).ok() && free < range) {
    (void)source_->trim();
    status = device_.reserve(range, std::max<Bytes>(alignment_, page()), &base);
  }
  if (!status.ok()) return status;
  PageBitmap bits(range / page());
  if (!bits.valid()) {
    (void)device_.release(base, range);
    return {Status::Code::kOutOfMemory, "mmap"};
  }
  base_ = static_cast<std::byte*>(base);
  range_bytes_ = range;
  pages_ = std::move(bits);
  if (!properties.maps_pages) note_committed({0, range / page()});
  return {};
}

// Memory goes back only where nobody has it behind other addresses.
bool ArenaMemory::source_lets_go(ByteRange pages) noexcept {
  if (source_ == nullptr || !device_.properties().aliases) return true;
  const Bytes base = reinterpret_cast<Bytes>(base_);
  return source_->let_go_of({base + pages.first * page(), base + pages.last * page()});
}

Status ArenaMemory::let_go() noexcept {
  if (base_ == nullptr) return {};
  if (!source_lets_go({0, range_bytes_ / page()})) return {Status::Code::kFailed, "decommit"};
  const Status status = device_.release(base_, range_bytes_);
  if (!status.ok()) return status;
  base_ = nullptr;
  range_bytes_ = committed_ = pages_end_ = 0;
  pages_ = PageBitmap();
  count_missing();
  return {};
}

std::vector<ByteRange> ArenaMemory::pages_under(const std::vector<ByteRange>& used) const {
  std::vector<ByteRange> needed;
  needed.reserve(used.size());
  for (const ByteRange bytes : used) {
    ByteRange pages = page_numbers(bytes);
    // Where no pages are mapped the range is one piece.
    if (!device_.properties().maps_pages) pages.first = 0;
    if (!needed.empty() && pages.first <= needed.back().last) {
      needed.back().last = std::max(needed.back().last, pages.last);
    } else {
      needed.push_back(pages);
    }
  }
  return needed;
}

void ArenaMemory::plan(std::vector<ByteRange> pages) noexcept {
  needed_ = std::move(pages);
  least_handle_ = 0;
  count_missing();
}

void ArenaMemory::count_missing() noexcept {
  missing_ = 0;
  for (const ByteRange range : needed_) {
    const Bytes there = pages_.valid() ? pages_.count(range.first, range.last) : 0;
    missing_ += (range.size() - there) * page();
  }
}

std::vector<ByteRange> ArenaMemory::stretches() const {
  std::vector<ByteRange> result;
  for (Bytes first = pages_.next_set(0, pages_end_); first < pages_end_;) {
    const Bytes last = pages_.next_clear(first, pages_end_);
    result.push_back({first * page(), last * page()});
    first = pages_.next_set(last, pages_end_);
  }
  return result;
}

std::vector<ByteRange> ArenaMemory::unneeded() const {
  std::vector<ByteRange> result;
  for (Bytes at = pages_.next_set(0, pages_end_); at < pages_end_;) {
    const Bytes last = pages_.next_clear(at, pages_end_);
    auto needed = std::upper_bound(needed_.begin(), needed_.end(), at,
                                   [](Bytes first, ByteRange range) { return first < range.last; });
    for (; needed != needed_.end() && needed->first < last; ++needed) {
      if (at < needed->first) result.push_back({at * page(), needed->first * page()});
      at = needed->last;
    }
    if (at < last) result.push_back({at * page(), last * page()});
    at = pages_.next_set(std::max(at, last), pages_end_);
  }
  return result;
}

ByteRange ArenaMemory::whole_handles(ByteRange pages) const noexcept {
  const Bytes base = reinterpret_cast<Bytes>(base_);
  const ByteRange whole =
      device_.whole_handles({base + pages.first * page(), base + pages.last * page()});
  return {(whole.first - base) / page(), (whole.last - base) / page()};
}

bool ArenaMemory::has(ByteRange bytes) const noexcept {
  const ByteRange pages = page_numbers(bytes);
  return pages.last <= pages_end_ && pages_.next_clear(pages.first, pages.last) == pages.last;
}

void ArenaMemory::note_committed(ByteRange pages) noexcept {
  auto needed = std::upper_bound(needed_.begin(), needed_.end(), pages.first,
                                 [](Bytes at, ByteRange range) { return at < range.last; });
  for (; needed != needed_.end() && needed->first < pages.last; ++needed) {
    const Bytes first = std::max(needed->first, pages.first);
    const Bytes last = std::min(needed->last, pages.last);
    missing_ -= (last - first - pages_.count(first, last)) * page();
  }
  committed_ += pages_.set(pages.first, pages.last) * page();
  pages_end_ = std::max(pages_end_, pages.last);
}

// --- Pages that come ----------------------------------------------------------------------------

ArenaMemory::Brought ArenaMemory::ensure(ByteRange bytes, ByteRange around, LaneKey lane,
                                         bool planned) noexcept {
  Brought brought;
  const ByteRange wanted = page_numbers(bytes);
  const ByteRange pages = whole_units(page_numbers(around));
  if (pages_.next_clear(pages.first, pages.last) == pages.last) return brought;
  const auto may_grow = [&](Bytes count) {
    return source_ == nullptr || source_->may_grow(count * page(), bytes.size());
  };
  const auto may_come = [&](Bytes count) {
    // mutant: pages-planned
    return planned || may_grow(count);
  };
  bring(wanted, lane, true, may_come, &brought);
  if (!brought.all || pages == wanted) return brought;
  bring(pages, lane, false, may_grow, &brought);
  brought.all = true;
  return brought;
}

ArenaMemory::Brought ArenaMemory::fill(LaneKey lane, bool may_grow) noexcept {
  Brought brought;
  for (const ByteRange pages : needed_)
    bring(
        pages, lane, true, [&](Bytes) { return may_grow; }, &brought);
  return brought;
}

// Whole units around the pages, as far as the plan needs them.
ByteRange ArenaMemory::whole_units(ByteRange pages) const noexcept {
  const auto after = std::upper_bound(needed_.begin(), needed_.end(), pages.first,
                                      [](Bytes at, ByteRange range) { return at < range.first; });
  if (unit_ == 1 || after == needed_.begin() || std::prev(after)->last < pages.last) return pages;
  const ByteRange around = *std::prev(after);
  return {std::max(around.first, pages.first / unit_ * unit_),
          std::min(around.last, (pages.last + unit_ - 1) / unit_ * unit_)};
}

Bytes ArenaMemory::end_of_needed(ByteRange pages) const noexcept {
  const auto around = std::upper_bound(needed_.begin(), needed_.end(), pages.first,
                                       [](Bytes at, ByteRange range) { return at < range.last; });
  return around == needed_.end() || around->first > pages.first
             ? pages.last
             : std::max(around->last, pages.last);
}

template <class MayGrow>
void ArenaMemory::bring(ByteRange pages, LaneKey lane, bool others, MayGrow&& may_grow,
                        Brought* brought) noexcept {
  for (Bytes first = pages_.next_clear(pages.first, pages.last); first < pages.last;) {
    ByteRange run{first, pages_.next_set(first, pages.last)};
    const ByteRange whole = run;
    const Bytes room_ends = pages_.next_set(run.last, end_of_needed(run));
    move_pages(&run, room_ends - run.first, lane, false, brought);
    if (run.size() != 0 && !(may_grow(run.size()) && commit(run))) {
      if (others) move_pages(&run, room_ends - run.first, lane, true, brought);
      if (run.size() != 0) {
        brought->all = false;
        return;
      }
    }
    first = pages_.next_clear(whole.last, pages.last);
  }
}

// Takes those that came off `pages`.
void ArenaMemory::move_pages(ByteRange* pages, Bytes room, LaneKey lane, bool others,
                             Brought* brought) noexcept {
  if (source_ == nullptr || pages->size() == 0) return;
  const Bytes count =
      source_->move_pages(base_ + pages->first * page(), pages->size(), room, lane, others);
  if (count == 0) return;
  const ByteRange came{pages->first, pages->first + count};
  pages_moved_ += count;
  if (device_.properties().aliases || device_.properties().move_bytes != 0) {
    note_committed(came);
  } else if (!commit(came)) {
    return;  // they went back to the device, and somebody else was faster
  }
  const ByteRange bytes{came.first * page(), came.last * page()};
  brought->moved = brought->moved.size() == 0
                       ? bytes
                       : ByteRange{std::min(brought->moved.first, bytes.first),
                                   std::max(brought->moved.last, bytes.last)};
  pages->first = std::min(pages->last, came.last);
}

bool ArenaMemory::commit(ByteRange pages) noexcept {
  const Status status =
      device_.commit(base_ + pages.first * page(), pages.size() * page(),
                     Device::Residency::kResident, std::max(device_.handle_bytes(), least_handle_));
  if (status.ok()) note_committed(pages);
  return status.ok();
}

// --- Pages that go ------------------------------------------------------------------------------

Bytes ArenaMemory::release() noexcept {
  const Bytes given = committed_;
  if (let_go().ok()) return given;
  ++device_errors_;
  return 0;
}

Bytes ArenaMemory::give_back(ByteRange bytes) noexcept {
  if (!device_.properties().maps_pages) return 0;
  const Bytes before = committed_;
  // mutant: pages-part
  const Bytes begin = align_up(bytes.first, page()) / page(), end = bytes.last / page();
  for (Bytes at = pages_.next_set(begin, end); at < end;) {
    const Bytes last = pages_.next_clear(at, end);
    // mutant: handle-arena
    give_back_pages(whole_handles({at, last}));
    at = pages_.next_set(last, end);
  }
  count_missing();
  return before - committed_;
}

void ArenaMemory::give_back_pages(ByteRange pages) noexcept {
  if (pages.first >= pages.last) return;
  if (source_lets_go(pages) &&
      device_.decommit(base_ + pages.first * page(), pages.size() * page()).ok())
    committed_ -= pages_.clear(pages.first, pages.last) * page();
  else
    ++device_errors_;
}

}  // namespace berth
