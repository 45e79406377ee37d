#pragma once

#include "csrc/replay/workload.h"

#include <array>
#include <cstdint>

namespace berth::bench {

// What is asked for, and how long it stays: 6 x 4 mixtures.
enum class Sizes : std::uint8_t { kSmall, kLog, kWide, kFew, kPowers, kLarge };
enum class Lives : std::uint8_t { kAny, kStack, kQueue, kBriefAndLong };
inline constexpr std::array<const char*, 6> kSizeNames = {
    "0.5 to 64 KiB",       "0.5 KiB to 1 MiB, log", "0.5 KiB to 64 MiB, log",
    "12 sizes of a model", "powers of 2 to 32 MiB", "1 to 64 MiB"};
inline constexpr std::array<const char*, 4> kLifeNames = {"any", "stack", "queue",
                                                          "brief and long"};

// So many requests and frees in all. What lives grows to `most_live` and then goes down and up
// between a half and all of it. The same for a seed.
[[nodiscard]] replay::Workload random_mix(Sizes sizes, Lives lives, std::uint64_t operations,
                                          Bytes most_live, std::uint64_t seed);

}  // namespace berth::bench
