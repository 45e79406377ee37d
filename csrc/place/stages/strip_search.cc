#include "csrc/place/stages/strip_search.h"

#include "csrc/core/bytes.h"
#include "csrc/core/checksum.h"
#include "csrc/place/bounds/arc_clique.h"
#include "csrc/place/bounds/pin_load.h"
#include "csrc/place/stages/wave.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <utility>

namespace berth::place {
namespace {

constexpr double kNoise[] = {0.01, 0.03, 0.1, 0.2, 0.3};
// Capacities to aim at, above the bound, in 1/10,000 of it.
constexpr Bytes kAbove[] = {0, 5, 10, 20, 40, 100};
constexpr unsigned kLooks[] = {32, 300};
constexpr std::uint32_t kRankWaves = 3;
constexpr std::uint32_t kNoiseTasks = 10;  // of a wave
// Shares of the factors of the best dive with noise that another one changes.
constexpr double kShares[] = {0.3, 0.1, 0.03, 0.01, 0.003};
// Exact search: nodes of a wave at the bound and at each capacity above, how many of these, and
// from which wave on.
constexpr std::uint64_t kNodes = 1000, kSideNodes = 400;
constexpr Bytes kSides = 3;
constexpr std::uint32_t kSideWave = 20;
// First fits with orders that get better: chains of a wave, runs of a chain, and every how many
// waves where dives are far ahead.
constexpr std::uint32_t kChains = 4, kRareOrders = 16;
constexpr std::uint64_t kChainRuns = 4;
// Lists of larger strips take too much memory, and their first fits too long.
constexpr std::size_t kMaxOrderItems = 200'000;
constexpr std::pair<Rank, Bytes> kLargeDives[] = {
    {Rank::kTWA, 0}, {Rank::kTWA, 400}, {Rank::kTAW, 200}, {Rank::kTWA, 100}};
// Looks at arcs in the search for their heaviest clique: a tenth of a second.
constexpr std::uint64_t kCliqueWork = 10'000'000;
// Looks at items and words of bit sets in the search for what pins leave room for: the same.
constexpr std::uint64_t kPinWork = 50'000'000;
// Strips with more items are not even looked at: few of them fall into small parts.
constexpr std::size_t kMaxExactItems = 20000;

Bytes mark_of(const Strip& strip, const std::vector<Bytes>& offsets) {
  Bytes mark = strip.base;
  for (std::size_t i = 0; i < offsets.size(); ++i)
    mark = std::max(mark, offsets[i] + strip.items[i].size);
  for (const Strip::Obstacle& obstacle : strip.obstacles) mark = std::max(mark, obstacle.end);
  return mark;
}

}  // namespace

StripSearch::StripSearch(std::vector<Strip> strips, std::size_t count,
                         const StripSettings& settings)
    : count_(count), settings_(settings) {
  if (strips.size() != 1) settings_.capacity.reset();
  for (Strip& strip : strips) {
    State state;
    state.strip = std::move(strip);
    state.bound = std::max(max_load(state.strip), settings.enough);
    state.mark = std::numeric_limits<Bytes>::max();
    state.within_reach = settings.exact && state.strip.items.size() <= kMaxExactItems;
    states_.push_back(std::move(state));
  }
  for (State& state : states_) {
    state.divers.resize(settings_.threads);
    state.order_searches.resize(settings_.threads);
  }
}

StripSearch::Task StripSearch::dive_task(State& state, const DiveSettings& settings,
                                         std::string name) {
  return {std::move(name), 1,
          [&state, settings](unsigned thread, std::uint64_t, const Budget* budget) {
            auto& diver = state.divers[thread];
            if (!diver) diver = std::make_unique<Dive>(state.strip);
            return Outcome{diver->run(settings, budget), 0, 1};
          }};
}

std::vector<StripSearch::Task> StripSearch::next_tasks(State& state) const {
  std::vector<Task> tasks;
  DiveSettings settings;
  settings.capacity = state.bound;
  settings.below = state.mark;
  if (state.wave == 1 && settings_.dives && state.strip.items.size() > kMaxOrderItems) {
    // A dive takes seconds: those that are best where max load cannot be reached come early.
    for (const auto& [rank, above] : kLargeDives) {
      settings.rank = rank;
      settings.capacity = std::max(
          state.bound, std::min(state.bound + state.bound / 10000 * above, state.mark - 1));
      tasks.push_back(dive_task(state, settings, fmt::format("dive {}", rank_name(rank))));
    }
  } else if (state.wave < kRankWaves && (settings_.dives || state.wave == 0)) {
    // The first alone, so that something legal is there soon.
    settings.look = state.wave < 2 ? kLooks[0] : kLooks[1];
    for (std::size_t r = state.wave == 1 ? 1 : 0; r < (state.wave == 0 ? 1 : std::size(kRanks));
         ++r) {
      settings.rank = kRanks[r];
      tasks.push_back(dive_task(state, settings, fmt::format("dive {}", rank_name(kRanks[r]))));
    }
  } else if (settings_.dives && !state.within_reach && state.strip.items.size() <= kMaxOrderItems &&
             state.wave % (orders_are_behind(state) ? kRareOrders : 2) == 0) {
    add_orders(state, tasks);
  } else {
    if (settings_.dives) add_noise(state, tasks);
    if (state.within_reach) add_exact(state, tasks);
  }
  ++state.wave;
  return tasks;
}

// Noise on all factors (share 1), or on some of those of the best dive with noise.
StripSearch::Task StripSearch::noise_task(State& state, const DiveSettings& settings, double share,
                                          std::string name) {
  return {std::move(name), 1,
          [&state, settings, share](unsigned thread, std::uint64_t, const Budget* budget) {
            auto& diver = state.divers[thread];
            if (!diver) diver = std::make_unique<Dive>(state.strip);
            const std::size_t count = state.strip.items.size();
            std::vector<double> factors =
                share < 1 ? state.factors : std::vector<double>(count, 1.0);
            const std::uint64_t choice = hash_combine(settings.seed, count);
            for (std::uint32_t i = 0; i < count; ++i) {
              if (static_cast<double>(hash_combine(choice, i) >> 11) * 0x1p-53 < share)
                factors[i] = noise_factor(settings.noise, settings.seed, i);
            }
            DiveSettings own = settings;
            own.factors = factors;
            Outcome outcome{diver->run(own, budget), 0, 1};
            if (outcome.offsets) outcome.factors = std::move(factors);
            return outcome;
          }};
}

void StripSearch::add_noise(State& state, std::vector<Task>& tasks) const {
  const std::uint32_t wave = state.wave - kRankWaves;
  DiveSettings settings;
  for (std::uint32_t t = 0; t < kNoiseTasks; ++t) {
    const std::uint32_t number = wave * kNoiseTasks + t;
    settings.noise = kNoise[number % std::size(kNoise)];
    settings.look = kLooks[number / std::size(kNoise) % std::size(kLooks)];
    const Bytes above = kAbove[wave % std::size(kAbove)];
    const bool evolve = settings_.evolve && t % 2 == 1 && !state.factors.empty();
    settings.below = evolve ? state.factors_mark : state.mark;
    // Not above what a better placement needs.
    settings.capacity = std::max(
        state.bound, std::min(state.bound + state.bound / 10000 * above, settings.below - 1));
    settings.seed = hash_combine(hash_combine(settings_.seed, number), state.strip.items.size());
    const double share = evolve ? kShares[number / 2 % std::size(kShares)] : 1;
    tasks.push_back(
        noise_task(state, settings, share, fmt::format("dive noise {}", settings.noise)));
  }
}

// Dives are far ahead of the best first fit.
bool StripSearch::orders_are_behind(const State& state) {
  return state.order.order.empty() ||
         state.order.mark - state.bound > 2 * (state.mark - state.bound);
}

// Half of the chains from the best order known, unless dives are far ahead of it; the others from
// the incumbent's.
void StripSearch::add_orders(State& state, std::vector<Task>& tasks) const {
  const bool behind = orders_are_behind(state);
  for (std::uint32_t c = 0; c < kChains; ++c) {
    const std::uint64_t seed = hash_combine(hash_combine(settings_.seed, state.wave), c);
    const bool from_best = behind || c % 2 == 1;
    tasks.push_back({"orders", kChainRuns,
                     [&state, seed, from_best](unsigned thread, std::uint64_t iterations,
                                               const Budget* budget) {
                       auto& search = state.order_searches[thread];
                       if (!search) search = std::make_unique<OrderSearch>(state.strip);
                       OrderSearch::Chain chain =
                           from_best ? search->run(order_of(state.offsets), state.offsets,
                                                   state.bound, seed, iterations, budget)
                                     : search->run(state.order.order, state.order.offsets,
                                                   state.bound, seed, iterations, budget);
                       Outcome outcome;
                       outcome.iterations = chain.runs;
                       if (chain.offsets.empty()) return outcome;
                       outcome.offsets = std::move(chain.offsets);
                       outcome.order = std::move(chain.order);
                       return outcome;
                     }});
  }
}

// Always one search at the bound; later some between it and the incumbent, side by side: a looser
// capacity can be the harder one.
void StripSearch::choose_capacities(State& state) const {
  auto& exact = state.exact;
  std::erase_if(exact, [&](const auto& search) {
    return search->capacity() >= state.mark || search->capacity() < state.bound;
  });
  const auto add = [&](Bytes capacity) {
    exact.push_back(std::make_unique<ExactSearch>(state.strip, capacity, settings_.seed));
    if (exact.back()->within_reach()) return true;
    exact.pop_back();
    return false;
  };
  if (exact.empty() || exact.front()->capacity() != state.bound) {
    exact.clear();
    state.within_reach = add(state.bound);
    if (!state.within_reach) return;
  }
  if (exact.size() > 1) return;
  if (settings_.capacity && *settings_.capacity > state.bound && *settings_.capacity < state.mark)
    add(*settings_.capacity);
  if (state.wave < kSideWave) return;
  const Bytes gap = state.mark - 1 - state.bound;
  for (Bytes k = 1; k <= kSides; ++k) {
    const Bytes capacity = state.bound + (gap >> k);
    if (capacity > exact.front()->least_mark()) add(capacity);
  }
}

void StripSearch::add_exact(State& state, std::vector<Task>& tasks) const {
  choose_capacities(state);
  for (std::size_t s = 0; s < state.exact.size(); ++s) {
    ExactSearch& search = *state.exact[s];
    tasks.push_back({"exact", s == 0 ? kNodes : kSideNodes,
                     [&search](unsigned, std::uint64_t iterations, const Budget* budget) {
                       Outcome outcome;
                       std::uint64_t left = iterations;
                       const Answer answer = search.run(left, budget);
                       outcome.iterations = iterations - left;
                       if (answer == Answer::kFits) outcome.offsets = search.offsets();
                       if (answer == Answer::kRefuted) outcome.bound = search.least_mark();
                       return outcome;
                     }});
  }
}

void StripSearch::run(State& state, const std::vector<Task>& tasks, const Budget* budget,
                      const std::function<void()>& idle) {
  std::vector<Outcome> outcomes(tasks.size());
  std::vector<Bytes> marks(tasks.size(), std::numeric_limits<Bytes>::max());
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> solved{tasks.size()};  // least task that reached the bound
  std::vector<std::exception_ptr> errors(settings_.threads);
  const auto work = [&](unsigned thread) {
    try {
      for (std::size_t t = next++; t < tasks.size() && t < solved; t = next++) {
        outcomes[t] = tasks[t].run(thread, tasks[t].iterations, budget);
        if (outcomes[t].offsets) {
          marks[t] = mark_of(state.strip, *outcomes[t].offsets);
          std::size_t least = solved;
          while (marks[t] <= state.bound && t < least && !solved.compare_exchange_weak(least, t)) {
          }
        }
        if (thread == 0 && idle) idle();
        if (budget != nullptr && budget->expired()) return;
      }
    } catch (...) {
      errors[thread] = std::current_exception();
      next = tasks.size();
    }
  };
  run_side_by_side(std::min<std::size_t>(settings_.threads, tasks.size()), work);
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  // Tasks behind the one that solved it may have run or not.
  const std::size_t end = std::min(tasks.size(), solved + 1);
  for (std::size_t t = 0; t < end; ++t) {
    iterations_ += outcomes[t].iterations;
    state.bound = std::max(state.bound, outcomes[t].bound);
  }
  for (std::size_t t = 0; t < end; ++t) {
    if (outcomes[t].factors.empty() || (!state.factors.empty() && marks[t] >= state.factors_mark))
      continue;
    state.factors = std::move(outcomes[t].factors);
    state.factors_mark = marks[t];
  }
  const std::size_t best =
      static_cast<std::size_t>(std::min_element(marks.begin(), marks.end()) - marks.begin());
  if (best < tasks.size() && !outcomes[best].order.empty() &&
      (state.order.order.empty() || marks[best] <= state.order.mark)) {
    state.order = {outcomes[best].order, *outcomes[best].offsets, marks[best], 0};
  }
  if (best < tasks.size() && marks[best] < state.mark) {
    state.mark = marks[best];
    state.offsets = std::move(*outcomes[best].offsets);
    state.engine = tasks[best].name;
    note_engine();
  }
}

void StripSearch::note_engine() {
  Bytes largest = 0;
  for (const State& state : states_) {
    if (state.offsets.empty() && !state.strip.items.empty()) continue;
    if (state.bound > largest) {
      largest = state.bound;
      engine_ = state.engine;
    }
  }
}

void StripSearch::start(const Packing* /*known*/, const std::string& /*engine*/) {
  for (State& state : states_) run(state, next_tasks(state), nullptr, nullptr);
}

void StripSearch::next_wave(std::uint64_t iterations, const Budget& budget,
                            const std::function<void()>& idle) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t end = iterations > kMax - iterations_ ? kMax : iterations_ + iterations;
  for (State& state : states_) {
    if (state.mark <= state.bound || budget.expired()) continue;
    std::vector<Task> tasks = next_tasks(state);
    std::uint64_t left = end - iterations_;
    std::size_t count = 0;
    for (; count < tasks.size() && left > 0; ++count) {
      tasks[count].iterations = std::min(tasks[count].iterations, left);
      left -= tasks[count].iterations;
    }
    tasks.resize(count);
    if (count > 0) run(state, tasks, &budget, idle);
  }
}

void StripSearch::offer(const Packing& packing, std::span<const Index> order,
                        const std::string& engine) {
  if (states_.size() != 1 || order.empty()) return;
  State& state = states_.front();
  const Strip& strip = state.strip;
  // What lies at the bottom here may lie anywhere there; what lies above it comes down.
  std::vector<std::pair<Bytes, Bytes>> whole;  // offset and size
  for (std::size_t k = 0; k < strip.bottom.size(); ++k) {
    const Bytes end = k + 1 < strip.bottom.size() ? strip.bottom[k + 1].second : strip.base;
    whole.emplace_back(packing.offsets[strip.bottom[k].first], end - strip.bottom[k].second);
  }
  std::sort(whole.begin(), whole.end());
  for (std::size_t k = 1; k < whole.size(); ++k) whole[k].second += whole[k - 1].second;
  std::vector<std::uint32_t> item_of(packing.offsets.size(), ~std::uint32_t{0});
  OrderSearch::Chain chain;
  for (std::uint32_t i = 0; i < strip.items.size(); ++i) {
    const Bytes offset = packing.offsets[strip.items[i].buffer];
    const auto above = std::partition_point(
        whole.begin(), whole.end(), [&](const auto& entry) { return entry.first <= offset; });
    const Bytes below = above == whole.begin() ? 0 : std::prev(above)->second;
    chain.offsets.push_back(strip.base + offset - below);
    item_of[strip.items[i].buffer] = i;
  }
  for (const Index b : order) {
    if (item_of[b] != ~std::uint32_t{0}) chain.order.push_back(item_of[b]);
  }
  chain.mark = mark_of(strip, chain.offsets);
  if (chain.mark < state.mark) {
    state.mark = chain.mark;
    state.offsets = chain.offsets;
    state.engine = engine;
    note_engine();
  }
  if (state.order.order.empty() || chain.mark < state.order.mark) state.order = std::move(chain);
}

void StripSearch::raise_bound() {
  for (State& state : states_) {
    if (state.mark <= state.bound) continue;
    state.bound = heaviest_arc_clique(state.strip, state.bound, kCliqueWork);
    state.bound = load_around_obstacles(state.strip, state.bound, kPinWork);
  }
}

bool StripSearch::exhausted() const {
  return std::all_of(states_.begin(), states_.end(), [&](const State& state) {
    return state.mark <= state.bound || (!settings_.dives && !state.within_reach);
  });
}

Bytes StripSearch::bound() const {
  std::map<std::uint32_t, Bytes> of_group;
  for (const State& state : states_) {
    Bytes& most = of_group[state.strip.group];
    most = std::max(most, state.bound);
  }
  Bytes sum = 0;
  for (const auto& [group, most] : of_group) sum += most;
  return sum;
}

std::vector<Bytes> StripSearch::keys_to_interleave() const {
  std::vector<Bytes> offsets(count_);
  for (const State& state : states_) {
    for (const auto& [buffer, offset] : state.strip.bottom) offsets[buffer] = offset;
    for (const Strip::Obstacle& obstacle : state.strip.obstacles) {
      if (obstacle.buffer != Strip::Obstacle::kMerged) offsets[obstacle.buffer] = obstacle.begin;
    }
    for (std::size_t i = 0; i < state.strip.items.size(); ++i)
      offsets[state.strip.items[i].buffer] = state.offsets[i];
  }
  return offsets;
}

Packing StripSearch::packing() const {
  Packing packing{keys_to_interleave(), 0};
  for (const State& state : states_) {
    const Bytes base = align_up(packing.high_water_mark, state.strip.unit);
    for (const auto& [buffer, offset] : state.strip.bottom) packing.offsets[buffer] += base;
    for (const Strip::Item& item : state.strip.items) packing.offsets[item.buffer] += base;
    packing.high_water_mark = base + state.mark;
  }
  return packing;
}

}  // namespace berth::place
