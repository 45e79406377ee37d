#pragma once

#include "csrc/place/budget.h"
#include "csrc/place/dive.h"
#include "csrc/place/first_fit.h"
#include "csrc/place/strip.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace berth::packing {

// Dives over the strips of a problem, in waves: first the five ranks at max load, then noise and
// other capacities.
//
// A wave is a fixed list of tasks that all see the incumbent from before it, and the best of a wave
// is the least (mark, task number): so the threads decide nothing but the time. Strips stand side
// by side in the placement.
class DiveSearch {
 public:
  // Strips stay valid and unchanged. `seed` drives the noise.
  DiveSearch(std::vector<Strip> strips, std::uint64_t seed, unsigned threads);

  // One dive a strip, whatever the budget: after this packing() is legal.
  void first_dives();
  // Runs the next wave of every strip that is not proven optimal, at most `dives` of them. `idle`
  // is called between dives, by this thread. An expired budget leaves the best so far.
  void next_wave(std::uint64_t dives, const Budget& budget, const std::function<void()>& idle);

  // All strips are at their bound.
  [[nodiscard]] bool proven() const;
  [[nodiscard]] std::uint64_t dives() const noexcept { return dives_; }
  // The best of all strips, stacked, for a problem of `count` buffers.
  [[nodiscard]] Packing packing(std::size_t count) const;
  // The same, every strip from offset 0 on.
  [[nodiscard]] std::vector<Bytes> own_offsets(std::size_t count) const;
  // Of the largest strip's best.
  [[nodiscard]] const std::string& engine() const noexcept { return engine_; }

 private:
  struct State {
    Strip strip;
    Bytes bound = 0;
    Bytes mark = 0;  // of the best
    std::vector<Bytes> offsets;
    std::string engine;
    std::uint32_t wave = 0;                     // the next
    std::vector<std::unique_ptr<Dive>> divers;  // one a thread
  };
  struct Task {
    DiveSettings settings;
    std::string name;
  };
  [[nodiscard]] std::vector<Task> tasks(const State& state, std::uint32_t wave) const;
  void run(State& state, const std::vector<Task>& tasks, const Budget* budget,
           const std::function<void()>& idle);
  void note_engine();

  std::vector<State> states_;
  std::uint64_t seed_;
  unsigned threads_;
  std::uint64_t dives_ = 0;
  std::string engine_;
};

}  // namespace berth::packing
