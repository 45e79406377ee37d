#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/core/range_tree.h"
#include "csrc/device/lane_events.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

namespace berth {

// The byte ranges of an arena that queued work of some lane may still use: other lanes wait for a
// point of that lane before they have the bytes.
//
// A guard hangs on bytes, not on a slot, so that a slot that is skipped loses no edge. A later
// guard of a lane takes the place of its earlier ones within its bytes; so a lane has at most one
// for each range of bytes that a block can have, and where they are more than kMostALane all of
// the lane's become one. A guard goes when its point is reached: some at each request that looks
// here, all at a mark.
//
// Offsets are bytes from the arena's base. Not thread-safe. add() and let_go() are O(log n),
// amortised; wait() is O(log n + guards on the bytes).
class Guards {
 public:
  static constexpr std::size_t kMostALane = 65536;

  explicit Guards(LaneEvents& events) noexcept : events_(events) {}
  Guards(const Guards&) = delete;
  Guards& operator=(const Guards&) = delete;

  // Which slots a guard binds.
  enum class Binds : std::uint8_t {
    kAll,
    kShared,  // those that share bytes with another lane's: no others can come to have its bytes
  };

  // Guards the bytes by all that `source` has queued until now. False where there is no proof of
  // that now (see LaneEvents::Recorded): then the bytes are nobody's.
  [[nodiscard]] bool add(ByteRange bytes, LaneKey source, Binds binds) noexcept;

  // Makes `lane` wait for the guards on the bytes; with kAll only for those that bind all slots.
  // False where LaneEvents::wait() cannot.
  [[nodiscard]] bool wait(LaneKey lane, ByteRange bytes, Binds binds) noexcept;

  // Lets go of guards whose points are known to be reached: of a few, lanes in turn, or of all.
  void let_go_of_some() noexcept;
  void let_go() noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return tree_.size(); }
  [[nodiscard]] bool empty() const noexcept { return tree_.empty(); }
  // Those that bind all.
  [[nodiscard]] std::size_t binding_all() const noexcept { return binding_all_; }

 private:
  struct Guard : RangeNode {
    Guard(ByteRange the_bytes, LaneEvents::Point the_point, Binds the_binds) noexcept
        : RangeNode(the_bytes), point(the_point), binds(the_binds) {}
    const LaneEvents::Point point;
    const Binds binds;
    std::list<Guard>::iterator place;  // in its lane's
  };
  // The guards of one lane, in the order of their points.
  struct Lane {
    LaneKey key = 0;
    std::list<Guard> guards;
    std::list<Lane>::iterator place;  // in lanes_
  };

  Lane& lane_of(LaneKey key);
  void put(Lane& lane, ByteRange bytes, LaneEvents::Point point, Binds binds);
  void drop(Guard& guard) noexcept;
  void forget_where_empty(Lane& lane) noexcept;
  void let_go(Lane& lane, std::size_t most) noexcept;

  LaneEvents& events_;
  std::list<Lane> lanes_;  // in turn, for let_go_of_some()
  std::unordered_map<LaneKey, Lane*> by_key_;
  RangeTree tree_;
  std::size_t binding_all_ = 0;
};

}  // namespace berth
