#pragma once

#include "csrc/place/dives/dive.h"
#include "csrc/place/exact/exact_search.h"
#include "csrc/place/fits/order_search.h"
#include "csrc/place/problem/budget.h"
#include "csrc/place/problem/strip.h"
#include "csrc/place/stages/search.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace berth::place {

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
// turn with better orders for first fit. Strips stand side by side in the placement.
class StripSearch final : public Search {
 public:
  // The strips of a problem of `count` buffers.
  StripSearch(std::vector<Strip> strips, std::size_t count, const StripSettings& settings);

  // One dive a strip; what is known does not matter.
  void start(const Packing* known, const std::string& engine) override;
  // Of every strip that is not proven optimal.
  void next_wave(std::uint64_t iterations, const Budget& budget,
                 const std::function<void()>& idle) override;
  // The ranks and the first noise.
  [[nodiscard]] std::uint32_t early_waves() const noexcept override { return 3; }
  // All strips are at their bound, or beyond reach of exact search where there are no dives.
  [[nodiscard]] bool exhausted() const override;

  // For a single strip, and with an order: as its best where it is, and to improve the order.
  void offer(const Packing& packing, std::span<const Index> order,
             const std::string& engine) override;
  [[nodiscard]] bool improves_orders() const noexcept override { return true; }
  // Offsets, every strip from 0 on.
  [[nodiscard]] std::vector<Bytes> keys_to_interleave() const override;

  // Where strips are not at their bound: looks for cliques of arcs that no section shows, and for
  // gaps between obstacles that no items fill.
  void raise_bound() override;
  // No placement of the problem has a lower mark (or StripSettings::enough, where that is more):
  // over groups of strips the sum, in each the most.
  [[nodiscard]] Bytes bound() const override;

  // The best of all strips, stacked.
  [[nodiscard]] Packing packing() const override;
  // Of the largest strip's best.
  [[nodiscard]] const std::string& engine() const noexcept override { return engine_; }
  [[nodiscard]] std::uint64_t iterations() const noexcept override { return iterations_; }

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
  std::size_t count_;  // buffers of the problem
  StripSettings settings_;
  std::uint64_t iterations_ = 0;
  std::string engine_;
};

}  // namespace berth::place
