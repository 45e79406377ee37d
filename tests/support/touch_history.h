#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/device/device.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace berth::test {

// What happens before a point in the work of lanes: of each, how many of its operations
// (vector clocks: Lamport 1978; Mattern 1989).
using VectorClock = std::map<LaneKey, std::uint64_t>;

// Which lanes last used which bytes.
class TouchHistory {
 public:
  // An operation `now` of `lane` uses the bytes: as one more, or as the only one that counts.
  void touch(ByteRange range, LaneKey lane, std::uint64_t now) {
    each_part(range, [&](VectorClock& touches) { touches[lane] = now; });
  }
  void replace(ByteRange range, LaneKey lane, std::uint64_t now) {
    each_part(range, [&](VectorClock& touches) { touches = {{lane, now}}; });
  }
  void forget(ByteRange range) {
    cut(range.first);
    cut(range.last);
    history_.erase(history_.lower_bound(range.first), history_.lower_bound(range.last));
  }
  // Bytes of `range`, and the lane that may still use them after what `clock` knows of.
  struct Use {
    ByteRange bytes;
    LaneKey lane = 0;
  };
  [[nodiscard]] std::optional<Use> used_after(ByteRange range, const VectorClock& clock) {
    cut(range.first);
    for (auto it = history_.lower_bound(range.first);
         it != history_.end() && it->first < range.last; ++it) {
      for (const auto& [lane, count] : it->second.touches) {
        const auto known = clock.find(lane);
        if (known == clock.end() || known->second < count)
          return Use{{it->first, std::min(it->second.last, range.last)}, lane};
      }
    }
    return std::nullopt;
  }

 private:
  struct Touched {
    Bytes last = 0;
    VectorClock touches;  // the last touch of each lane
  };

  // Cuts the history at the ends of `range` and calls `change` for each part inside; parts without
  // history are made.
  template <class Change>
  void each_part(ByteRange range, const Change& change) {
    if (range.size() == 0) return;
    cut(range.first);
    cut(range.last);
    Bytes at = range.first;
    for (auto it = history_.lower_bound(range.first); at < range.last;) {
      if (it == history_.end() || it->first > at) {
        const Bytes end = it == history_.end() ? range.last : std::min(it->first, range.last);
        it = history_.emplace_hint(it, at, Touched{end, {}});
      }
      change(it->second.touches);
      at = it->second.last;
      ++it;
    }
  }
  void cut(Bytes at) {
    auto it = history_.lower_bound(at);
    if (it == history_.begin()) return;
    --it;
    if (it->second.last <= at) return;
    Touched right = it->second;
    it->second.last = at;
    history_.emplace(at, std::move(right));
  }

  std::map<Bytes, Touched> history_;  // by first byte
};

}  // namespace berth::test
