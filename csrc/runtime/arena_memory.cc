#include "csrc/runtime/arena_memory.h"

#include <algorithm>
#include <utility>

namespace berth {

ArenaMemory::~ArenaMemory() {
  if (base_ != nullptr) (void)device_.release(base_, range_bytes_);
}

Status ArenaMemory::reserve(Bytes bytes) noexcept {
  const DeviceProperties& properties = device_.properties();
  if (base_ != nullptr) {
    if (const Status status = device_.release(base_, range_bytes_); !status.ok()) return status;
    base_ = nullptr;
    range_bytes_ = committed_ = pages_end_ = to_come_ = 0;
    pages_ = PageBitmap();
    if (state_ == State::kFilling) state_ = State::kThere;
  }
  // Addresses cost nothing where pages are mapped one by one: take as many as any later plan may
  // need.
  Bytes range = align_up(bytes, page());
  void* base = nullptr;
  Status status;
  if (properties.maps_pages) {
    const Bytes roomy = std::max(range, align_up(properties.total_bytes, page()));
    status = device_.reserve(roomy, std::max<Bytes>(alignment_, page()), &base);
    if (status.ok()) range = roomy;
  }
  if (base == nullptr) status = device_.reserve(range, std::max<Bytes>(alignment_, page()), &base);
  if (!status.ok()) return status;
  PageBitmap bits(range / page());
  if (!bits.valid()) {
    (void)device_.release(base, range);
    return {Status::Code::kOutOfMemory, "mmap"};
  }
  base_ = static_cast<std::byte*>(base);
  range_bytes_ = range;
  pages_ = std::move(bits);
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
  to_come_ = 0;
  state_ = State::kAsleep;
}

void ArenaMemory::forget_plan() noexcept {
  needed_.clear();
  to_come_ = 0;
  state_ = State::kThere;
}

Bytes ArenaMemory::missing() const noexcept {
  Bytes pages = 0;
  for (const ByteRange range : needed_)
    pages += range.size() - pages_.count(range.first, range.last);
  return pages * page();
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

Status ArenaMemory::commit_pages(ByteRange pages, Device::Residency residency) noexcept {
  return device_.commit(base_ + pages.first * page(), pages.size() * page(), residency);
}

Status ArenaMemory::decommit_pages(ByteRange pages) noexcept {
  const Status status = device_.decommit(base_ + pages.first * page(), pages.size() * page());
  if (status.ok()) committed_ -= pages_.clear(pages.first, pages.last) * page();
  return status;
}

void ArenaMemory::note_committed(ByteRange pages) noexcept {
  committed_ += pages_.set(pages.first, pages.last) * page();
  pages_end_ = std::max(pages_end_, pages.last);
}

bool ArenaMemory::commit(Device::Residency residency, const InUse& in_use) noexcept {
  if (asleep()) state_ = State::kAsleep;
  const DeviceProperties& properties = device_.properties();
  const bool on_demand = residency == Device::Residency::kOnDemand;
  if (on_demand && properties.asynchronous && properties.maps_pages) {
    to_come_ = missing();
    state_ = to_come_ == 0 ? State::kThere : State::kFilling;
    give_back_unneeded(in_use);
    return true;
  }
  // What is touched later must be there all the same: a program that touches more than there is, is
  // killed.
  Bytes free = 0;
  if (on_demand && missing() != 0 && device_.free_bytes(&free).ok() && missing() > free)
    return false;
  if (!commit_needed(residency)) return false;
  give_back_unneeded(in_use);
  to_come_ = 0;
  state_ = State::kThere;
  return true;
}

bool ArenaMemory::commit_needed(Device::Residency residency) noexcept {
  for (std::size_t i = 0; i < needed_.size(); ++i) {
    if (commit_pages(needed_[i], residency).ok()) continue;
    ++device_errors_;
    // What this call brought goes: nobody has used it.
    for (std::size_t j = 0; j < i; ++j) {
      const ByteRange range = needed_[j];
      for (Bytes first = pages_.next_clear(range.first, range.last); first < range.last;) {
        const Bytes last = pages_.next_set(first, range.last);
        (void)device_.decommit(base_ + first * page(), (last - first) * page());
        first = pages_.next_clear(last, range.last);
      }
    }
    return false;
  }
  for (const ByteRange pages : needed_) note_committed(pages);
  return true;
}

void ArenaMemory::give_back_unneeded(const InUse& in_use) noexcept {
  bool drained = !device_.properties().asynchronous;
  const auto give_back = [&](Bytes first, Bytes last) {
    for (Bytes from = pages_.next_set(first, last); from < last;) {
      const Bytes to = pages_.next_clear(from, last);
      if (!in_use({from * page(), to * page()})) {
        if (!drained && !device_.synchronize_all().ok()) return;
        drained = true;
        (void)decommit_pages({from, to});
      }
      from = pages_.next_set(to, last);
    }
  };
  Bytes at = 0;
  for (const ByteRange pages : needed_) {
    give_back(at, pages.first);
    at = pages.last;
  }
  give_back(at, pages_end_);
}

bool ArenaMemory::ensure(ByteRange bytes) noexcept {
  const ByteRange pages = page_numbers(bytes);
  for (Bytes first = pages_.next_clear(pages.first, pages.last); first < pages.last;) {
    const ByteRange run{first, pages_.next_set(first, pages.last)};
    if (run.size() * page() > limit_ - std::min(limit_, committed_)) return false;
    if (!commit_pages(run, Device::Residency::kResident).ok()) return false;
    note_committed(run);
    if (state_ == State::kFilling) to_come_ = missing();
    first = pages_.next_clear(run.last, pages.last);
  }
  return true;
}

void ArenaMemory::make_resident() noexcept {
  if (asleep() || missing() > limit_ - std::min(limit_, committed_)) return;
  if (!commit_needed(Device::Residency::kResident)) return;
  to_come_ = 0;
  state_ = State::kThere;
}

Bytes ArenaMemory::retire() noexcept {
  const Bytes before = committed_;
  for (Bytes first = pages_.next_set(0, pages_end_); first < pages_end_;) {
    const Bytes last = pages_.next_clear(first, pages_end_);
    if (!decommit_pages({first, last}).ok()) {
      ++device_errors_;
      break;
    }
    first = pages_.next_set(last, pages_end_);
  }
  if (committed_ != before && !needed_.empty()) {
    to_come_ = 0;
    state_ = State::kAsleep;
  }
  return before - committed_;
}

}  // namespace berth
