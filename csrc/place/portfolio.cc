#include "csrc/place/portfolio.h"

#include "csrc/core/check.h"
#include "csrc/place/bounds/bounds.h"
#include "csrc/place/fits/order_search.h"
#include "csrc/place/fits/pyramid.h"
#include "csrc/place/ilp_engine.h"
#include "csrc/place/stages/birth_fit.h"
#include "csrc/place/stages/staged_search.h"
#include "csrc/place/stages/strip_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <thread>
#include <utility>

namespace berth::place {

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
  if (options_.engine.starts_with("ilp")) {
    const auto& missing = ilp_engine().unavailable();
    BERTH_CHECK(!missing, kUsage, "engine '{}': {}", options_.engine, *missing);
  }
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

std::unique_ptr<Search> Portfolio::make_search() {
  const StripSettings settings{.dives = uses("dive"),
                               .exact = uses("exact"),
                               .seed = options_.seed,
                               .threads = threads_,
                               .capacity = options_.capacity};
  std::unique_ptr<StripSearch> strip_search;
  if (settings.dives || settings.exact) {
    if (auto strips = make_strips(conflicts_))
      strip_search = std::make_unique<StripSearch>(std::move(*strips), conflicts_.size(), settings);
  }
  const bool joined = conflicts_.lanes().group_count() < conflicts_.problem().lanes.size();
  if (strip_search) bound_ = strip_search->bound();
  if (!strip_search || joined) bound_ = std::max(bound_, max_load(conflicts_));
  if (settings.dives && (!strip_search || joined)) {
    // Where strips do not say what conflicts.
    if (auto stages = StagedSearch::make(
            conflicts_,
            {.exact = settings.exact, .seed = options_.seed, .threads = threads_, .bound = bound_}))
      return stages;
  }
  if (strip_search) return strip_search;
  return std::make_unique<BirthFit>(conflicts_.problem(), first_fit_);
}

// Something legal, whatever the budget: from an earlier placement where there is one.
void Portfolio::first_plan() {
  search_ = make_search();
  const bool warm = !options_.warm_start.empty();
  if (warm) {
    ++iterations_;
    offer(*first_fit_.run(order_of(options_.warm_start), Fit::kFirst,
                          std::numeric_limits<Bytes>::max(), nullptr),
          "first_fit warm");
    if (done()) return;
  }
  search_->start(warm ? &best_ : nullptr, engine_);
  take();
}

void Portfolio::take() {
  iterations_ += search_->iterations() - search_iterations_;
  search_iterations_ = search_->iterations();
  bound_ = std::max(bound_, search_->bound());
  offer(search_->packing(), search_->engine());
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
  const IlpResult result = ilp_engine().solve(conflicts_, first_fit_, settings,
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
  // First fits come in between: they take longer than early waves and rarely do better, but nothing
  // may be worse than they are.
  for (std::uint32_t wave = 0; wave < search_->early_waves() && !done() && !search_->exhausted();
       ++wave)
    next_wave();
  if (!done()) {
    search_->raise_bound();
    bound_ = std::max(bound_, search_->bound());
  }
  if (uses("first_fit") && !done()) first_fits();
  while (!done() && !search_->exhausted()) next_wave();
}

void Portfolio::next_wave() {
  search_->next_wave(budget_.iterations() - iterations_, budget_, [&] { report(false); });
  take();
}

void Portfolio::first_fits() {
  // What is placed side by side, interleaved as far as edges allow.
  if (const auto keys = search_->keys_to_interleave(); !keys.empty())
    fit(order_of(keys), Fit::kFirst, "dive then first_fit");
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
  const bool first = fit == Fit::kFirst;
  const Bytes below = first && search_->improves_orders() ? std::numeric_limits<Bytes>::max()
                                                          : best_.high_water_mark;
  auto packing = first_fit_.run(order, fit, below, &budget_);
  if (packing) {
    search_->offer(*packing, first ? order : std::vector<Index>{}, name);
    offer(std::move(*packing), name);
  }
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

}  // namespace berth::place
