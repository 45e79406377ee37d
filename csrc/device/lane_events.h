#pragma once

#include "csrc/device/device.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

namespace berth {

// How anything waits for the work of a lane: points in the lane's work, which are recorded when
// bytes are freed, asked for from the oldest on, and forgotten when they are reached.
//
// The points of a lane are reached in the order in which they were recorded, and a later one covers
// all before it. So only the oldest of a lane is ever asked for; and at most kMostALane events of a
// lane are held: beyond that every second one goes, and who waited for it waits for the next.
// No event of a lane that is being captured is asked for, and none at all while `captures` says
// that somebody captures.
//
// Lanes are named by their key, and forgotten where none of their points is left. Owns its events;
// the device outlives it. Not thread-safe: the allocator's lock covers it. record(), wait() and
// reached() are O(1), amortised; wait() is O(log kMostALane). None blocks.
class LaneEvents {
 public:
  static constexpr std::size_t kMostALane = 256;
  // A request that looks at events asks for so many at most, and after an answer "not yet" only
  // every so many requests.
  static constexpr unsigned kAskedARequest = 4;
  static constexpr unsigned kRequestsBetween = 8;

  // A point in the work of a lane; by default one that is reached.
  struct Point {
    LaneKey lane = 0;
    std::uint64_t number = 0;  // counts the points of all lanes; 0: nothing to wait for
  };

  // `captures`, where it is not null, is how many graphs are being captured on the device.
  explicit LaneEvents(Device& device, const std::atomic<int>* captures = nullptr) noexcept
      : device_(device), captures_(captures) {}
  ~LaneEvents();
  LaneEvents(const LaneEvents&) = delete;
  LaneEvents& operator=(const LaneEvents&) = delete;

  enum class Recorded : std::uint8_t {
    kYes,
    kCapturing,    // the event would be one of the graph's: nobody outside may wait for it
    kUnsupported,  // a stream of somebody else's, which may be gone: only a synchronisation tells
    kFailed,       // the device or the host's memory failed: only a synchronisation tells
  };
  // `point` becomes one behind all that the lane has queued until now. On a device that is not
  // asynchronous it is reached.
  Recorded record(LaneKey lane, Point* point) noexcept;

  // Whether the point is known to be reached. Makes no call of the device.
  [[nodiscard]] bool reached(Point point) const noexcept;

  // Whether `waiter`'s next work runs after the point: it is reached, on the same lane, or was
  // waited for. Makes no call of the device.
  [[nodiscard]] bool ordered(LaneKey waiter, Point point) const noexcept;

  // Makes later work of `waiter` run after the point; the host does not wait. False where the
  // device refuses, or where `waiter` is being captured: to wait for outside work would void that.
  [[nodiscard]] bool wait(LaneKey waiter, Point point) noexcept;

  // Asks for the oldest points of some lanes, at most `most` times, lanes in turn.
  void poll(std::size_t most) noexcept;
  // The same for a request that has to look at what waits: see kAskedARequest.
  void poll_for_request() noexcept;
  // Of each lane, from the oldest on until one is not reached.
  void poll_all() noexcept;
  // The device is done with everything (Device::synchronize_all()).
  void all_reached() noexcept;
  // Waits for the device: then all points are reached, and what has none is proven, too. False
  // where the device refuses. Not while somebody captures.
  [[nodiscard]] bool synchronize() noexcept;
  // How often the device was done with everything.
  [[nodiscard]] std::uint64_t synchronizations() const noexcept { return synchronizations_; }

  // Whether a graph is being captured, where somebody counts them.
  [[nodiscard]] bool captured() const noexcept {
    return captures_ != nullptr && captures_->load(std::memory_order_relaxed) != 0;
  }

  // Lanes with points that are not known to be reached, and events held for them.
  [[nodiscard]] std::size_t lanes() const noexcept { return lanes_.size(); }
  [[nodiscard]] std::size_t held() const noexcept { return held_; }
  // Calls of the device that failed so far.
  [[nodiscard]] std::uint64_t device_errors() const noexcept { return device_errors_; }

 private:
  struct Held {
    std::uint64_t number = 0;
    DeviceEvent event = 0;
  };
  // A lane with points that are not known to be reached.
  struct Lane {
    LaneKey key = 0;
    std::uint64_t reached = 0;                          // the last point known to be
    std::deque<Held> events;                            // oldest first
    std::unordered_map<LaneKey, std::uint64_t> waited;  // by lane, the last point it waits for
    std::size_t place = 0;                              // in in_turn_
  };

  [[nodiscard]] const Lane* find(LaneKey key) const noexcept;
  Lane& add(LaneKey key);
  void forget(Lane& lane) noexcept;
  void thin_out(Lane& lane) noexcept;
  // Asks for the lane's points; returns how often.
  std::size_t ask(Lane& lane, std::size_t most) noexcept;

  Device& device_;
  const std::atomic<int>* const captures_;
  std::unordered_map<LaneKey, std::unique_ptr<Lane>> lanes_;
  std::vector<Lane*> in_turn_;
  std::size_t next_in_turn_ = 0;
  std::uint64_t last_number_ = 0;
  std::size_t held_ = 0;
  unsigned requests_to_pass_ = 0;
  std::uint64_t synchronizations_ = 0;
  std::uint64_t device_errors_ = 0;
};

}  // namespace berth
