// A host that has no memory or no threads left: this program's own allocations and threads fail on
// demand.

#include "csrc/device/host_device.h"
#include "csrc/runtime/allocator.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/small_plan.h"

#include <pthread.h>

#include <cerrno>
#include <cstdlib>
#include <new>
#include <string>

using namespace berth;
using namespace berth::test;

static long g_fail_in = -1;  // the n-th allocation from now fails
extern "C" int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) noexcept {
  return EAGAIN;
}
void* operator new(std::size_t n) {
  if (g_fail_in >= 0 && g_fail_in-- == 0) throw std::bad_alloc();
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

TEST_CASE("A planning thread that cannot start costs no request", "[arena][lanes]") {
  const auto device = make_host_device(Bytes{1} << 30);
  Allocator::Options options;
  options.config.mode = Mode::kLearn;
  test::CheckedAllocator allocator(*device, options);
  std::string thrown;
  Bytes live = 0;
  for (int i = 0; i < 200000 && thrown.empty(); ++i) {
    try {
      live = allocator.stats().live;
      allocator.free(allocator.allocate(64 * (1 + i % 8), 1));
    } catch (const std::exception& e) {
      thrown = e.what();
    }
  }
  CHECK(thrown == "");
  CHECK(allocator.stats().live == live);
}
TEST_CASE("A request that fails for want of host memory leaves nothing live", "[arena][lanes]") {
  for (const bool served : {false, true}) {
    std::uint64_t leaks = 0, thrown = 0;
    for (long n = 0; n < 12; ++n) {
      const auto device = make_host_device(Bytes{1} << 30);
      Allocator::Options options;
      options.start_threads = false;
      options.config.mode = served ? Mode::kOff : Mode::kLearn;
      options.config.check = CheckLevel::kFull;
      test::CheckedAllocator allocator(*device, options);
      if (served) {
        allocator.load_plan(plan_of({sequence_of({{0, 128, 2}, {128, 64, 1}})}));
        allocator.mark_step(0);
      }
      (void)allocator.allocate(1000, 0);
      if (served) allocator.mark_step(0);
      const Bytes live = allocator.stats().live;
      bool threw = false;
      g_fail_in = n;
      try {
        (void)allocator.allocate(128, 0);
      } catch (const std::bad_alloc&) {
        threw = true;
      } catch (const std::exception&) {
        threw = true;
      }
      g_fail_in = -1;
      thrown += threw;
      if (threw && allocator.stats().live != live) ++leaks;
      CHECK(allocator.is_valid() == "");
    }
    INFO("served " << served << " thrown " << thrown);
    CHECK(leaks == 0);
  }
}
