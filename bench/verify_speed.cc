// How long a plan takes from its file to the tables that serving reads: read and verify, then
// freeze. Prints one table; median of five rounds, processor time beside wall time, since other
// work on the machine lengthens the second alone.
//
//   build/release/bench/verify_speed [--slots N] [--smoke]

#include "csrc/core/file.h"
#include "csrc/plan/file.h"
#include "csrc/plan/lookup.h"
#include "csrc/plan/verify.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace berth;

namespace {

std::uint32_t below(std::mt19937& random, std::uint32_t limit) {
  return static_cast<std::uint32_t>(random() % limit);
}

// Lengths as in a training step: most requests die young, some live long, a few wrap around.
std::uint32_t random_length(std::mt19937& random, std::uint32_t period) {
  std::uint32_t length = 1 + below(random, 3);
  if (below(random, 4) == 0) length = 1 + below(random, 500);
  if (below(random, 200) == 0) length = 1 + below(random, 20'000);
  return std::min(length, period);
}

// One lane, each slot at the lowest hole that fits when it is born. What would wrap around into
// slots that are already placed ends with the step.
Sequence first_fit(std::mt19937& random, std::uint32_t lane, std::uint32_t slots, Bytes base) {
  Sequence sequence;
  sequence.lane = lane;
  sequence.period = slots;
  std::map<Bytes, Bytes> live;                 // offset -> end
  std::multimap<std::uint32_t, Bytes> deaths;  // tick -> offset
  for (std::uint32_t tick = 0; tick < slots; ++tick) {
    for (; !deaths.empty() && deaths.begin()->first <= tick; deaths.erase(deaths.begin())) {
      live.erase(deaths.begin()->second);
    }
    Bytes requested = 1 + Bytes{below(random, 64)} * 1000;
    if (below(random, 20) == 0) requested *= 50;
    const Bytes size = align_up(requested, 64);
    const std::uint32_t length = std::min(random_length(random, slots), slots - tick);
    Bytes offset = base;
    for (const auto& [first, last] : live) {
      if (first >= offset + size) break;
      offset = std::max(offset, last);
    }
    live.emplace(offset, offset + size);
    deaths.emplace(tick + length, offset);
    sequence.slots.push_back({offset, requested, size, tick, length, 0});
  }
  return sequence;
}

Plan finish(Plan plan) {
  for (std::size_t lane = 0; lane < plan.sequences.size(); ++lane) plan.lane_keys.push_back(lane);
  for (const Sequence& sequence : plan.sequences) {
    for (const Slot& slot : sequence.slots) {
      plan.arena_bytes = std::max(plan.arena_bytes, slot.offset + slot.size);
    }
  }
  return plan;
}

Plan one_lane(std::uint32_t slots) {
  std::mt19937 random(1);
  Plan plan;
  plan.sequences.push_back(first_fit(random, 0, slots, 0));
  return finish(std::move(plan));
}

// Two lanes that take turns on the same bytes, and say so.
Plan taking_turns(std::uint32_t slots) {
  std::mt19937 random(1);
  Plan plan;
  plan.sequences.push_back(first_fit(random, 0, slots / 2, 0));
  plan.sequences.push_back(first_fit(random, 1, slots / 2, 0));
  plan.edges = {{0, slots / 2, 1, 0, 0}, {1, slots / 2, 0, 0, 1}};
  return finish(std::move(plan));
}

// Every slot at its own offset: the largest tables that a plan can have.
Plan apart(std::uint32_t slots) {
  Plan plan;
  Sequence& sequence = plan.sequences.emplace_back();
  sequence.period = slots;
  for (std::uint32_t tick = 0; tick < slots; ++tick) {
    sequence.slots.push_back({Bytes{64} * tick, 64, 64, tick, slots, 0});
  }
  return finish(std::move(plan));
}

struct Seconds {
  double wall = 0, processor = 0;
  friend bool operator<(const Seconds& a, const Seconds& b) { return a.wall < b.wall; }
};

Seconds time_of(const std::function<void()>& what) {
  std::array<Seconds, 5> rounds;
  for (Seconds& round : rounds) {
    const auto wall = std::chrono::steady_clock::now();
    const std::clock_t processor = std::clock();
    what();
    round.processor = static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC;
    round.wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count();
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[rounds.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  std::uint32_t slots = 1'000'000;
  bool smoke = false;
  CLI::App app("Times the load of plans: file to serving tables");
  app.add_option("--slots", slots, "slots of each plan")->check(CLI::Range(2u, 1u << 24));
  app.add_flag("--smoke", smoke, "1,000 slots, to see that it runs");
  CLI11_PARSE(app, argc, argv);
  if (smoke) slots = 1000;

  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("verify_speed.{}.plan", ::getpid()))
          .string();
  fmt::print("{} slots; seconds, median of 5: wall (processor)\n\n", slots);
  fmt::print("| plan | file MiB | cells | read and verify | of it verify | freeze | total |\n");
  fmt::print("| --- | --- | --- | --- | --- | --- | --- |\n");
  const std::pair<const char*, Plan (*)(std::uint32_t)> plans[] = {
      {"one lane, first fit", one_lane},
      {"two lanes taking turns", taking_turns},
      {"every slot apart", apart}};
  for (const auto& [name, make] : plans) {
    const Plan plan = make(slots);
    write_plan(path, plan);
    Plan loaded;
    std::size_t cells = 0;
    const Seconds read = time_of([&] { loaded = read_plan(path); });
    const Seconds verified = time_of([&] { (void)verify(plan); });
    // Its copy of the plan is moved in, as it is when a file is served.
    std::vector<Plan> copies(5, plan);
    const Seconds frozen = time_of([&] {
      cells = PlanLookup(std::move(copies.back())).cell_count();
      copies.pop_back();
    });
    std::string row =
        fmt::format("| {} | {:.1f} | {} |", name,
                    static_cast<double>(std::filesystem::file_size(path)) / (1 << 20), cells);
    const Seconds total{read.wall + frozen.wall, read.processor + frozen.processor};
    for (const Seconds& one : {read, verified, frozen, total}) {
      row += fmt::format(" {:.3f} ({:.3f}) |", one.wall, one.processor);
    }
    fmt::print("{}\n", row);
    if (loaded != plan) {
      fmt::print(stderr, "verify_speed: the plan read is not the plan written\n");
      return 1;
    }
  }
  std::filesystem::remove(path);
  return 0;
}
