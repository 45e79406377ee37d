#include "csrc/device/lane_events.h"

#include "tests/catch.h"
#include "tests/support/simulated_device.h"

#include <atomic>
#include <vector>

using namespace berth;
using test::CallKind;
using Recorded = LaneEvents::Recorded;

namespace {

struct Waiting {
  LaneEvents::Point record(LaneKey lane) {
    LaneEvents::Point point;
    REQUIRE(events.record(lane, &point) == Recorded::kYes);
    REQUIRE(point.number != 0);
    return point;
  }
  std::uint64_t asked() const { return device.calls(CallKind::kQuery); }

  test::SimulatedDevice device;
  std::atomic<int> captures{0};
  LaneEvents events{device, &captures};
};

}  // namespace

TEST_CASE("Of a lane that is not done only the oldest point is asked for", "[lane_events]") {
  Waiting waiting;
  std::vector<LaneEvents::Point> points;
  for (int i = 0; i < 100; ++i) points.push_back(waiting.record(1));
  waiting.events.poll_all();
  CHECK(waiting.asked() == 1);
  CHECK_FALSE(waiting.events.reached(points.front()));
  REQUIRE(waiting.device.synchronize_all().ok());
  waiting.events.poll(4);
  CHECK(waiting.asked() == 5);
  CHECK(waiting.events.reached(points[3]));
  CHECK_FALSE(waiting.events.reached(points[4]));
  waiting.events.poll_all();
  CHECK(waiting.events.reached(points.back()));
  CHECK(waiting.device.live_events() == 0);
}

TEST_CASE("Polls ask lanes in turn", "[lane_events]") {
  Waiting waiting;
  const auto busy = waiting.record(1);
  LaneEvents::Point done = waiting.record(2);
  for (int i = 0; i < 3; ++i) waiting.events.poll(1);
  CHECK_FALSE(waiting.events.reached(done));
  REQUIRE(waiting.device.synchronize_all().ok());
  const auto again = waiting.record(1);
  for (int i = 0; i < 3; ++i) waiting.events.poll(1);
  CHECK(waiting.events.reached(done));
  CHECK(waiting.events.reached(busy));
  CHECK_FALSE(waiting.events.reached(again));
}

TEST_CASE("The events held for a lane are bounded and cover all its points", "[lane_events]") {
  Waiting waiting;
  std::vector<LaneEvents::Point> points;
  for (int i = 0; i < 100000; ++i) {
    points.push_back(waiting.record(1));
    REQUIRE(waiting.events.held() <= LaneEvents::kMostALane);
  }
  CHECK(waiting.device.live_events() == waiting.events.held());
  for (const auto& point : points) REQUIRE_FALSE(waiting.events.reached(point));
  REQUIRE(waiting.device.synchronize_all().ok());
  waiting.events.poll_all();
  CHECK(waiting.asked() <= LaneEvents::kMostALane);
  for (const auto& point : points) REQUIRE(waiting.events.reached(point));
  CHECK(waiting.events.lanes() == 0);
}

TEST_CASE("Who waits for a point whose event has gone waits for a later one", "[lane_events]") {
  Waiting waiting;
  void* bytes = nullptr;
  REQUIRE(waiting.device.reserve(4096, 4096, &bytes).ok());
  waiting.device.touch(1, bytes, 64);
  const auto point = waiting.record(1);
  for (int i = 0; i < 1000; ++i) (void)waiting.record(1);
  REQUIRE(waiting.events.wait(2, point));
  CHECK(waiting.device.hand_out(2, bytes, 64));
  CHECK(waiting.device.release(bytes, 4096).ok());
}

TEST_CASE("A lane waits once for a point and for those before it", "[lane_events]") {
  Waiting waiting;
  const auto first = waiting.record(1);
  const auto second = waiting.record(1);
  const auto third = waiting.record(1);
  REQUIRE(waiting.events.wait(2, second));
  CHECK(waiting.events.ordered(2, first));
  REQUIRE(waiting.events.wait(2, first));
  REQUIRE(waiting.events.wait(2, second));
  CHECK(waiting.device.calls(CallKind::kWait) == 1);
  CHECK_FALSE(waiting.events.ordered(2, third));
  CHECK_FALSE(waiting.events.ordered(3, second));
  REQUIRE(waiting.events.wait(1, third));  // its own
  CHECK(waiting.device.calls(CallKind::kWait) == 1);
}

TEST_CASE("No event is asked for of a lane that is captured, and none while anybody captures",
          "[lane_events]") {
  Waiting waiting;
  (void)waiting.record(1);
  const auto other = waiting.record(2);
  REQUIRE(waiting.device.synchronize_all().ok());
  waiting.captures = 1;
  waiting.events.poll_all();
  CHECK(waiting.asked() == 0);
  waiting.captures = 0;
  waiting.device.set_capturing(1, true);
  waiting.events.poll_all();
  CHECK(waiting.asked() == 1);
  CHECK(waiting.events.reached(other));
  LaneEvents::Point point;
  CHECK(waiting.events.record(1, &point) == Recorded::kCapturing);
  CHECK(waiting.device.violations().empty());
}

TEST_CASE("Requests ask less often while the answer is not yet", "[lane_events]") {
  Waiting waiting;
  for (int i = 0; i < 100; ++i) (void)waiting.record(1);
  for (int i = 0; i < 90; ++i) waiting.events.poll_for_request();
  CHECK(waiting.asked() == 10);
  REQUIRE(waiting.device.synchronize_all().ok());
  for (int i = 0; i < 40; ++i) waiting.events.poll_for_request();
  CHECK(waiting.events.held() == 0);
}

TEST_CASE("Lanes whose points are reached are forgotten", "[lane_events]") {
  Waiting waiting;
  for (LaneKey lane = 1; lane <= 5000; ++lane) (void)waiting.record(lane);
  CHECK(waiting.events.lanes() == 5000);
  REQUIRE(waiting.device.synchronize_all().ok());
  SECTION("by asking") { waiting.events.poll_all(); }
  SECTION("by a synchronisation") { waiting.events.all_reached(); }
  CHECK(waiting.events.lanes() == 0);
  CHECK(waiting.events.held() == 0);
  CHECK(waiting.device.live_events() == 0);
}

TEST_CASE("A point that cannot be recorded says why and keeps nothing", "[lane_events]") {
  Waiting waiting;
  LaneEvents::Point point;
  waiting.device.fail_call(1, {Status::Code::kUnsupported, "test"}, CallKind::kRecord);
  CHECK(waiting.events.record(1, &point) == Recorded::kUnsupported);
  CHECK(waiting.events.device_errors() == 0);
  waiting.device.fail_call(1, {Status::Code::kFailed, "test"}, CallKind::kRecord);
  CHECK(waiting.events.record(1, &point) == Recorded::kFailed);
  waiting.device.fail_call(1, {Status::Code::kFailed, "test"}, CallKind::kCapturing);
  CHECK(waiting.events.record(1, &point) == Recorded::kFailed);
  CHECK(waiting.events.device_errors() == 2);
  CHECK(waiting.events.lanes() == 0);
  CHECK(waiting.device.live_events() == 0);
}
