#pragma once

#include "csrc/place/dives/bit_set.h"
#include "csrc/place/dives/need_tree.h"
#include "csrc/place/dives/skyline.h"
#include "csrc/place/dives/span_set.h"
#include "csrc/place/problem/budget.h"
#include "csrc/place/problem/strip.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace berth::place {

// The factor by which noise of an amplitude scales the keys of buffer i.
[[nodiscard]] double noise_factor(double amplitude, std::uint64_t seed, std::uint32_t i) noexcept;

// By what a dive prefers a buffer, largest first, key by key; ties by index. W: lifetime in ticks,
// A: W times size, Z: size, T: the largest load in its span.
enum class Rank { kWAT, kTAW, kTWA, kAWT, kZWT };
inline constexpr Rank kRanks[] = {Rank::kWAT, Rank::kTAW, Rank::kTWA, Rank::kAWT, Rank::kZWT};
[[nodiscard]] std::string_view rank_name(Rank rank) noexcept;

struct DiveSettings {
  Rank rank = Rank::kWAT;
  // Each buffer's keys are scaled by 1 + noise * u, u uniform in [-1, 1] from `seed`; 0: not.
  double noise = 0;
  std::uint64_t seed = 0;
  // Where not empty, a factor for each buffer instead, none negative.
  std::span<const double> factors = {};
  Bytes capacity = 0;  // what to aim at
  bool hard = false;   // give up where it cannot be kept, instead of aiming higher
  Bytes below = 0;     // give up where the mark would not stay below
  unsigned look = 32;  // sections that a placement must keep safe, on each side
};

// Skyline filling that knows its target: a buffer is put on the lowest plateau only if every
// section that it leaves tight can still start low enough; what would spoil one waits for it.
//
//   floor[x] + need[x] <= C   holds for every section x as long as buffers are put on the floor;
//                             only lifting a plateau to its neighbour can break it.
//
// Obstacles are stepped over: a section's floor that meets the next obstacle jumps it, and what
// does not fit below the next obstacle of some section waits for that. need[x] counts the obstacles
// above floor[x].
//
// Needs a strip, and works on its own copy of the state: one a thread. O(n log^2 n) as a rule: so
// often an item is put off that it looks ahead for so many times n only; worst O(sqrt n) a query
// for the best item of a plateau (a plateau that none fits on is seen in O(log n)). Memory O(n +
// sections + obstacles in each section), kept from dive to dive.
class Dive {
 public:
  explicit Dive(const Strip& strip);

  // Offsets of all items in order, strip.base included; nothing where it gave up. `budget` may be
  // null.
  [[nodiscard]] std::optional<std::vector<Bytes>> run(const DiveSettings& settings,
                                                      const Budget* budget);
  // How often an item had to wait in the last run.
  [[nodiscard]] std::uint64_t deferrals() const noexcept { return deferrals_; }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  using Value = NeedTree::Value;

  void start(const DiveSettings& settings);
  void set_ranks(const DiveSettings& settings);
  void set_obstacles();
  void jump_obstacles(const Skyline::Plateau& plateau, std::uint32_t x);
  [[nodiscard]] std::uint32_t first_obstacle_below(std::uint32_t first, std::uint32_t last,
                                                   Value top) const noexcept;
  bool close_plateau(const Skyline::Plateau& plateau, bool flat);
  [[nodiscard]] bool fits_aligned(std::uint32_t i, Value floor, std::uint32_t& blocker) const;
  [[nodiscard]] bool is_safe(std::uint32_t i, Value top, std::uint32_t& blocker);
  [[nodiscard]] bool can_start_low(std::uint32_t i, std::uint32_t x, std::uint32_t begin,
                                   std::uint32_t end);
  void put(std::uint32_t i, const Skyline::Plateau& plateau, Value offset);
  void defer(std::uint32_t i, std::uint32_t section);
  void wake(std::uint32_t i);
  void wake_sections(std::uint32_t first, std::uint32_t last);
  void wake_all();
  bool aim_at(Value capacity);
  [[nodiscard]] Value aligned(std::uint32_t i, Value floor) const noexcept;
  [[nodiscard]] Value max_need(std::uint32_t first, std::uint32_t last) const noexcept;
  void add_need(std::uint32_t first, std::uint32_t last, Value value) noexcept;
  [[nodiscard]] std::uint32_t wrap(std::uint32_t x) const noexcept {
    return x >= strip_.sections ? x - strip_.sections : x;
  }

  const Strip& strip_;
  std::vector<Value> load_;     // of every section, all items unplaced
  std::vector<Value> largest_;  // load in each item's span
  std::vector<std::uint32_t> ranks_;
  SpanSet spans_;
  NeedTree need_;
  Skyline skyline_;
  std::vector<std::uint32_t> witness_;  // of a section: the item last seen to keep it safe
  // Deferred items of each section: doubly linked lists.
  std::vector<std::uint32_t> head_, next_, previous_, waits_for_;
  BitSet waited_for_;
  // Obstacles of each section, upwards, one behind another; which one is next; and a tree of where
  // these begin, negated. All empty where there are none.
  struct Obstacle {
    Value begin, end;
  };
  std::vector<Obstacle> obstacles_;
  std::vector<std::uint32_t> first_obstacle_, next_obstacle_;
  std::vector<Value> first_begins_;
  NeedTree begins_;
  std::vector<Value> offsets_;
  std::uint32_t left_ = 0;  // items unplaced
  std::uint32_t deferred_ = 0;
  std::uint64_t deferrals_ = 0;  // so far
  Value capacity_ = 0, below_ = 0;
  bool hard_ = false;
  bool force_ = false;  // the next placement need not be safe
  unsigned look_ = 0;
};

}  // namespace berth::place
