#include "csrc/runtime/arena.h"
#include "tests/catch.h"
#include "tests/support/lone_arena.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_plan.h"

#include <cstddef>
#include <cstdint>

using namespace berth;
using test::look;
using test::plan_of;
using test::sequence_of;

namespace {

constexpr Bytes kPage = Bytes{64} << 10;

test::SimulatedDevice make_device() {
  return test::SimulatedDevice({.total_bytes = 64 << 20, .page_bytes = kPage});
}

// Four slots, each on pages of its own.
Plan wide_plan() {
  return plan_of({sequence_of(
      {{0, kPage, 1}, {kPage, 2 * kPage, 2}, {3 * kPage, kPage / 2, 1}, {4 * kPage, kPage, 1}})});
}

// Has no pages, and would rather have the device asked for none.
struct Thrifty final : PageSource {
  std::size_t move_pages(void*, std::size_t, std::size_t, LaneKey, bool) noexcept override {
    return 0;
  }
  Bytes trim() noexcept override { return 0; }
  bool may_grow(Bytes, Bytes) noexcept override { return false; }
  bool let_go_of(ByteRange) noexcept override { return true; }
};

}  // namespace

TEST_CASE("Pages come with the first blocks on them", "[arena][filling]") {
  auto device = make_device();
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(wide_plan()), Arena::Pages::kAsUsed).ok());
  arena.mark(0);
  CHECK(arena.missing() != 0);
  CHECK(arena.committed() == 0);
  CHECK(device.committed() == 0);

  void* const a = arena.allocate(kPage, 0, 1).pointer;
  REQUIRE(a != nullptr);
  CHECK(arena.committed() == kPage);
  void* const b = arena.allocate(2 * kPage, 0, 2).pointer;
  REQUIRE(b != nullptr);
  CHECK(arena.committed() == 3 * kPage);
  CHECK(device.committed() == 3 * kPage);
  CHECK(arena.is_valid() == "");
  (void)arena.free(a);

  CHECK(arena.fill(true));
  CHECK(arena.missing() == 0);
  CHECK(arena.committed() == 5 * kPage);
  CHECK(arena.is_valid() == "");
  const auto calls = device.driver_calls();
  CHECK(arena.allocate(kPage / 2, 0, 3).served == Served::kHit);
  CHECK(arena.allocate(kPage, 0, 4).served == Served::kHit);
  CHECK(device.driver_calls() == calls);
}

TEST_CASE("What each step needs comes also where memory should not grow, and no more",
          "[arena][filling]") {
  auto device = make_device();
  Thrifty source;
  test::LoneArena arena(device, 64, &source);
  // The second slot is larger, at the same place.
  REQUIRE(arena
              .activate(look(plan_of({sequence_of({{0, kPage, 1}, {0, 2 * kPage, 1}})})),
                        Arena::Pages::kAsUsed)
              .ok());
  arena.mark(0);
  const Arena::Outcome first = arena.allocate(kPage, 0, 1);
  CHECK(first.served == Served::kHit);
  CHECK(device.committed() == kPage);
  (void)arena.free(first.pointer);
  CHECK(arena.allocate(2 * kPage, 0, 2).served == Served::kHit);
  CHECK(device.committed() == 2 * kPage);
  CHECK(arena.is_valid() == "");
}

TEST_CASE("While bytes around a block are lent its pages put it on no schedule",
          "[arena][filling]") {
  constexpr Bytes kLarge = Bytes{1} << 20;  // enough to be lent where the plan rests
  auto device = make_device();
  Thrifty source;
  test::LoneArena arena(device, 64, &source);
  // The place of the first slot has a larger one, too.
  REQUIRE(arena
              .activate(look(plan_of({sequence_of({{0, kLarge, 3},
                                                   {3 * kLarge, kLarge, 1},
                                                   {3 * kLarge, kLarge, 1},
                                                   {0, 3 * kLarge, 1}})})),
                        Arena::Pages::kAsUsed)
              .ok());
  arena.mark(0);
  const Arena::Outcome kept = arena.allocate(kLarge, 0, 1);
  REQUIRE(kept.served == Served::kHit);
  REQUIRE(device.committed() == kLarge);
  // Another step: the lane is lost, and there are no pages to lend.
  std::uint64_t id = 1;
  for (int i = 0; i < 200; ++i) REQUIRE(arena.allocate(3 * kLarge / 2, 0, ++id).pointer == nullptr);
  REQUIRE(arena.fill(true));
  CHECK(arena.is_valid() == "");
  const Arena::Outcome lent = arena.allocate(3 * kLarge / 2, 0, ++id);
  REQUIRE(lent.served == Served::kLent);
  CHECK(static_cast<std::byte*>(lent.pointer) - static_cast<std::byte*>(kept.pointer) >=
        static_cast<std::ptrdiff_t>(kLarge));
  CHECK(arena.is_valid() == "");
}

TEST_CASE("A page that cannot be had is a miss and is asked for again", "[arena][filling]") {
  auto device = make_device();
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(wide_plan()), Arena::Pages::kAsUsed).ok());
  arena.mark(0);
  device.fail_call(1, {Status::Code::kOutOfMemory, "injected"}, test::CallKind::kCommit);
  CHECK(arena.allocate(kPage, 0, 1).pointer == nullptr);
  CHECK(arena.committed() == 0);
  CHECK(arena.is_valid() == "");
  CHECK(arena.allocate(2 * kPage, 0, 2).served == Served::kHit);
  device.fail_call(1, {Status::Code::kOutOfMemory, "injected"}, test::CallKind::kCommit);
  CHECK_FALSE(arena.fill(true));
  CHECK(arena.missing() != 0);  // and serves on
  CHECK(arena.allocate(kPage / 2, 0, 3).served == Served::kHit);
  CHECK(arena.fill(true));
  CHECK(arena.missing() == 0);
  CHECK(arena.committed() == 5 * kPage);
}

TEST_CASE("Pages go back where nothing lives on them, and come again", "[arena][filling]") {
  auto device = make_device();
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(wide_plan()), Arena::Pages::kNow).ok());
  arena.mark(0);
  (void)arena.free(arena.allocate(kPage, 0, 1).pointer);
  void* const b = arena.allocate(2 * kPage, 0, 2).pointer;
  CHECK(arena.give_back() == 3 * kPage);
  CHECK(arena.committed() == 2 * kPage);
  CHECK(device.committed() == 2 * kPage);
  CHECK(arena.is_valid() == "");
  REQUIRE(arena.allocate(kPage / 2, 0, 3).served == Served::kHit);
  CHECK(arena.committed() == 3 * kPage);
  (void)arena.free(b);
  CHECK(arena.give_back() == 2 * kPage);
  CHECK(arena.is_valid() == "");
}

TEST_CASE("Pages that no block asks for keep nobody off the fast path", "[arena][filling]") {
  auto device = make_device();
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(wide_plan()), Arena::Pages::kAsUsed).ok());
  for (int step = 0; step < 3; ++step) {
    arena.mark(0);
    std::uint64_t id = 0;
    // The last slot never comes, nor do its pages.
    for (const Bytes bytes : {kPage, 2 * kPage, kPage / 2}) {
      void* const quickly = arena.serve(bytes, 0, ++id);
      CHECK((quickly != nullptr) == (step != 0));
      void* const block = quickly != nullptr ? quickly : arena.serve_slowly(bytes, 0, id).pointer;
      CHECK(arena.is_valid() == "");
      (void)arena.free(block);
    }
  }
  CHECK(arena.missing() == kPage);
}

TEST_CASE("A block is on the fast path once all is there that its offset needs",
          "[arena][filling]") {
  // The third slot lies where the first does and is larger.
  const Plan plan =
      plan_of({sequence_of({{0, kPage, 1}, {8 * kPage, kPage, 1}, {0, 3 * kPage, 1}})});
  auto device = make_device();
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(plan), Arena::Pages::kAsUsed).ok());
  arena.mark(0);
  // All three pages come, or the one that the block is on.
  const bool fails = GENERATE(false, true);
  if (fails)
    device.fail_call(2, {Status::Code::kOutOfMemory, "injected"}, test::CallKind::kCommit, true);
  void* const first = arena.allocate(kPage, 0, 1).pointer;
  REQUIRE(first != nullptr);
  CHECK(arena.committed() == (fails ? kPage : 3 * kPage));
  CHECK(arena.is_valid() == "");
  CHECK(arena.off_schedule() == (fails ? 1 : 0));
  SECTION("it is freed before") {
    Bytes asked = 0;
    CHECK(arena.take_back(first, &asked) == !fails);
    if (fails) CHECK_FALSE(arena.free(first).late);
    CHECK(arena.off_schedule() == 0);
    device.fail_none();
    CHECK(arena.serve(kPage, 0, 2) == nullptr);
    (void)arena.free(arena.serve_slowly(kPage, 0, 2).pointer);
    void* const third = arena.serve(3 * kPage, 0, 3);
    CHECK((third != nullptr) == !fails);
    if (fails) CHECK(arena.serve_slowly(3 * kPage, 0, 3).served == Served::kHit);
    CHECK(arena.committed() == 4 * kPage);
  }
  SECTION("it lives while they come") {
    device.fail_none();
    CHECK(arena.fill(true));
    CHECK(arena.off_schedule() == 0);
    Bytes asked = 0;
    CHECK(arena.take_back(first, &asked));
  }
  SECTION("what lies around it goes") {
    CHECK(arena.give_back() == (fails ? 0 : 2 * kPage));
    CHECK(arena.off_schedule() == 1);
    (void)arena.free(first);
    CHECK((arena.serve_slowly(kPage, 0, 2).pointer == nullptr) == fails);
  }
  CHECK(arena.is_valid() == "");
}

TEST_CASE("Another plan takes over from an arena that fills", "[arena][filling]") {
  auto device = make_device();
  test::LoneArena arena(device, 64);
  REQUIRE(arena.activate(look(wide_plan()), Arena::Pages::kAsUsed).ok());
  arena.mark(0);
  void* const kept = arena.allocate(kPage, 0, 1).pointer;
  REQUIRE(arena
              .activate(look(plan_of({sequence_of({{0, 2 * kPage, 1}, {0, kPage, 1}})})),
                        Arena::Pages::kAsUsed)
              .ok());
  CHECK(arena.committed() == kPage);
  arena.mark(0);
  CHECK(arena.missing() != 0);                                    // one of its pages is there
  CHECK(arena.allocate(2 * kPage, 0, 2).served != Served::kHit);  // on bytes that are kept
  (void)arena.free(kept);
  CHECK(arena.is_valid() == "");
}

TEST_CASE("What is lent takes no pages where the plan has no slots", "[arena][filling]") {
  auto device = make_device();
  test::LoneArena arena(device, 64);
  const Plan plan = plan_of({sequence_of({{0, 64, 1}, {0, 60, 1}, {Bytes{32} << 20, 64, 1}})});
  REQUIRE(arena.activate(look(plan), Arena::Pages::kNow).ok());
  arena.mark(0);
  REQUIRE(arena.allocate(64, 0, 1).served == Served::kHit);  // overstays
  CHECK(arena.allocate(60, 0, 2).served == Served::kMissBusy);
  CHECK(arena.committed() == 2 * kPage);
  CHECK(device.committed() == 2 * kPage);
}
