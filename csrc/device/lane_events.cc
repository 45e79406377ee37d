#include "csrc/device/lane_events.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

namespace berth {

namespace {

// A stream of somebody else's that may be gone is no failure.
LaneEvents::Recorded refusal(const Status& status, std::uint64_t* errors) noexcept {
  if (status.code() == Status::Code::kUnsupported) return LaneEvents::Recorded::kUnsupported;
  ++*errors;
  return LaneEvents::Recorded::kFailed;
}

}  // namespace

LaneEvents::~LaneEvents() { all_reached(); }

const LaneEvents::Lane* LaneEvents::find(LaneKey key) const noexcept {
  if (lanes_.empty()) return nullptr;
  const auto lane = lanes_.find(key);
  return lane == lanes_.end() ? nullptr : lane->second.get();
}

LaneEvents::Lane& LaneEvents::add(LaneKey key) {
  if (const auto known = lanes_.find(key); known != lanes_.end()) return *known->second;
  auto fresh = std::make_unique<Lane>();
  Lane& lane = *fresh;
  lane.key = key;
  lane.reached = last_number_;
  lane.place = in_turn_.size();
  in_turn_.push_back(&lane);
  try {
    lanes_.emplace(key, std::move(fresh));
  } catch (const std::bad_alloc&) {
    in_turn_.pop_back();
    throw;
  }
  return lane;
}

void LaneEvents::forget(Lane& lane) noexcept {
  in_turn_.back()->place = lane.place;
  in_turn_[lane.place] = in_turn_.back();
  in_turn_.pop_back();
  lanes_.erase(lane.key);
}

LaneEvents::Recorded LaneEvents::record(LaneKey key, Point* point) noexcept {
  *point = {};
  if (!device_.properties().asynchronous) return Recorded::kYes;
  bool capturing = false;
  if (const Status status = device_.capturing(key, &capturing); !status.ok())
    return refusal(status, &device_errors_);
  // mutant: s13-record
  if (capturing) return Recorded::kCapturing;
  DeviceEvent event = 0;
  if (const Status status = device_.record(key, &event); !status.ok())
    return refusal(status, &device_errors_);
  if (event == 0) return Recorded::kYes;
  try {
    Lane& lane = add(key);
    if (lane.events.size() == kMostALane) thin_out(lane);
    lane.events.push_back({last_number_ + 1, event});
  } catch (const std::bad_alloc&) {
    device_.destroy(event);  // as if there had been none
    if (const auto lane = lanes_.find(key); lane != lanes_.end() && lane->second->events.empty())
      forget(*lane->second);
    return Recorded::kFailed;
  }
  ++held_;
  *point = {key, ++last_number_};
  return Recorded::kYes;
}

// Every second event goes, the last one stays.
void LaneEvents::thin_out(Lane& lane) noexcept {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < lane.events.size(); ++i) {
    if (i % 2 == 0 && i + 1 < lane.events.size()) {
      device_.destroy(lane.events[i].event);
      --held_;
    } else {
      lane.events[kept++] = lane.events[i];
    }
  }
  lane.events.resize(kept);
}

bool LaneEvents::reached(Point point) const noexcept {
  if (point.number == 0) return true;
  const Lane* const lane = find(point.lane);
  // mutant: s1-reached
  return lane == nullptr || point.number <= lane->reached;
}

bool LaneEvents::ordered(LaneKey waiter, Point point) const noexcept {
  // mutant: s8-edge
  if (waiter == point.lane || reached(point)) return true;
  const Lane& lane = *find(point.lane);
  const auto waited = lane.waited.find(waiter);
  // mutant: s1-waited
  return waited != lane.waited.end() && waited->second >= point.number;
}

bool LaneEvents::wait(LaneKey waiter, Point point) noexcept {
  if (ordered(waiter, point)) return true;
  bool capturing = false;
  if (!device_.capturing(waiter, &capturing).ok()) {
    ++device_errors_;
    return false;
  }
  // mutant: s14-arena
  if (capturing) return false;
  Lane& lane = *lanes_.find(point.lane)->second;
  // mutant: s1-thin
  const auto event =
      std::lower_bound(lane.events.begin(), lane.events.end(), point.number,
                       [](const Held& held, std::uint64_t number) { return held.number < number; });
  if (!device_.wait(waiter, event->event).ok()) {
    ++device_errors_;
    return false;
  }
  try {
    lane.waited[waiter] = event->number;
  } catch (const std::bad_alloc&) {
    // It will wait once more.
  }
  return true;
}

std::size_t LaneEvents::ask(Lane& lane, std::size_t most) noexcept {
  bool capturing = false;
  // To ask for an event of a lane that is being captured would void the capture.
  // mutant: s13-poll
  if (!device_.capturing(lane.key, &capturing).ok() || capturing) return 1;
  for (std::size_t asked = 1;; ++asked) {
    bool complete = false;
    if (!device_.query(lane.events.front().event, &complete).ok()) {
      ++device_errors_;
      return asked;
    }
    // mutant: s7-point
    if (!complete) return asked;
    lane.reached = lane.events.front().number;
    device_.destroy(lane.events.front().event);
    lane.events.pop_front();
    --held_;
    if (lane.events.empty()) {
      forget(lane);
      return asked;
    }
    if (asked == most) return asked;
  }
}

void LaneEvents::poll(std::size_t most) noexcept {
  // mutant: s13-anybody
  if (captured()) return;
  std::size_t lanes = in_turn_.size();
  for (std::size_t asked = 0; lanes > 0 && asked < most; --lanes) {
    if (next_in_turn_ >= in_turn_.size()) next_in_turn_ = 0;
    const std::size_t known = in_turn_.size();
    asked += ask(*in_turn_[next_in_turn_], most - asked);
    // Where the lane was forgotten another has its place.
    if (in_turn_.size() == known) ++next_in_turn_;
  }
}

void LaneEvents::poll_for_request() noexcept {
  if (requests_to_pass_ != 0) {
    --requests_to_pass_;
    return;
  }
  const std::size_t before = held_;
  poll(kAskedARequest);
  // mutant: s12-oldest
  if (held_ == before) requests_to_pass_ = kRequestsBetween;
}

void LaneEvents::poll_all() noexcept { poll(std::numeric_limits<std::size_t>::max()); }

void LaneEvents::all_reached() noexcept {
  for (const auto& [key, lane] : lanes_) {
    for (const Held& held : lane->events) device_.destroy(held.event);
  }
  lanes_.clear();
  in_turn_.clear();
  held_ = 0;
  ++synchronizations_;
}

bool LaneEvents::synchronize() noexcept {
  if (!device_.synchronize_all().ok()) {
    ++device_errors_;
    return false;
  }
  all_reached();
  return true;
}

}  // namespace berth
