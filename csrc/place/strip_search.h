#pragma once

#include "csrc/place/budget.h"
#include "csrc/place/dive.h"
#include "csrc/place/exact_search.h"
#include "csrc/place/first_fit.h"
#include "csrc/place/order_search.h"
#include "csrc/place/strip.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace berth::packing {

struct StripSettings {
  bool dives = true;  // else the first alone
  bool exact = true;
  bool evolve = true;  // noise on a part of the best dive's factors, beside noise drawn anew
  std::uint64_t seed = 1;
  unsigned threads = 1;
  std::optional<Bytes> capacity = {};  // what is enough for a single strip
  Bytes enough = 0;  // no strip needs to get lower than this, whatever its own bound
};

// Searches over the strips of a problem, in waves: first dives of the five ranks at max load, then
// dives with noise and other capacities, beside exact search where a strip is small enough, else in
// turn with better orders for first fit.
//
// A wave is a fixed list of tasks that all see the incumbent from before it, and the best of a wave
// is the least (mark, task number): so the threads decide nothing but the time. Strips stand side
// by side in the placement.
class StripSearch {
 public:
  StripSearch(std::vector<Strip> strips, const StripSettings& settings);

  // One dive a strip, whatever the budget: after this packing() is legal.
  void first_dives();
  // Runs the next wave of every strip that is not proven optimal, within `iterations`. `idle` is
  // called between tasks, by this thread. An expired budget leaves the best so far.
  void next_wave(std::uint64_t iterations, const Budget& budget, const std::function<void()>& idle);

  // Takes over what first fit made of an order (of all buffers), for a single strip: as its best
  // where it is, and to improve the order.
  void offer(const Packing& packing, std::span<const Index> order, const std::string& engine);

  // Where strips are not at their bound: looks for cliques of arcs that no section shows, and for
  // gaps between blocks that no items fill.
  void raise_bounds();

  // All strips are at their bound.
  [[nodiscard]] bool proven() const;
  // No placement of the problem has a lower mark (or StripSettings::enough, where that is more):
  // over groups of strips the sum, in each the most.
  [[nodiscard]] Bytes bound() const;
  // Dives and nodes.
  [[nodiscard]] std::uint64_t iterations() const noexcept { return iterations_; }
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
    // Of the best dive with noise: factors, mark, what it aimed at, how far it looked.
    std::vector<double> factors;
    Bytes factors_mark = 0;
    bool within_reach = true;  // of exact search
    // At the bound (the first), and above.
    std::vector<std::unique_ptr<ExactSearch>> exact;
    // The best order known for first fit, and its placement; empty at first.
    OrderSearch::Chain order;
    std::vector<std::unique_ptr<OrderSearch>> order_searches;  // one a thread
  };
  // What a task found.
  struct Outcome {
    std::optional<std::vector<Bytes>> offsets;
    Bytes bound = 0;  // proven
    std::uint64_t iterations = 0;
    std::vector<std::uint32_t> order = {};  // of a first fit
    std::vector<double> factors = {};       // of a dive with noise
  };
  struct Task {
    std::string name;
    std::uint64_t iterations;  // at most
    std::function<Outcome(unsigned thread, std::uint64_t iterations, const Budget*)> run;
  };
  [[nodiscard]] static Task dive_task(State& state, const DiveSettings& settings, std::string name);
  [[nodiscard]] static Task noise_task(State& state, const DiveSettings& settings, double share,
                                       std::string name);
  void add_noise(State& state, std::vector<Task>& tasks) const;
  void add_exact(State& state, std::vector<Task>& tasks) const;
  void choose_capacities(State& state) const;
  void add_orders(State& state, std::vector<Task>& tasks) const;
  [[nodiscard]] static bool orders_are_behind(const State& state);
  [[nodiscard]] std::vector<Task> next_tasks(State& state) const;
  void run(State& state, const std::vector<Task>& tasks, const Budget* budget,
           const std::function<void()>& idle);
  void note_engine();

  std::vector<State> states_;
  StripSettings settings_;
  std::uint64_t iterations_ = 0;
  std::string engine_;
};

}  // namespace berth::packing
