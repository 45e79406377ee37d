#include "csrc/device/driver_costs.h"

#include "tests/catch.h"

using namespace berth;

TEST_CASE("Calls cost what the table of their GPU says", "[device][costs]") {
  MemoryCallCounts calls;
  calls.add(MemoryCall::kCreate, 2);
  calls.add(MemoryCall::kSetAccess);
  CHECK(calls.all() == 3);
  CHECK(driver_costs("H100").of(calls) == Approx(2 * 28.5 + 59.9));
  CHECK(driver_costs("A100-40").of(calls) == Approx(2 * 193 + 36));
  CHECK(driver_costs("a GPU that nobody measured").gpu == "H100");
  MemoryCallCounts more = calls;
  more.add(MemoryCall::kFree);
  CHECK((more - calls).all() == 1);
  CHECK((more - calls).of(MemoryCall::kFree) == 1);
}

TEST_CASE("Each call has a name and a cost", "[device][costs]") {
  for (std::size_t i = 0; i < kMemoryCalls; ++i) {
    const auto call = static_cast<MemoryCall>(i);
    CHECK_FALSE(name_of(call).empty());
    MemoryCallCounts one;
    one.add(call);
    for (const char* const gpu : {"H100", "A100"}) CHECK(driver_costs(gpu).of(one) > 0);
  }
}
