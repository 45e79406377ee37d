#pragma once

#include <berth/bytes.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

// Dynamic storage allocation: lifetimes in, offsets and a proven bound out.
namespace berth {

// One buffer. Its lifetime is [birth, birth + length) in ticks of its lane. On a lane with a period
// P the lifetime is an arc on a circle of P ticks, with birth < P and 0 < length <= P. At one tick
// ends come before births.
struct Buffer {
  Bytes size = 0;
  Bytes alignment = 1;  // a power of two; Problem::alignment where larger
  std::uint64_t birth = 0;
  std::uint64_t length = 0;
  std::uint32_t lane = 0;
  std::uint32_t branch = 0;          // index into Problem::branches
  std::optional<Bytes> pinned = {};  // its offset is given
};

// Time of one lane: a line where period is 0, else a circle.
struct PlaceLane {
  std::uint64_t period = 0;
};

// All that `from_lane` did before its tick `from_tick` happens before all that `to_lane` does from
// `to_tick` on, `delta` periods later. Without edges lanes never share bytes. Where branches fork,
// only edges of the prefix that all paths share count.
struct PlaceEdge {
  std::uint32_t from_lane = 0;
  std::uint64_t from_tick = 0;
  std::uint32_t to_lane = 0;
  std::uint64_t to_tick = 0;
  std::uint32_t delta = 0;
};

// Branches are the paths that a step can take; one step takes one. A branch leaves its parent
// before tick `fork`. Its path has its parent's buffers born before `fork`, and its own, born at
// `fork` or later. Buffers that share no path never live at one time, except for parts of lifetimes
// that wrap around into the next period: there every path may follow.
struct PlaceBranch {
  std::uint32_t parent = 0;  // < its own index; a root names itself
  std::uint64_t fork = 0;    // not before the parent's
  std::uint64_t period = 0;  // ticks of its path, on a circle; 0: the lane's period
};

struct Problem {
  std::vector<Buffer> buffers = {};
  std::vector<PlaceLane> lanes = {PlaceLane{}};
  std::vector<PlaceEdge> edges = {};
  std::vector<PlaceBranch> branches = {PlaceBranch{}};
  Bytes alignment = 1;  // of every offset; sizes are rounded up to it
};

struct PlaceProgress {
  double seconds = 0;
  Bytes high_water_mark = 0;  // best so far
  Bytes lower_bound = 0;
  std::string engine;
  std::uint64_t iterations = 0;
};

struct Placement {
  std::vector<Bytes> offsets;  // one a buffer, in the order of the problem
  Bytes high_water_mark = 0;
  Bytes lower_bound = 0;
  bool proven_optimal = false;     // high_water_mark is the optimum
  bool proven_infeasible = false;  // no placement fits PlaceOptions::capacity
  std::string engine;              // that found it
  std::uint64_t iterations = 0;
  double seconds = 0;

  [[nodiscard]] double gap() const noexcept {
    return lower_bound == 0
               ? 0.0
               : static_cast<double>(high_water_mark) / static_cast<double>(lower_bound) - 1.0;
  }
};

struct PlaceOptions {
  std::string engine = "auto";     // a name of place_engines()
  double time_limit_seconds = 10;  // infinity: none
  // Dives and search nodes; 0: no limit but time. With a budget and no time limit the result
  // depends on the seed alone, whatever the number of threads.
  std::uint64_t iteration_budget = 0;
  std::uint64_t seed = 1;
  unsigned threads = 1;  // 0: one a core. Where the system starts fewer, those do the work
  // Stop as soon as the high-water mark is at most this, or the lower bound above it.
  std::optional<Bytes> capacity = {};
  // Set by any thread; the best placement so far is returned.
  const std::atomic<bool>* cancel = nullptr;
  // Called from the calling thread, at most every 50 ms, and once at the end.
  std::function<void(const PlaceProgress&)> progress = {};
  // Called from the calling thread with every legal placement whose mark is below the last one's:
  // the first at once, and the one that place_buffers() returns. The engine ilp_pyramid has that
  // one alone. place_buffers() passes on an exception that it throws.
  std::function<void(const Placement&)> improved = {};
  std::vector<Bytes> warm_start = {};  // offsets of an earlier placement, one a buffer, or empty
};

// Places every buffer; always returns a legal placement (never worse than the best first fit),
// improved until the time limit, the budget, a proof or a cancel. Re-entrant. Deterministic for
// equal problem, options and an iteration budget. Throws Error(kUsage) naming the buffer for
// illegal input (zero size, bad arc, alignment that is no power of two, pins that collide, sums
// beyond kMaxBytes).
[[nodiscard]] Placement place_buffers(const Problem& problem, const PlaceOptions& options = {});

// The bound alone: the largest sum of rounded sizes alive at one tick, or at a cut through lanes
// that edges join, summed over lanes that none join. O(n log n) as a rule.
[[nodiscard]] Bytes lower_bound(const Problem& problem);

// Names for PlaceOptions::engine, "auto" first.
[[nodiscard]] const std::vector<std::string>& place_engines();

}  // namespace berth
