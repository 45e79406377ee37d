#include "csrc/pool/stitches.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

namespace berth {
namespace {

// Of the device's memory: so much may be mapped a second time, live, idle and given up together.
constexpr Bytes kTimesMemory = 4;

bool maps(const Stitch& stitch, ByteRange home) noexcept {
  return std::any_of(stitch.behind.begin(), stitch.behind.end(),
                     [&](ByteRange range) { return range.touches(home); });
}

}  // namespace

Stitches::~Stitches() {
  if (size_ != 0) (void)device_.release(pointer_at(first_), size_);
}

bool Stitches::reserve() noexcept {
  if (size_ != 0) return true;
  if (refused_) return false;
  const Bytes page = device_.properties().page_bytes;
  Bytes size =
      align_up(kTimesMemory * std::min(device_.properties().total_bytes, kMaxBytes / 8), page);
  void* base = nullptr;
  while (!device_.reserve(size, page, &base).ok()) {
    size = align_up(size / 2, page);
    // A process whose addresses are limited.
    if (size <= page) {
      refused_ = true;
      return false;
    }
  }
  try {
    free_.emplace(reinterpret_cast<Bytes>(base), size);
  } catch (const std::bad_alloc&) {
    (void)device_.release(base, size);
    return false;
  }
  first_ = reinterpret_cast<Bytes>(base);
  size_ = size;
  return true;
}

Bytes Stitches::take_addresses(Bytes size) noexcept {
  const auto fits = std::find_if(free_.begin(), free_.end(),
                                 [&](const auto& range) { return range.second >= size; });
  if (fits == free_.end()) return 0;
  // From the end, so that the node stays.
  fits->second -= size;
  const Bytes first = fits->first + fits->second;
  if (fits->second == 0) free_.erase(fits);
  return first;
}

// Where the host has no memory for a node the addresses are lost, and only they.
void Stitches::give_addresses(Bytes first, Bytes size) noexcept {
  auto after = free_.lower_bound(first);
  if (after != free_.begin() && std::prev(after)->first + std::prev(after)->second == first) {
    const auto before = std::prev(after);
    before->second += size;
    if (after != free_.end() && before->first + before->second == after->first) {
      before->second += after->second;
      free_.erase(after);
    }
    return;
  }
  if (after != free_.end() && first + size == after->first) {
    auto node = free_.extract(after);
    node.key() = first;
    node.mapped() += size;
    free_.insert(std::move(node));
    return;
  }
  try {
    free_.emplace(first, size);
  } catch (const std::bad_alloc&) {
  }
}

Stitch* Stitches::make(const std::vector<ByteRange>& behind, Bytes skipped) noexcept {
  if (!reserve()) return nullptr;
  const Bytes page = device_.properties().page_bytes;
  try {
    Bytes size = 0;
    for (const ByteRange range : behind) size += range.size();
    std::vector<const void*> from;
    from.reserve(size / page);
    for (const ByteRange range : behind)
      for (Bytes at = range.first; at < range.last; at += page) from.push_back(pointer_at(at));
    std::list<Stitch> made;
    Stitch& stitch = made.emplace_back();
    stitch.place = made.begin();
    stitch.size = size;
    stitch.skipped = skipped;
    stitch.last_handle = device_.handle_at(pointer_at(behind.back().last - 1)).size();
    stitch.behind = behind;
    stitch.pieces.reserve(behind.size());
    stitch.lent.reserve(behind.size());
    while ((stitch.first = take_addresses(size)) == 0) {
      if (idle_.empty()) return nullptr;
      give_up(std::prev(idle_.end()));
      unmap();
    }
    if (!device_.alias(pointer_at(stitch.first), from.data(), from.size()).ok()) {
      give_addresses(stitch.first, size);
      return nullptr;
    }
    ++made_;
    idle_.splice(idle_.begin(), made);
    if (idle_.size() > kMostIdle) give_up(std::prev(idle_.end()));
    return &idle_.front();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void Stitches::give(Stitch& stitch, LaneKey lane) noexcept {
  stitch.lane = lane;
  stitch.block = nullptr;
  stitch.pieces.clear();
  stitch.lent.clear();
  idle_.splice(idle_.begin(), live_, stitch.place);
  if (idle_.size() > kMostIdle) give_up(std::prev(idle_.end()));
}

void Stitches::give_up(Place stitch) noexcept {
  if (events_.record(stitch->lane, &stitch->point) != LaneEvents::Recorded::kYes)
    stitch->proof = events_.synchronizations() + 1;
  given_up_.splice(given_up_.end(), idle_, stitch);
}

void Stitches::give_up_over(ByteRange home) noexcept {
  for (Place stitch = idle_.begin(); stitch != idle_.end();) {
    const Place next = std::next(stitch);
    if (maps(*stitch, home)) give_up(stitch);
    stitch = next;
  }
}

bool Stitches::drop_over(ByteRange home) noexcept {
  for (Place stitch = idle_.begin(); stitch != idle_.end();) {
    const Place next = std::next(stitch);
    if (maps(*stitch, home)) given_up_.splice(given_up_.end(), idle_, stitch);
    stitch = next;
  }
  bool all = true;
  for (Place stitch = given_up_.begin(); stitch != given_up_.end();) {
    const Place next = std::next(stitch);
    if (maps(*stitch, home)) all &= unmap(stitch);
    stitch = next;
  }
  return all;
}

bool Stitches::map(ByteRange home) const noexcept {
  return std::any_of(given_up_.begin(), given_up_.end(),
                     [&](const Stitch& stitch) { return maps(stitch, home); });
}

bool Stitches::unmap(Place stitch) noexcept {
  if (!device_.decommit(pointer_at(stitch->first), stitch->size).ok()) return false;
  give_addresses(stitch->first, stitch->size);
  given_up_.erase(stitch);
  return true;
}

void Stitches::unmap() noexcept {
  for (Place stitch = given_up_.begin(); stitch != given_up_.end();) {
    const Place next = std::next(stitch);
    // mutant: s5-stitch
    if (stitch->proof <= events_.synchronizations() && events_.reached(stitch->point))
      (void)unmap(stitch);
    stitch = next;
  }
}

void Stitches::drop() noexcept {
  given_up_.splice(given_up_.end(), idle_);
  for (Place stitch = given_up_.begin(); stitch != given_up_.end();) {
    const Place next = std::next(stitch);
    (void)unmap(stitch);
    stitch = next;
  }
}

}  // namespace berth
