// A host that has no memory left while graphs are captured: this program's own allocations fail on
// demand.

#include "csrc/capi/graphs.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/host_faults.h"
#include "tests/support/simulated_device.h"

#include <cstdlib>
#include <new>

using namespace berth;
using capi::Graphs;
using test::HostFaults;

void* operator new(std::size_t size) { return HostFaults::allocate(size, sizeof(void*)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return HostFaults::allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }
void operator delete(void* block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { std::free(block); }

namespace {

struct Capturing {
  static Allocator::Options options(const Graphs& graphs) {
    Allocator::Options options;
    options.start_threads = false;
    options.captures = &graphs.captures();
    return options;
  }
  static bool takes(void*) { return true; }

  test::SimulatedDevice device;
  Graphs graphs;
  test::CheckedAllocator allocator{device, options(graphs)};
};

}  // namespace

TEST_CASE("A capture that cannot be noted leaves no graph", "[capi][graph][host]") {
  bool met = true;
  for (long n = 1; met; ++n) {
    Capturing capturing;
    const Graphs::Id id = capturing.graphs.make_id();
    bool begun = true;
    HostFaults::arm(n, false);
    try {
      capturing.graphs.begin(id, &Capturing::takes);
    } catch (const std::bad_alloc&) {
      begun = false;
    }
    met = HostFaults::disarm();
    CAPTURE(n);
    REQUIRE(begun == !met);
    REQUIRE(capturing.graphs.captures() == (begun ? 1 : 0));
    if (!begun) {
      CHECK_THROWS_AS(capturing.graphs.release(id, capturing.allocator, capturing.device), Error);
      capturing.graphs.begin(id, &Capturing::takes);
    }
    capturing.graphs.end(id, capturing.allocator, capturing.device);
    capturing.graphs.release(id, capturing.allocator, capturing.device);
    CHECK_THROWS_AS(capturing.graphs.release(id, capturing.allocator, capturing.device), Error);
  }
}

TEST_CASE("A free in a capture needs no host memory", "[capi][graph][host]") {
  Capturing capturing;
  const Graphs::Id id = capturing.graphs.make_id();
  capturing.graphs.begin(id, &Capturing::takes);
  void* const block = capturing.graphs.allocate(capturing.allocator, 1000, 1, nullptr);
  HostFaults::arm(1, true);
  bool kept = true, threw = false;
  try {
    kept = capturing.graphs.keep(block, nullptr);
  } catch (const std::bad_alloc&) {
    threw = true;
  }
  REQUIRE(HostFaults::disarm());
  REQUIRE_FALSE(threw);
  REQUIRE_FALSE(kept);
  REQUIRE(capturing.allocator.free(block) == Allocator::FreeOutcome::kDone);
  // The graph has it all the same.
  CHECK(capturing.allocator.allocate(1000, 1) != block);
  capturing.graphs.end(id, capturing.allocator, capturing.device);
  capturing.graphs.release(id, capturing.allocator, capturing.device);
  CHECK(capturing.allocator.allocate(1000, 1) == block);
}
