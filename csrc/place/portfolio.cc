#include "csrc/place/portfolio.h"

#include "csrc/core/check.h"
#include "csrc/place/bounds.h"
#include "csrc/place/ilp.h"
#include "csrc/place/integer_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

namespace berth::packing {

namespace {

// The buffers by their keys; ties by index.
std::vector<Index> ascending(const std::vector<Bytes>& keys) {
  std::vector<Index> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](Index i, Index j) { return keys[i] < keys[j]; });
  return order;
}

}  // namespace

Portfolio::Portfolio(const Conflicts& conflicts, const PlaceOptions& options)
    : conflicts_(conflicts),
      options_(options),
      threads_(options.threads != 0 ? options.threads
                                    : std::max(1u, std::thread::hardware_concurrency())),
      budget_(options),
      first_fit_(conflicts) {
  if (const auto pair = first_fit_.colliding_pins()) {
    const auto& buffers = conflicts.problem().buffers;
    const auto [i, j] = *pair;
    throw Error(ErrorKind::kUsage,
                fmt::format("buffers {} and {} are alive together and pinned to shared bytes: {} "
                            "bytes at {} and {} bytes at {}",
                            i, j, conflicts.bytes(i), *buffers[i].pinned, conflicts.bytes(j),
                            *buffers[j].pinned));
  }
  best_.high_water_mark = std::numeric_limits<Bytes>::max();
}

Placement Portfolio::run() {
  if (options_.engine.starts_with("ilp"))
    BERTH_CHECK(!unavailable_solver(), kUsage, "engine '{}': {}", options_.engine,
                *unavailable_solver());
  first_plan();
  if (!done() || options_.engine == "ilp_pyramid") improve();
  announce();
  report(true);
  return placement(std::move(best_.offsets));
}

Placement Portfolio::placement(std::vector<Bytes> offsets) const {
  Placement result;
  result.offsets = std::move(offsets);
  result.high_water_mark = best_.high_water_mark;
  result.lower_bound = bound_;
  result.proven_optimal = best_.high_water_mark == bound_;
  result.proven_infeasible = options_.capacity && *options_.capacity < bound_;
  result.engine = engine_;
  result.iterations = iterations_;
  result.seconds = budget_.elapsed();
  return result;
}

// Something legal, whatever the budget: from an earlier placement where there is one.
void Portfolio::first_plan() {
  StripSettings settings{.dives = uses("dive"),
                         .exact = uses("exact"),
                         .seed = options_.seed,
                         .threads = threads_,
                         .capacity = options_.capacity};
  if (settings.dives || settings.exact) {
    if (auto strips = make_strips(conflicts_)) strip_search_.emplace(std::move(*strips), settings);
  }
  const bool joined = conflicts_.lanes().group_count() < conflicts_.problem().lanes.size();
  if (strip_search_) bound_ = strip_search_->bound();
  if (!strip_search_ || joined) bound_ = std::max(bound_, max_load(conflicts_));
  if (settings.dives && (!strip_search_ || joined)) {
    staged_search_ = StagedSearch::make(
        conflicts_,
        {.exact = settings.exact, .seed = options_.seed, .threads = threads_, .bound = bound_});
    if (staged_search_) strip_search_.reset();
  }
  const bool warm = !options_.warm_start.empty();
  if (warm || (!strip_search_ && !staged_search_)) {
    std::vector<Bytes> births;
    if (!warm) {
      for (const Buffer& buffer : conflicts_.problem().buffers) births.push_back(buffer.birth);
    }
    const auto order = ascending(warm ? options_.warm_start : births);
    ++iterations_;
    offer(*first_fit_.run(order, Fit::kFirst, std::numeric_limits<Bytes>::max(), nullptr),
          warm ? "first_fit warm" : "first_fit birth");
    if ((!strip_search_ && !staged_search_) || done()) return;
  }
  if (staged_search_) {
    staged_search_->first();
    if (warm) staged_search_->offer(best_, engine_);
    return take_stages();
  }
  strip_search_->first_dives();
  take_strips();
}

void Portfolio::take_stages() {
  iterations_ += staged_search_->iterations() - search_iterations_;
  search_iterations_ = staged_search_->iterations();
  offer(staged_search_->packing(), staged_search_->engine());
  report(false);
}

void Portfolio::take_strips() {
  iterations_ += strip_search_->iterations() - search_iterations_;
  search_iterations_ = strip_search_->iterations();
  bound_ = std::max(bound_, strip_search_->bound());
  offer(strip_search_->packing(conflicts_.size()), strip_search_->engine());
  report(false);
}

// Alone: an oracle for small problems, and what others use side by side. As published it gets no
// help, so what is known counts only where it finds nothing.
void Portfolio::integer_program() {
  const bool tight = options_.engine == "ilp";
  if (tight) fit(pyramid_order(conflicts_, first_fit_), Fit::kFirst, "first_fit pyramid");
  if (tight && done()) return;
  Packing known = best_;
  const std::string known_engine = engine_;
  if (!tight) best_.high_water_mark = std::numeric_limits<Bytes>::max();
  IlpSettings settings;
  settings.form = tight ? IlpForm::kTight : IlpForm::kPyramid;
  settings.seed = options_.seed;
  settings.nodes = options_.iteration_budget == 0 ? 0 : budget_.iterations() - iterations_;
  settings.seconds = options_.time_limit_seconds - budget_.elapsed();
  settings.bound = bound_;
  settings.best = &known;
  const auto prove = [&](Bytes bound) {
    bound_ = std::max(bound_, std::min(bound, best_.high_water_mark));
  };
  const IlpResult result = solve_ilp(conflicts_, first_fit_, settings,
                                     {[&](Packing packing) {
                                        offer(std::move(packing), options_.engine);
                                        report(false);
                                      },
                                      [&](Bytes bound) {
                                        prove(bound);
                                        if (tight) report(false);
                                        return done();
                                      }});
  iterations_ += result.nodes;
  prove(result.bound);
  if (best_.high_water_mark == std::numeric_limits<Bytes>::max()) {
    best_ = std::move(known);
    engine_ = known_engine;
  }
}

void Portfolio::improve() {
  if (options_.engine == "ilp" || options_.engine == "ilp_pyramid") return integer_program();
  // The ranks and the first noise; then the first fits, which take longer and rarely do better, but
  // nothing may be worse than they are; then noise until the end.
  for (int wave = 1; wave < 4 && strip_search_ && !done() && !strip_search_->proven(); ++wave)
    strip_wave();
  if (strip_search_ && !done()) {
    strip_search_->raise_bounds();
    bound_ = std::max(bound_, strip_search_->bound());
  }
  if (staged_search_ && !done()) staged_wave();
  if (staged_search_ && !done()) bound_ = std::max(bound_, staged_search_->raise_bound());
  if (uses("first_fit") && !done()) first_fits();
  while (strip_search_ && !done() && !strip_search_->proven()) strip_wave();
  while (staged_search_ && !done()) staged_wave();
}

void Portfolio::staged_wave() {
  staged_search_->next_wave(budget_.iterations() - iterations_, budget_, [&] { report(false); });
  take_stages();
}

void Portfolio::strip_wave() {
  strip_search_->next_wave(budget_.iterations() - iterations_, budget_, [&] { report(false); });
  take_strips();
}

void Portfolio::first_fits() {
  // What the dives put side by side, interleaved as far as edges allow.
  if (strip_search_) {
    fit(ascending(strip_search_->own_offsets(conflicts_.size())), Fit::kFirst,
        "dive then first_fit");
  }
  const std::vector<Bytes> loads = largest_loads(conflicts_);
  for (const Order order : kOrders) {
    const std::vector<Index> sorted = first_fit_.sorted(order, loads);
    fit(sorted, Fit::kFirst, fmt::format("first_fit {}", order_name(order)));
    fit(sorted, Fit::kBest, fmt::format("best_fit {}", order_name(order)));
  }
}

void Portfolio::fit(const std::vector<Index>& order, Fit fit, const std::string& name) {
  if (done()) return;
  ++iterations_;
  // Orders are improved even where dives are better than they are.
  const bool keeps = strip_search_ && fit == Fit::kFirst;
  const Bytes below = keeps ? std::numeric_limits<Bytes>::max() : best_.high_water_mark;
  auto packing = first_fit_.run(order, fit, below, &budget_);
  if (packing && keeps) strip_search_->offer(*packing, order, name);
  if (packing && staged_search_) staged_search_->offer(*packing, name);
  if (packing) offer(std::move(*packing), name);
  report(false);
}

void Portfolio::offer(Packing packing, const std::string& engine) {
  if (packing.high_water_mark >= best_.high_water_mark) return;
  best_ = std::move(packing);
  engine_ = engine;
  // What the integer program as published begins from is not its answer.
  if (options_.engine != "ilp_pyramid") announce();
}

void Portfolio::announce() {
  if (!options_.improved || best_.high_water_mark >= announced_) return;
  announced_ = best_.high_water_mark;
  options_.improved(placement(best_.offsets));
}

void Portfolio::report(bool last) {
  if (!options_.progress) return;
  const double now = budget_.elapsed();
  if (!last && now - last_report_ < 0.05) return;
  last_report_ = now;
  options_.progress({now, best_.high_water_mark, bound_, engine_, iterations_});
}

bool Portfolio::done() const {
  if (best_.high_water_mark <= bound_) return true;
  // It fits, or nothing does.
  if (options_.capacity &&
      (best_.high_water_mark <= *options_.capacity || bound_ > *options_.capacity))
    return true;
  return iterations_ >= budget_.iterations() || budget_.expired();
}

}  // namespace berth::packing
