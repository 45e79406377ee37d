#include "csrc/capi/stream_numbers.h"

#include "tests/catch.h"
#include "tests/support/simulated_device.h"

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

using namespace berth;

namespace {

// Streams are numbers; that of the device's lane is the same, and that of a forgotten one is this.
constexpr LaneKey kGone = 1000000;

class Numbers final : public StreamNumbers {
 public:
  using StreamNumbers::StreamNumbers;

 protected:
  LaneKey key_when_gone(LaneKey) const noexcept override { return kGone; }
};

}  // namespace

TEST_CASE("Streams are numbered in the order in which they come", "[capi][streams]") {
  test::SimulatedDevice device;
  Numbers numbers(device);
  REQUIRE(numbers.number_of(0) == 0);
  REQUIRE(numbers.number_of(77) == 1);
  REQUIRE(numbers.number_of(33) == 2);
  REQUIRE(numbers.number_of(77) == 1);
}

TEST_CASE("A hundred thousand streams, forgotten one after the other, take one number",
          "[capi][streams]") {
  test::SimulatedDevice device;
  Numbers numbers(device);
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const std::uint64_t stream = 1 + i % 8;  // handles come back
    REQUIRE(numbers.number_of(stream) == 1);
    numbers.forget(stream);
    REQUIRE(device.synchronize_all().ok());
  }
  REQUIRE(device.live_events() == 1);
}

TEST_CASE("The number of a forgotten stream waits for the end of its work", "[capi][streams]") {
  test::SimulatedDevice device;
  Numbers numbers(device);
  REQUIRE(numbers.number_of(10) == 1);
  numbers.forget(10);
  REQUIRE(device.busy(10));
  REQUIRE(numbers.number_of(11) == 2);
  numbers.forget(11);
  REQUIRE(numbers.number_of(10) == 3);  // another stream under the handle of the first
  REQUIRE(device.synchronize_all().ok());
  REQUIRE(numbers.number_of(12) == 1);
  REQUIRE(numbers.number_of(13) == 2);
  REQUIRE(numbers.number_of(14) == 4);
  REQUIRE(device.live_events() == 0);
}

TEST_CASE("A new stream asks a few forgotten ones at most", "[capi][streams]") {
  test::SimulatedDevice device;
  Numbers numbers(device);
  for (std::uint64_t stream = 1; stream <= 1000; ++stream) (void)numbers.number_of(stream);
  for (std::uint64_t stream = 1; stream <= 1000; ++stream) numbers.forget(stream);
  const auto before = device.calls(test::CallKind::kQuery);
  REQUIRE(numbers.number_of(5000) == 1001);
  REQUIRE(device.calls(test::CallKind::kQuery) <= before + 4);
}

TEST_CASE("A number is not given again where the device gives no event", "[capi][streams]") {
  test::SimulatedDevice device;
  Numbers numbers(device);
  REQUIRE(numbers.number_of(10) == 1);
  device.fail_call(1, {Status::Code::kFailed, "record"}, test::CallKind::kRecord);
  numbers.forget(10);
  REQUIRE(numbers.number_of(11) == 2);
  device.set_capturing(11, true);
  numbers.forget(11);
  device.set_capturing(11, false);
  REQUIRE(numbers.number_of(12) == 3);
  REQUIRE(device.live_events() == 0);
}

TEST_CASE("Waits on a forgotten stream's lane reach the device as those of no stream",
          "[capi][streams]") {
  test::SimulatedDevice device;
  Numbers numbers(device);
  const LaneKey lane = numbers.number_of(10);
  numbers.forget(10);
  DeviceEvent event = 0;
  REQUIRE(numbers.record(lane, &event).ok());
  REQUIRE(device.busy(kGone));
  numbers.destroy(event);
}

TEST_CASE("Threads that make and forget streams never share a number", "[capi][streams]") {
  test::SimulatedDevice device;
  Numbers numbers(device);
  constexpr std::size_t kThreads = 4;
  std::vector<std::atomic<int>> users(100);
  std::atomic<int> shared{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 2000; ++i) {
        const std::uint64_t stream = (t + 1) * 100 + i % 4;
        const LaneKey number = numbers.number_of(stream);
        if (number >= users.size() || users[number].fetch_add(1) != 0) ++shared;
        if (number < users.size()) users[number].fetch_sub(1);
        numbers.forget(stream);
        (void)device.synchronize_all();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(shared == 0);
}
