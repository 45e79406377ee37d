#include "tests/support/simulated_device.h"

#include "tests/catch.h"
#include "tests/support/device_contract.h"

#include <random>
#include <vector>

using namespace berth;
using berth::test::CallKind;
using berth::test::SimulatedDevice;

namespace {

void* range_of(SimulatedDevice& device) {
  void* base = nullptr;
  REQUIRE(device.reserve(1 << 20, 0, &base).ok());
  REQUIRE(device.commit(base, 1 << 20, Device::Residency::kOnDemand).ok());
  return base;
}

}  // namespace

TEST_CASE("A simulated event completes with its lane and not before", "[device][simulated]") {
  SimulatedDevice device;
  DeviceEvent first = 0;
  DeviceEvent second = 0;
  REQUIRE(device.record(1, &first).ok());
  REQUIRE(device.wait(2, first).ok());
  REQUIRE(device.record(2, &second).ok());
  bool complete = true;
  REQUIRE(device.query(second, &complete).ok());
  REQUIRE_FALSE(complete);
  REQUIRE(device.synchronize(second).ok());
  REQUIRE(device.query(first, &complete).ok());
  REQUIRE(complete);
  REQUIRE(device.live_events() == 2);
  device.destroy(first);
  device.destroy(second);
  REQUIRE(device.live_events() == 0);
  REQUIRE(device.violations().empty());
  device.destroy(first);
  REQUIRE(device.violations().size() == 1);
}

TEST_CASE("A simulated copy moves its bytes when its lane runs", "[device][simulated]") {
  SimulatedDevice device;
  const int from = 5;
  int to = 0;
  DeviceEvent done = 0;
  REQUIRE(device.copy(&to, &from, sizeof to, 1, &done).ok());
  REQUIRE(to == 0);
  std::mt19937 random(1);
  while (device.busy(1)) device.complete_some(random);
  REQUIRE(to == 5);
  device.destroy(done);
}

TEST_CASE("Bytes handed to another lane without an event are a violation", "[device][simulated]") {
  SimulatedDevice device;
  void* const base = range_of(device);
  REQUIRE(device.hand_out(1, base, 256));
  REQUIRE(device.hand_out(1, base, 256));
  device.touch(1, base, 64);
  REQUIRE_FALSE(device.hand_out(2, static_cast<char*>(base) + 32, 64));
  REQUIRE(device.violations().size() == 1);
}

TEST_CASE("An event or a wait of the host orders lanes", "[device][simulated]") {
  SimulatedDevice device;
  void* const base = range_of(device);
  device.touch(1, base, 256);
  DeviceEvent event = 0;
  REQUIRE(device.record(1, &event).ok());
  REQUIRE(device.wait(2, event).ok());
  REQUIRE(device.hand_out(2, base, 256));
  device.touch(1, base, 256);  // after the event
  REQUIRE(device.wait(3, event).ok());
  REQUIRE_FALSE(device.hand_out(3, base, 256));
  device.touch(1, base, 256);
  REQUIRE(device.synchronize_all().ok());
  REQUIRE(device.hand_out(4, base, 256));
  device.destroy(event);
}

TEST_CASE("Pages given back while a lane may use them are a violation", "[device][simulated]") {
  SimulatedDevice device;
  void* const base = range_of(device);
  device.touch(1, static_cast<char*>(base) + 5000, 8);
  REQUIRE(device.decommit(base, 4096).ok());
  REQUIRE(device.violations().empty());
  REQUIRE(device.decommit(base, 8192).ok());
  REQUIRE(device.violations().size() == 1);
}

TEST_CASE("The call that is told to fails and once", "[device][simulated]") {
  SimulatedDevice device;
  const Status failed(Status::Code::kFailed, "test", 5);
  device.fail_call(2, failed, CallKind::kRecord);
  DeviceEvent event = 0;
  REQUIRE(device.synchronize_all().ok());
  REQUIRE(device.record(1, &event).ok());
  device.destroy(event);
  REQUIRE_FALSE(device.fault_met());
  REQUIRE(device.record(1, &event).code() == Status::Code::kFailed);
  REQUIRE(event == 0);
  REQUIRE(device.fault_met());
  REQUIRE(device.record(1, &event).ok());
  device.destroy(event);
  device.fail_call(1, failed, {}, true);
  REQUIRE_FALSE(device.synchronize_all().ok());
  REQUIRE_FALSE(device.record(1, &event).ok());
  device.fail_none();
  REQUIRE(device.synchronize_all().ok());
}

TEST_CASE("A simulated device that maps no pages brings memory with the range",
          "[device][simulated]") {
  SimulatedDevice device({.total_bytes = 1 << 20, .maps_pages = false});
  void* first = nullptr;
  void* second = nullptr;
  REQUIRE(device.reserve(768 << 10, 0, &first).ok());
  REQUIRE(device.reserve(512 << 10, 0, &second).code() == Status::Code::kOutOfMemory);
  REQUIRE(device.committed() == 768 << 10);
  REQUIRE(device.decommit(first, 4096).code() == Status::Code::kUnsupported);
  REQUIRE(device.release(first, 768 << 10).ok());
  REQUIRE(device.committed() == 0);
  REQUIRE(device.live_ranges() == 0);
}

TEST_CASE("A simulated device keeps the contract of devices", "[device][simulated][contract]") {
  for (const bool maps_pages : {true, false}) {
    DYNAMIC_SECTION("It maps pages: " << maps_pages) {
      SimulatedDevice device({.total_bytes = 64 << 20, .maps_pages = maps_pages});
      test::check_device_contract(device, 1, 2);
      REQUIRE(device.violations().empty());
    }
  }
}

TEST_CASE("Bytes are judged by their memory, whatever address is used", "[device][simulated]") {
  SimulatedDevice device;
  void* const base = range_of(device);
  void* alias = nullptr;
  REQUIRE(device.reserve(4096, 0, &alias).ok());
  REQUIRE(device.alias(alias, &base, 1).ok());
  device.touch(1, base, 64);
  REQUIRE_FALSE(device.hand_out(2, alias, 64));
  REQUIRE(device.hand_out(2, static_cast<char*>(alias) + 64, 64));
}

TEST_CASE("An address given back while a lane may use it is a violation with an alias, too",
          "[device][simulated]") {
  SimulatedDevice device;
  void* const base = range_of(device);
  void* alias = nullptr;
  REQUIRE(device.reserve(8192, 0, &alias).ok());
  REQUIRE(device.alias(alias, &base, 1).ok());
  device.touch(1, alias, 64);
  REQUIRE(device.decommit(base, 4096).ok());  // nothing used this address
  REQUIRE(device.violations().empty());
  REQUIRE(device.decommit(alias, 4096).ok());
  REQUIRE(device.violations().size() == 1);
}
