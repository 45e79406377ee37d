#include "csrc/place/stages/staged_search.h"

#include "csrc/core/checksum.h"
#include "csrc/place/bounds/clique.h"
#include "csrc/place/fits/graph_fit.h"
#include "csrc/place/stages/wave.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace berth::place {
namespace {

constexpr std::size_t kMaxLanes = 64;
constexpr std::uint32_t kAttempts = 4;  // of a wave
constexpr std::uint32_t kStagedChains = 4;
constexpr std::uint64_t kStagedChainRuns = 4;
constexpr std::uint64_t kCliqueNodes = 2000;
// Of attempts behind the five ranks: noise, how much higher than need be they aim.
constexpr double kStagedNoise[] = {0.01, 0.03, 0.1, 0.2, 0.3};
// Waves without success after which a part is left alone.
constexpr std::uint32_t kPatience = 12;
// Of a lane whose ticks are told apart, as long as any.
constexpr std::uint64_t kAlways = std::uint64_t{1} << 62;

}  // namespace

std::unique_ptr<StagedSearch> StagedSearch::make(const Conflicts& conflicts,
                                                 const StagedSettings& settings) {
  std::unique_ptr<StagedSearch> search(new StagedSearch(conflicts, settings));
  if (search->lanes_.size() > kMaxLanes) return nullptr;
  for (const Lane& lane : search->lanes_) {
    if (!lane.packer.within_reach()) return nullptr;
  }
  return search;
}

StagedSearch::StagedSearch(const Conflicts& conflicts, const StagedSettings& settings)
    : conflicts_(conflicts), settings_(settings) {
  best_.high_water_mark = std::numeric_limits<Bytes>::max();
  const Problem& problem = conflicts.problem();
  std::vector<bool> used(problem.lanes.size(), false);
  for (const Buffer& buffer : problem.buffers) used[buffer.lane] = true;
  for (std::uint32_t lane = 0; lane < used.size() && lanes_.size() <= kMaxLanes; ++lane) {
    if (used[lane]) lanes_.push_back({lane, LanePacker(conflicts, lane)});
  }
  std::stable_sort(lanes_.begin(), lanes_.end(),
                   [](const Lane& a, const Lane& b) { return a.packer.load() > b.packer.load(); });
}

// What the placed buffers of other lanes take of this one's time.
std::vector<Arc> StagedSearch::taken_from(std::size_t lane, const std::vector<bool>& placed,
                                          const std::vector<Bytes>& offsets) const {
  std::vector<Arc> arcs;
  if (lanes_.size() == 1) return arcs;
  const Problem& problem = conflicts_.problem();
  const std::uint32_t own = lanes_[lane].lane;
  for (Index i = 0; i < conflicts_.size(); ++i) {
    const std::uint32_t other = problem.buffers[i].lane;
    if (other == own || !placed[i]) continue;
    Conflicts::Shadow shadow{0, kAlways};
    if (!conflicts_.has_branches() &&
        conflicts_.lanes().group(other) == conflicts_.lanes().group(own))
      shadow = conflicts_.shadow(i, own);
    if (shadow.length > 0) arcs.push_back({i, shadow.birth, shadow.length, offsets[i]});
  }
  return arcs;
}

Bytes StagedSearch::mark_of(const std::vector<Bytes>& offsets) const {
  Bytes mark = 0;
  for (Index i = 0; i < conflicts_.size(); ++i)
    mark = std::max(mark, offsets[i] + conflicts_.bytes(i));
  return mark;
}

// Lane after lane: the heaviest first, or in an order that noise changes.
std::optional<std::vector<Bytes>> StagedSearch::attempt(std::uint32_t number,
                                                        const Budget* budget) const {
  PackSettings settings;
  constexpr std::uint32_t kPlain = std::size(kRanks);
  settings.seed = hash_combine(settings_.seed, std::uint64_t{number});
  settings.rank = number < kPlain ? kRanks[number] : kRanks[number % 3];
  if (number >= kPlain) settings.noise = kStagedNoise[number % std::size(kStagedNoise)];
  settings.look = number % 2 == 0 ? 32 : 300;
  settings.below = best_.high_water_mark;
  // The first of several lanes had better stay low.
  if (lanes_.size() == 1 || number % 2 == 1) settings.capacity = settings_.bound;
  std::vector<std::pair<double, std::size_t>> order;
  for (std::uint32_t l = 0; l < lanes_.size(); ++l) {
    const double factor = number < kPlain ? 1 : noise_factor(0.7, settings.seed, l);
    order.emplace_back(-factor * static_cast<double>(lanes_[l].packer.load()), l);
  }
  std::sort(order.begin(), order.end());
  std::vector<Bytes> offsets(conflicts_.size(), 0);
  std::vector<bool> placed(conflicts_.size(), false);
  for (Index i = 0; i < conflicts_.size(); ++i) {
    const auto& pin = conflicts_.problem().buffers[i].pinned;
    placed[i] = pin.has_value();
    if (pin) offsets[i] = *pin;
  }
  for (const auto& [key, l] : order) {
    const LanePacker& packer = lanes_[l].packer;
    if (!packer.pack(taken_from(l, placed, offsets), settings, budget, offsets))
      return std::nullopt;
    for (const Index i : packer.buffers()) placed[i] = true;
  }
  return offsets;
}

void StagedSearch::start(const Packing* known, const std::string& engine) {
  ++iterations_;
  ++attempt_;
  auto offsets = attempt(0, nullptr);
  const Bytes mark = mark_of(*offsets);
  take(std::move(*offsets), mark, "stages");
  if (known != nullptr) offer(*known, {}, engine);
}

void StagedSearch::take(std::vector<Bytes> offsets, Bytes mark, const std::string& engine) {
  best_ = {std::move(offsets), mark};
  engine_ = engine;
  part_known_ = false;
  chain_order_ = order_of(best_.offsets);
  chain_offsets_ = best_.offsets;
}

void StagedSearch::offer(const Packing& packing, std::span<const Index> /*order*/,
                         const std::string& engine) {
  if (packing.high_water_mark < best_.high_water_mark)
    take(packing.offsets, packing.high_water_mark, engine);
}

void StagedSearch::next_wave(std::uint64_t iterations, const Budget& budget,
                             const std::function<void()>& idle) {
  switch (wave_++ % 3) {
    case 0:
      return attempts(iterations, budget, idle);
    case 1:
      return refine(iterations, budget, idle);
    default:
      return orders(iterations, budget, idle);
  }
}

void StagedSearch::attempts(std::uint64_t iterations, const Budget& budget,
                            const std::function<void()>& idle) {
  const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(kAttempts, iterations));
  std::vector<std::optional<std::vector<Bytes>>> found(count);
  run_wave(settings_.threads, count, [&](unsigned thread, std::size_t task) {
    if (budget.expired()) return;
    found[task] = attempt(attempt_ + static_cast<std::uint32_t>(task), &budget);
    if (thread == 0 && idle) idle();
  });
  attempt_ += count;
  iterations_ += count;
  for (auto& offsets : found) {
    if (!offsets) continue;
    const Bytes mark = mark_of(*offsets);
    if (mark < best_.high_water_mark) take(std::move(*offsets), mark, "stages");
  }
}

// The first part that reaches the mark, unless something outside of all parts does.
void StagedSearch::set_part() {
  part_.reset();
  part_known_ = true;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    const LanePacker& packer = lanes_[l].packer;
    const auto at_mark = [&](Index i) {
      return best_.offsets[i] + conflicts_.bytes(i) == best_.high_water_mark;
    };
    if (std::none_of(packer.buffers().begin(), packer.buffers().end(), at_mark)) continue;
    const std::vector<Arc> taken =
        taken_from(l, std::vector<bool>(conflicts_.size(), true), best_.offsets);
    for (Strip& strip : packer.parts(taken, best_.offsets)) {
      Part part;
      Packing own{std::vector<Bytes>(conflicts_.size(), 0), 0};
      for (const Strip::Item& item : strip.items) part.buffers.push_back(item.buffer);
      for (const auto& [buffer, offset] : strip.bottom) part.buffers.push_back(buffer);
      if (std::none_of(part.buffers.begin(), part.buffers.end(), at_mark)) continue;
      if (max_load(strip) >= best_.high_water_mark) continue;
      for (const Index i : part.buffers) own.offsets[i] = best_.offsets[i];
      for (const Strip::Obstacle& obstacle : strip.obstacles)
        if (obstacle.buffer != Strip::Obstacle::kMerged)
          own.offsets[obstacle.buffer] = obstacle.begin;
      const StripSettings settings{.exact = settings_.exact,
                                   .seed = hash_combine(settings_.seed, wave_),
                                   .threads = settings_.threads,
                                   .enough = settings_.bound};
      std::vector<Strip> one;
      one.push_back(std::move(strip));
      part.search = std::make_unique<StripSearch>(std::move(one), conflicts_.size(), settings);
      part.search->start(nullptr, "");
      iterations_ += part.search->iterations();
      part.search->offer(own, order_of(own.offsets), engine_);
      part_ = std::move(part);
      return;
    }
  }
}

void StagedSearch::refine(std::uint64_t iterations, const Budget& budget,
                          const std::function<void()>& idle) {
  if (iterations == 0) return;
  if (!part_known_) {
    const std::uint64_t known = iterations_;
    set_part();
    iterations -= std::min(iterations, iterations_ - known);
  }
  if (!part_ || part_->waves >= kPatience || part_->search->exhausted()) return;
  const std::uint64_t before = part_->search->iterations();
  part_->search->next_wave(iterations, budget, idle);
  iterations_ += part_->search->iterations() - before;
  ++part_->waves;
  const std::vector<Bytes> own = part_->search->keys_to_interleave();
  std::vector<Bytes> offsets = best_.offsets;
  for (const Index i : part_->buffers) offsets[i] = own[i];
  const Bytes mark = mark_of(offsets);
  if (mark >= best_.high_water_mark) return;
  take(std::move(offsets), mark, part_->search->engine());
  part_->waves = 0;
  part_known_ = std::any_of(part_->buffers.begin(), part_->buffers.end(), [&](Index i) {
    return best_.offsets[i] + conflicts_.bytes(i) == best_.high_water_mark;
  });
}

const ConflictGraph* StagedSearch::graph() {
  if (!graph_known_) graph_ = ConflictGraph::make(conflicts_);
  graph_known_ = true;
  return graph_ ? &*graph_ : nullptr;
}

void StagedSearch::raise_bound() {
  if (graph() != nullptr)
    settings_.bound = heavy_clique(conflicts_, *graph_, settings_.bound, kCliqueNodes);
}

void StagedSearch::orders(std::uint64_t iterations, const Budget& budget,
                          const std::function<void()>& idle) {
  if (graph() == nullptr || iterations == 0) return;
  std::vector<Bytes> sizes;
  for (Index i = 0; i < conflicts_.size(); ++i) sizes.push_back(conflicts_.bytes(i));
  const auto fit = [this](std::span<const Index> order, Bytes below, const Budget* own) {
    return first_fit(*graph_, order, below, own);
  };
  // Half from the best chain so far, the others from the incumbent.
  const std::vector<Index> best_order = order_of(best_.offsets);
  std::vector<OrderSearch::Chain> chains(kStagedChains);
  std::vector<std::uint64_t> runs(kStagedChains, 0);
  for (std::uint32_t c = 0; c < kStagedChains; ++c) {
    runs[c] = std::min(kStagedChainRuns, iterations);
    iterations -= runs[c];
  }
  run_wave(settings_.threads, kStagedChains, [&](unsigned thread, std::size_t c) {
    if (budget.expired() || runs[c] == 0) return;
    OrderSearch search(sizes, 0, fit);
    const std::uint64_t seed = hash_combine(hash_combine(settings_.seed, wave_), c);
    chains[c] =
        c % 2 == 0
            ? search.run(chain_order_, chain_offsets_, settings_.bound, seed, runs[c], &budget)
            : search.run(best_order, best_.offsets, settings_.bound, seed, runs[c], &budget);
    if (thread == 0 && idle) idle();
  });
  OrderSearch::Chain* best = nullptr;
  for (OrderSearch::Chain& chain : chains) {
    iterations_ += chain.runs;
    if (!chain.offsets.empty() && (best == nullptr || chain.mark < best->mark)) best = &chain;
  }
  if (best == nullptr || best->mark > best_.high_water_mark) return;
  if (best->mark < best_.high_water_mark) take(best->offsets, best->mark, "orders");
  chain_order_ = std::move(best->order);
  chain_offsets_ = std::move(best->offsets);
}

}  // namespace berth::place
