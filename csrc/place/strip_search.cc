#include "csrc/place/dive_search.h"

#include "csrc/core/bytes.h"
#include "csrc/core/checksum.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

namespace berth::packing {
namespace {

constexpr double kNoise[] = {0.01, 0.03, 0.1, 0.2, 0.3};
// Capacities to aim at, above the bound, in 1/10,000 of it.
constexpr Bytes kAbove[] = {0, 5, 10, 20, 40, 100};
constexpr unsigned kLooks[] = {32, 300};
constexpr std::uint32_t kNoiseTasks = 10;  // of a wave

}  // namespace

DiveSearch::DiveSearch(std::vector<Strip> strips, std::uint64_t seed, unsigned threads)
    : seed_(seed), threads_(threads) {
  for (Strip& strip : strips) {
    State state;
    state.strip = std::move(strip);
    state.bound = max_load(state.strip);
    state.mark = std::numeric_limits<Bytes>::max();
    states_.push_back(std::move(state));
  }
  for (State& state : states_) state.divers.resize(threads_);
}

std::vector<DiveSearch::Task> DiveSearch::tasks(const State& state, std::uint32_t wave) const {
  std::vector<Task> tasks;
  DiveSettings settings;
  settings.capacity = state.bound;
  settings.below = state.mark;
  if (wave < 3) {
    // The first alone, so that something legal is there soon.
    settings.look = wave < 2 ? kLooks[0] : kLooks[1];
    for (std::size_t r = wave == 1 ? 1 : 0; r < (wave == 0 ? 1 : std::size(kRanks)); ++r) {
      settings.rank = kRanks[r];
      tasks.push_back({settings, fmt::format("dive {}", rank_name(settings.rank))});
    }
    return tasks;
  }
  settings.rank = Rank::kWAT;
  for (std::uint32_t t = 0; t < kNoiseTasks; ++t) {
    const std::uint32_t number = (wave - 3) * kNoiseTasks + t;
    settings.noise = kNoise[number % std::size(kNoise)];
    settings.look = kLooks[number / std::size(kNoise) % std::size(kLooks)];
    const Bytes above = kAbove[(wave - 3) % std::size(kAbove)];
    // Not above what a better placement needs.
    settings.capacity =
        std::max(state.bound, std::min(state.bound + state.bound / 10000 * above, state.mark - 1));
    settings.seed = hash_combine(hash_combine(seed_, number), state.strip.items.size());
    tasks.push_back({settings, fmt::format("dive noise {}", settings.noise)});
  }
  return tasks;
}

void DiveSearch::run(State& state, const std::vector<Task>& tasks, const Budget* budget,
                     const std::function<void()>& idle) {
  std::vector<std::optional<std::vector<Bytes>>> results(tasks.size());
  std::vector<Bytes> marks(tasks.size(), std::numeric_limits<Bytes>::max());
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> solved{tasks.size()};  // least task that reached the bound
  std::vector<std::exception_ptr> errors(threads_);
  const auto work = [&](unsigned thread) {
    try {
      for (std::size_t t = next++; t < tasks.size() && t < solved; t = next++) {
        if (!state.divers[thread]) state.divers[thread] = std::make_unique<Dive>(state.strip);
        auto offsets = state.divers[thread]->run(tasks[t].settings, budget);
        if (offsets) {
          Bytes mark = state.strip.base;
          for (std::size_t i = 0; i < offsets->size(); ++i)
            mark = std::max(mark, (*offsets)[i] + state.strip.items[i].size);
          marks[t] = mark;
          results[t] = std::move(offsets);
          std::size_t least = solved;
          while (mark <= state.bound && t < least && !solved.compare_exchange_weak(least, t)) {
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
  const auto workers = static_cast<unsigned>(std::min<std::size_t>(threads_, tasks.size()));
  std::vector<std::thread> threads;
  for (unsigned thread = 1; thread < workers; ++thread) threads.emplace_back(work, thread);
  work(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  const std::size_t best =
      static_cast<std::size_t>(std::min_element(marks.begin(), marks.end()) - marks.begin());
  dives_ += std::min(tasks.size(), solved + 1);
  if (best < tasks.size() && results[best] && marks[best] < state.mark) {
    state.mark = marks[best];
    state.offsets = std::move(*results[best]);
    state.engine = tasks[best].name;
    note_engine();
  }
}

void DiveSearch::note_engine() {
  Bytes largest = 0;
  for (const State& state : states_) {
    if (state.offsets.empty() && !state.strip.items.empty()) continue;
    if (state.bound > largest) {
      largest = state.bound;
      engine_ = state.engine;
    }
  }
}

void DiveSearch::first_dives() {
  for (State& state : states_) run(state, tasks(state, state.wave++), nullptr, nullptr);
}

void DiveSearch::next_wave(std::uint64_t dives, const Budget& budget,
                           const std::function<void()>& idle) {
  const std::uint64_t end = dives > std::numeric_limits<std::uint64_t>::max() - dives_
                                ? ~std::uint64_t{0}
                                : dives_ + dives;
  for (State& state : states_) {
    if (state.mark <= state.bound || budget.expired() || dives_ >= end) continue;
    std::vector<Task> list = tasks(state, state.wave++);
    if (list.size() > end - dives_) list.resize(end - dives_);
    run(state, list, &budget, idle);
  }
}

bool DiveSearch::proven() const {
  return std::all_of(states_.begin(), states_.end(),
                     [](const State& state) { return state.mark <= state.bound; });
}

std::vector<Bytes> DiveSearch::own_offsets(std::size_t count) const {
  std::vector<Bytes> offsets(count);
  for (const State& state : states_) {
    for (const auto& [buffer, offset] : state.strip.bottom) offsets[buffer] = offset;
    for (std::size_t i = 0; i < state.strip.items.size(); ++i)
      offsets[state.strip.items[i].buffer] = state.offsets[i];
  }
  return offsets;
}

Packing DiveSearch::packing(std::size_t count) const {
  Packing packing{own_offsets(count), 0};
  for (const State& state : states_) {
    const Bytes base = align_up(packing.high_water_mark, state.strip.unit);
    for (const auto& [buffer, offset] : state.strip.bottom) packing.offsets[buffer] += base;
    for (const Strip::Item& item : state.strip.items) packing.offsets[item.buffer] += base;
    packing.high_water_mark = base + state.mark;
  }
  return packing;
}

}  // namespace berth::packing
