#pragma once

#include "csrc/core/interval_map.h"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace berth {

// The bytes of an arena that captured graphs use, and how many graphs: a replay comes back to them
// without asking, so nobody else has them before all of the graphs are gone.
//
// Offsets are bytes from the arena's base. What is pinned is handed out to nobody, so that pins are
// as disjoint as live blocks are. Not thread-safe. O(log n).
class Pins {
 public:
  // The bytes of a block that is live, or pinned already. Throws std::bad_alloc.
  void pin(ByteRange bytes) {
    if (std::uint32_t* const times = ranges_.find(bytes.first)) {
      ++*times;
    } else {
      ranges_.insert(bytes, 1);
    }
  }
  // False where nothing is pinned that starts there.
  bool unpin(Bytes first) noexcept {
    std::uint32_t* const times = ranges_.find(first);
    if (times == nullptr) return false;
    // mutant: s15-unpin, s15-twice
    if (--*times == 0) ranges_.erase(first);
    return true;
  }

  // The first pinned range that shares a byte with `bytes`.
  [[nodiscard]] std::optional<ByteRange> touching(ByteRange bytes) const {
    return ranges_.find_touching(bytes);
  }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [first, pin] : ranges_) visit(ByteRange{first, pin.first});
  }
  [[nodiscard]] bool empty() const noexcept { return ranges_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return ranges_.size(); }

 private:
  IntervalMap<std::uint32_t> ranges_;
};

}  // namespace berth
