#pragma once

#include "csrc/core/bytes.h"
#include "csrc/core/check.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace berth {

// A half-open range of bytes, [first, last).
struct ByteRange {
  Bytes first = 0;
  Bytes last = 0;

  [[nodiscard]] constexpr Bytes size() const noexcept { return last - first; }
  [[nodiscard]] constexpr bool touches(ByteRange other) const noexcept {
    return first < other.last && other.first < last;
  }
  friend constexpr bool operator==(const ByteRange&, const ByteRange&) = default;
};

// Disjoint, non-empty byte ranges in address order, each with a value.
//
// insert, erase and look-ups are O(log n). reserve() makes inserts that cannot fail for want of
// memory. Not thread-safe.
template <class Value>
class IntervalMap {
 public:
  using Map = std::map<Bytes, std::pair<Bytes, Value>>;  // first -> (last, value)
  using const_iterator = typename Map::const_iterator;

  // Adds a range. Returns false, and changes nothing, where it is empty or touches another one.
  bool insert(ByteRange range, Value value) {
    if (range.first >= range.last || find_touching(range)) return false;
    if (spare_.empty()) {
      map_.emplace(range.first, std::pair{range.last, std::move(value)});
      return true;
    }
    typename Map::node_type node = std::move(spare_.back());
    spare_.pop_back();
    node.key() = range.first;
    node.mapped() = std::pair{range.last, std::move(value)};
    map_.insert(std::move(node));
    return true;
  }

  // Until so many ranges are held at one time, insert() asks for no memory. Throws std::bad_alloc.
  void reserve(std::size_t ranges) {
    if (map_.size() + spare_.size() >= ranges) return;
    ranges += ranges / 8;  // so that growing by one is rare
    spare_.reserve(ranges);
    while (map_.size() + spare_.size() < ranges) {
      Map one;
      one.try_emplace(0);
      spare_.push_back(one.extract(one.begin()));
    }
  }

  // Removes the range that starts at `first`; returns its value, or nothing where none starts
  // there.
  std::optional<Value> erase(Bytes first) {
    const auto it = map_.find(first);
    if (it == map_.end()) return std::nullopt;
    std::optional<Value> value(std::move(it->second.second));
    if (spare_.size() < spare_.capacity()) {
      spare_.push_back(map_.extract(it));
    } else {
      map_.erase(it);
    }
    return value;
  }

  // The first range, in address order, that shares a byte with `range`.
  [[nodiscard]] std::optional<ByteRange> find_touching(ByteRange range) const {
    auto it = map_.upper_bound(range.first);
    if (it != map_.begin()) {
      const auto before = std::prev(it);
      if (before->second.first > range.first) return ByteRange{before->first, before->second.first};
    }
    if (it != map_.end() && it->first < range.last) return ByteRange{it->first, it->second.first};
    return std::nullopt;
  }

  // The value of the range that starts at `first`, or null.
  [[nodiscard]] const Value* find(Bytes first) const {
    const auto it = map_.find(first);
    return it == map_.end() ? nullptr : &it->second.second;
  }
  [[nodiscard]] Value* find(Bytes first) {
    const auto it = map_.find(first);
    return it == map_.end() ? nullptr : &it->second.second;
  }

  [[nodiscard]] bool empty() const noexcept { return map_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return map_.size(); }
  // Of what was reserved, what the ranges held is gone with them.
  void clear() noexcept { map_.clear(); }
  [[nodiscard]] const_iterator begin() const noexcept { return map_.begin(); }
  [[nodiscard]] const_iterator end() const noexcept { return map_.end(); }

 private:
  Map map_;
  std::vector<typename Map::node_type> spare_;  // as many as reserve() still owes
};

}  // namespace berth
