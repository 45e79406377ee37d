#pragma once

#include "csrc/core/bytes.h"
#include "csrc/device/device.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <utility>
#include <vector>

namespace berth::test {

// A request of `size` bytes on `lane`, or the free of the block where the size is 0.
struct ProgramOperation {
  std::uint32_t block = 0;  // number of the request
  Bytes size = 0;
  LaneKey lane = 0;
};

// A program without a plan's order: mixtures of sizes like those of models, lifetimes of all kinds.
struct RandomProgram {
  std::vector<ProgramOperation> operations;
  std::uint32_t blocks = 0;
  Bytes live_peak = 0;  // the largest sum of live sizes, each rounded up to `unit`
  // Operations before which a step of lane 0 ends; every 500th where there are none.
  std::vector<std::size_t> marks = {};
};

// Blocks of 512 bytes to 64 MiB, most of them small. What lives grows and shrinks between goals of
// up to `most_live`, by phases that free the newest, the oldest or any block; some blocks go after
// a request or two, and some stay to the end. Half of the programs draw their sizes from a dozen,
// as models do, every third has a second lane. The same for a seed.
inline RandomProgram random_program(std::uint64_t seed, std::size_t operations, Bytes most_live,
                                    Bytes unit = 512) {
  std::mt19937_64 random(seed);
  const auto chance = [&](double p) { return static_cast<double>(random() >> 11) < p * 0x1p53; };
  const auto between = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
  };
  const auto log_size = [&](double low, double high) {
    return static_cast<Bytes>(std::exp2(between(std::log2(low), std::log2(high))));
  };
  const double small_share = between(0.5, 0.95), brief_share = between(0.1, 0.6);
  const double resident_share = between(0, 0.05);
  const bool few_sizes = seed % 2 == 0, two_lanes = seed % 3 == 0;
  const auto draw = [&] {
    return chance(small_share) ? log_size(512, 512 << 10) : log_size(1 << 20, 64 << 20);
  };
  std::vector<Bytes> sizes(12);
  std::generate(sizes.begin(), sizes.end(), draw);
  sizes.front() = log_size(1 << 20, 64 << 20);  // else what lives stays below a few pages

  RandomProgram program;
  struct Live {
    std::uint32_t block;
    Bytes size;
  };
  std::deque<Live> live;    // oldest first
  std::vector<Live> brief;  // go with the next operations
  Bytes held = 0;
  const auto allocate = [&] {
    const Bytes size = few_sizes ? sizes[random() % sizes.size()] : draw();
    const Bytes rounded = (size + unit - 1) / unit * unit;
    if (held + rounded > most_live) return false;
    held += rounded;
    program.live_peak = std::max(program.live_peak, held);
    program.operations.push_back(
        {program.blocks, size, two_lanes && chance(0.2) ? LaneKey{1} : LaneKey{0}});
    const Live made{program.blocks++, rounded};
    if (chance(brief_share)) {
      brief.push_back(made);
    } else if (rounded > (Bytes{4} << 20) || !chance(resident_share)) {
      live.push_back(made);
    }
    return true;
  };
  const auto free = [&](Live block) {
    held -= block.size;
    program.operations.push_back({block.block, 0, 0});
  };
  bool growing = true;
  unsigned style = 0;
  Bytes goal = most_live;
  while (program.operations.size() < operations) {
    while (brief.size() > random() % 3) {
      free(brief.front());
      brief.erase(brief.begin());
    }
    const bool reached = growing ? held >= goal : held <= goal || live.empty();
    const bool asks = chance(growing ? 0.8 : 0.25);
    if (reached || (asks && !allocate())) {
      growing = !growing || held * 2 < most_live;
      style = static_cast<unsigned>(random() % 3);
      goal = static_cast<Bytes>(static_cast<double>(most_live) *
                                (growing ? between(0.7, 1) : between(0, 0.6)));
    } else if (!asks && !live.empty()) {
      const std::size_t at = style == 0   ? live.size() - 1
                             : style == 1 ? 0
                                          : static_cast<std::size_t>(random()) % live.size();
      free(live[at]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
  return program;
}

// A program of one to five kinds of steps in random turns, each step with a mark: 30 to 150
// requests of 4 KiB to 50 MiB, most of which live for a few requests, a third for up to a whole
// step, and in every second program a sixth until the next step begins. A few blocks stay to the
// end. The same for a seed.
inline RandomProgram repeating_program(std::uint64_t seed, std::size_t steps, Bytes unit = 512) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const auto draw = [&] {
    const double power = 2 + 9.5 * static_cast<double>(random() >> 11) * 0x1p-53;
    return 512 * (1 + static_cast<Bytes>(std::exp(power)));
  };
  struct Request {
    Bytes size = 0;
    std::size_t end = 0;  // the request before which it is freed; as many as there are: at the end
    bool crosses = false;
  };
  std::vector<std::vector<Request>> kinds(1 + seed % 5);
  for (std::vector<Request>& kind : kinds) {
    kind.resize(30 + below(120));
    for (std::size_t i = 0; i < kind.size(); ++i) {
      const std::size_t ticks = below(3) == 0 ? 1 + below(kind.size()) : 1 + below(4);
      kind[i] = {draw(), std::min(i + ticks, kind.size()), seed % 2 == 0 && below(6) == 0};
    }
  }

  RandomProgram program;
  std::vector<Bytes> sizes;
  Bytes live = 0;
  const auto rounded = [&](Bytes size) { return (size + unit - 1) / unit * unit; };
  const auto allocate = [&](Bytes size) {
    program.operations.push_back({program.blocks, size, 0});
    sizes.push_back(size);
    live += rounded(size);
    program.live_peak = std::max(program.live_peak, live);
    return program.blocks++;
  };
  const auto free = [&](std::uint32_t block) {
    program.operations.push_back({block, 0, 0});
    live -= rounded(sizes[block]);
  };
  for (std::size_t i = 0, count = 5 + below(20); i < count; ++i) (void)allocate(draw());
  std::vector<std::uint32_t> crossing;
  for (std::size_t step = 0; step < steps; ++step) {
    const std::vector<Request>& kind = kinds[below(kinds.size())];
    std::vector<std::uint32_t> blocks(kind.size()), kept;
    for (std::size_t i = 0; i <= kind.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k)
        if (kind[k].end == i && !kind[k].crosses) free(blocks[k]);
      if (i == kind.size()) break;
      blocks[i] = allocate(kind[i].size);
      if (kind[i].crosses) kept.push_back(blocks[i]);
      if (i == 0)
        for (const std::uint32_t block : std::exchange(crossing, {})) free(block);
    }
    crossing = std::move(kept);
    program.marks.push_back(program.operations.size());
  }
  return program;
}

}  // namespace berth::test
