#include "tests/catch.h"
#include "tests/support/limited_run.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

// bench/limits runs many more programs, under several limits.
namespace berth::test {
namespace {

// What random programs need beside their live bytes, today: 2 % is what they are to need wherever
// pages can be mapped, and what most need. Segments cannot be promised anything: no allocator fits
// a block into two.
double margin_of(const DeviceKind& kind) {
  return std::string_view(kind.name) == "mapping" ? 0.04 : 0.02;
}

TEST_CASE("Random programs fit where their live bytes and a margin do", "[runtime][limit]") {
  for (const DeviceKind& kind : kDeviceKinds) {
    if (!kind.maps_pages) continue;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      const RandomProgram program = random_program(seed, 2000, 256 * kMebibyte, kind.alignment);
      const Bytes limit = limit_of(program, kind, margin_of(kind));
      const LimitedRun run = run_limited(program, kind, limit);
      INFO(fmt::format("{}, seed {}", kind.name, seed));
      CHECK_FALSE(run.failed_at.has_value());
      CHECK(run.live_peak == program.live_peak);
      CHECK(run.reserved_peak <= limit);
    }
  }
}

TEST_CASE("Learning runs out where repeating steps are served by the pool alone in few programs",
          "[runtime][limit]") {
  const DeviceKind& kind = kDeviceKinds.front();
  int learning = 0, alone = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const RandomProgram program = repeating_program(seed, 60, kind.alignment);
    const Bytes limit = limit_of(program, kind, 0.02);
    learning += run_limited(program, kind, limit).failed_at.has_value() ? 1 : 0;
    alone += run_limited(program, kind, limit, Mode::kOff).failed_at.has_value() ? 1 : 0;
  }
  INFO(fmt::format("of 20 programs {} run out while learning, {} in the pool", learning, alone));
  CHECK(learning <= alone + 1);
}

TEST_CASE("On the host repeating steps hold no more while learning than in the pool alone",
          "[runtime][limit][host]") {
  const DeviceKind& host = kDeviceKinds[1];
  REQUIRE(std::string_view(host.name) == "host");
  double learning = 0, alone = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const RandomProgram program = repeating_program(seed, 60, host.alignment);
    const auto held = [&](Mode mode) {
      return static_cast<double>(run_limited(program, host, 0, mode).reserved_peak) /
             static_cast<double>(program.live_peak);
    };
    learning += held(Mode::kLearn);
    alone += held(Mode::kOff);
  }
  INFO(fmt::format("of what lives {:.3f} are held while learning, {:.3f} in the pool", learning / 8,
                   alone / 8));
  CHECK(learning <= alone);
}

TEST_CASE("A program that runs out of segments has kept to its limit", "[runtime][limit]") {
  const DeviceKind& segments = kDeviceKinds.back();
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const RandomProgram program = random_program(seed, 2000, 256 * kMebibyte, segments.alignment);
    const Bytes limit = limit_of(program, segments, 0.02);
    CHECK(run_limited(program, segments, limit).reserved_peak <= limit);
  }
}

}  // namespace
}  // namespace berth::test
