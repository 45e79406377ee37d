// Programs against plans that verify() finds legal, and against plans that are learned from them:
// whatever a program does, its live blocks share no byte, and the allocator is valid.
//
// verify() is the oracle: plans are drawn at random, or all there are, with empty branches and
// overlaps among them; what it lets pass is served. So a rule that serving needs and verify() does
// not demand shows here, as does a rule that serving leaves out.

#include "csrc/plan/verify.h"
#include "tests/catch.h"
#include "tests/support/model_program.h"
#include "tests/support/small_plan.h"
#include "tests/support/warnings.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <utility>
#include <vector>

using namespace berth;
using test::Allocate, test::branch_of, test::fault_of, test::Free, test::Load, test::Mark;
using test::Model, test::ModelHabits, test::ModelLane, test::ModelRequest, test::ModelRun;
using test::plan_of, test::sequence_of, test::SlotSpec;

namespace {

// Code under the address sanitizer is slow, plans that are learned are slowest.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kSlowed = true;
#else
constexpr bool kSlowed = false;
#endif

// The program that runs, for a sanitizer that ends the process.
const Model* running_program = nullptr;
unsigned running_seed = 0;

struct Tally {
  std::uint64_t programs = 0, requests = 0, planned = 0, plans_learned = 0;
};

void run(const Model& model, unsigned seed, Tally& tally) {
  running_program = &model;
  running_seed = seed;
  INFO("seed " << seed << "\n" << test::printed(model));
  ModelRun one(model);
  if (const std::string fault = one.fault(); !fault.empty())
    FAIL(fault << "\nshrunk: " << test::printed(test::shrunk(model)));
  const Stats stats = one.stats();
  ++tally.programs;
  tally.requests += stats.requests;
  tally.planned += stats.hits + stats.hits_bucket;
  tally.plans_learned += stats.plans_learned;
  running_program = nullptr;
}

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::uint32_t below(std::size_t limit) { return static_cast<std::uint32_t>(engine_() % limit); }
  bool one_in(std::uint32_t n) { return below(n) == 0; }
  [[nodiscard]] std::mt19937& engine() noexcept { return engine_; }

 private:
  std::mt19937 engine_;
};

void fit(Plan& plan) {
  plan.arena_bytes = 0;
  for (const Sequence& sequence : plan.sequences) {
    for (const Slot& slot : sequence.slots)
      if (slot.planned()) plan.arena_bytes = std::max(plan.arena_bytes, slot.offset + slot.size);
  }
}

// Of few sizes, so that requests are alike here and there; most live for a request or two.
std::vector<SlotSpec> random_slots(Random& random, std::uint32_t fork, std::uint32_t count) {
  std::vector<SlotSpec> slots;
  const bool buckets = random.one_in(6);
  for (std::uint32_t k = 0; k < count; ++k) {
    const Bytes size = random.one_in(6) ? 1 + random.below(200) : 64 * (1 + random.below(3));
    const std::uint32_t length = 1 + random.below(random.one_in(3) ? fork + count : 2);
    slots.push_back({Slot::kUnplanned, size, std::min(length, fork + count),
                     buckets ? 1 + random.below(size) : 0});
  }
  return slots;
}

// A branch of a random sequence of its lane: of other requests, or of the same ones as what it
// leaves, all of them, fewer, or more, with lifetimes of its own.
Sequence random_branch(Random& random, const std::vector<Sequence>& sequences, std::uint32_t lane,
                       std::uint32_t most) {
  std::vector<std::int32_t> own;
  for (std::size_t s = 0; s < sequences.size(); ++s)
    if (sequences[s].lane == lane) own.push_back(static_cast<std::int32_t>(s));
  const std::int32_t parent = own[random.below(own.size())];
  const Sequence& of = sequences[static_cast<std::size_t>(parent)];
  const std::uint32_t fork = of.fork + random.below(of.period - of.fork + 1);
  const std::uint32_t left = of.period - fork;
  const bool ends_alike = random.one_in(3);
  const std::uint32_t count = ends_alike ? left : random.below(most + 1);
  std::vector<SlotSpec> slots = random_slots(random, fork, count);
  if (!random.one_in(3)) {
    for (std::uint32_t k = 0; k < std::min(count, left); ++k) {
      const Slot& slot = of.slots[fork - of.fork + k];
      slots[k].size = slot.requested;
      slots[k].least = slot.least;
    }
  }
  return branch_of(parent, fork, slots, lane);
}

// Lanes with branches, none of whose slots is planned yet.
Plan random_frame(Random& random, std::uint32_t lanes, std::uint32_t most) {
  std::vector<Sequence> sequences;
  for (std::uint32_t lane = 0; lane < lanes; ++lane)
    sequences.push_back(sequence_of(random_slots(random, 0, 1 + random.below(most)), lane));
  const bool edges = lanes > 1 && random.one_in(2);
  const std::uint32_t branches = edges || random.one_in(4) ? 0 : 1 + random.below(4);
  for (std::uint32_t b = 0; b < branches; ++b)
    sequences.push_back(random_branch(random, sequences, random.below(lanes), most));
  std::vector<PlanEdge> between;
  // The lanes take turns, now and then at a tick of any.
  for (std::uint32_t lane = 0; edges && lane < lanes; ++lane) {
    const std::uint32_t next = (lane + 1) % lanes;
    const std::uint32_t from = sequences[lane].period, to = sequences[next].period;
    between.push_back({lane, random.one_in(2) ? from : random.below(from + 1), next,
                       random.one_in(2) ? 0 : random.below(to + 1), next == 0 ? 1u : 0u});
  }
  return test::unverified_plan_of(std::move(sequences), std::move(between));
}

// Places the slots one by one, each where verify() has nothing against it among a few low places.
Plan placed(Random& random, Plan plan, Bytes unit) {
  std::vector<Slot*> slots;
  for (Sequence& sequence : plan.sequences) {
    for (Slot& slot : sequence.slots) {
      slot.requested *= unit / 64;
      slot.least *= unit / 64;
      slot.size = align_up(slot.requested, 64);
      slots.push_back(&slot);
    }
  }
  std::shuffle(slots.begin(), slots.end(), random.engine());
  for (Slot* const slot : slots) {
    if (random.one_in(10)) continue;
    for (int tries = 0; tries < 6; ++tries) {
      slot->offset = unit * random.below(2 + slots.size() / 2);
      fit(plan);
      if (!verify(plan)) break;
      slot->offset = Slot::kUnplanned;
      if (tries == 3) slot->length = 1;
    }
  }
  fit(plan);
  return plan;
}

// A plan that verify() lets pass. Empty where it refuses the sequences themselves.
std::optional<Plan> random_plan(Random& random, std::uint32_t lanes, std::uint32_t most,
                                Bytes unit) {
  Plan plan = random_frame(random, lanes, most);
  if (verify(plan)) return std::nullopt;
  return placed(random, std::move(plan), unit);
}

ModelHabits random_habits(Random& random) {
  const auto rarely = [&](std::uint32_t least) {
    return random.one_in(3) ? 0 : least + random.below(20);
  };
  return {.drops = rarely(3),
          .inserts = rarely(3),
          .changes = rarely(3),
          .early_marks = rarely(3),
          .missing_marks = rarely(2),
          .early_frees = rarely(2),
          .late_frees = rarely(1)};
}

// So many programs of plans as `draw` makes them.
template <class Draw>
Tally run_on_plans(unsigned first_seed, unsigned programs, std::uint32_t requests, Draw&& draw) {
  const test::Warnings warnings;  // that the plan does not fit is one
  Tally tally;
  for (unsigned seed = first_seed; tally.programs < programs; ++seed) {
    Random random(seed);
    Model model;
    const Bytes unit = 64 << (seed % 3 * 3);
    while (model.plans.empty() || (seed % 4 == 0 && model.plans.size() < 2)) {
      if (std::optional<Plan> plan = draw(random, unit)) model.plans.push_back(std::move(*plan));
    }
    ModelHabits habits = random_habits(random);
    habits.unit = unit;
    habits.loads = model.plans.size() > 1 ? 20 : 0;
    model.operations = test::write_program(test::lanes_of(model.plans[0]), requests, habits,
                                           model.plans.size(), random.engine());
    run(model, seed, tally);
  }
  CHECK(tally.planned * 4 > tally.requests);
  return tally;
}

// --- Learned

// Kinds of steps of one lane: the first at random, the others too, or as one of those before, with
// other lifetimes, or as the beginning of one, or longer than it.
std::vector<std::vector<ModelRequest>> random_kinds(Random& random, std::uint32_t most,
                                                    bool of_many_sizes) {
  std::vector<std::vector<ModelRequest>> kinds(1 + random.below(4));
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    std::vector<ModelRequest>& kind = kinds[i];
    if (i != 0 && !random.one_in(4)) kind = kinds[random.below(i)];
    if (kind.empty() || random.one_in(2)) kind.resize(1 + random.below(most));
    const bool other_lifetimes = random.one_in(2);
    for (ModelRequest& request : kind) {
      const bool is_new = request.most == 0;
      if (is_new) request.most = request.least = 64 * (1 + random.below(4));
      if (is_new && of_many_sizes && !random.one_in(3)) request.most += 64 * 12;
      if (is_new || (other_lifetimes && random.one_in(3)))
        request.length = 1 + random.below(random.one_in(4) ? 2 * kind.size() : 2);
    }
  }
  return kinds;
}

Tally run_learning(unsigned first_seed, unsigned programs, std::uint32_t requests,
                   std::uint32_t lanes, bool of_many_sizes) {
  const test::Warnings warnings;
  Tally tally;
  for (unsigned seed = first_seed; seed < first_seed + programs; ++seed) {
    Random random(seed);
    std::vector<ModelLane> steps;
    for (std::uint32_t lane = 0; lane < lanes; ++lane)
      steps.push_back({lane, random_kinds(random, 9, of_many_sizes)});
    ModelHabits habits = random_habits(random);
    habits.steps_as_planned = 10 + random.below(20);
    const Model model{{}, test::write_program(steps, requests, habits, 0, random.engine())};
    run(model, seed, tally);
  }
  CHECK(tally.plans_learned > programs / 2);
  CHECK(tally.planned * 10 > tally.requests);
  return tally;
}

}  // namespace

// Of the address sanitizer, which ends the process: what ran, first.
extern "C" void __asan_on_error();
extern "C" void __asan_on_error() {
  if (running_program != nullptr)
    std::fprintf(stderr, "seed %u\n%s\n", running_seed, test::printed(*running_program).c_str());
}

TEST_CASE("A program that fails prints itself as it is written", "[programs]") {
  const Model model{{plan_of({sequence_of({{0, 128, 2}, {Slot::kUnplanned, 64, 1}}),
                              branch_of(0, 1, {{128, 64, 1, 32}})})},
                    {Mark{0}, Allocate{0, 128}, Allocate{1, 60}, Free{0}, Load{0}, Free{1}}};
  CHECK(test::printed(model) ==
        "{{plan_of({sequence_of({{0, 128, 2}, {Slot::kUnplanned, 64, 1}}), "
        "branch_of(0, 1, {{128, 64, 1, 32}})})},\n"
        " {Mark{0}, Allocate{0, 128}, Allocate{1, 60}, Free{0}, Load{0}, Free{1}}}");
  CHECK(fault_of(model) == "");
}

TEST_CASE("No two live blocks share a byte under any small plan with a branch",
          "[programs][exhaustive]") {
  const test::Warnings warnings;
  Tally tally;
  std::vector<SlotSpec> slots(4);
  std::uint64_t drawn = 0, empty = 0;
  // Calls then() for each choice of the slots from `at` to `end`: of one or two units, at one of so
  // many places, for 1, 2, .. ticks.
  const auto each = [&](auto&& self, std::size_t at, std::size_t end, std::uint32_t places,
                        std::uint32_t period, const auto& then) -> void {
    if (at == end) return then();
    for (std::uint32_t i = 0; i < 2 * places * period; ++i) {
      slots[at] = {64 * Bytes{i / 2 % places}, 64 + 64 * Bytes{i % 2}, 1 + i / 2 / places};
      self(self, at + 1, end, places, period, then);
    }
  };
  for (std::uint32_t root = 1; root <= 2; ++root) {
    for (std::uint32_t fork = 0; fork <= root; ++fork) {
      for (std::uint32_t own = 0; own <= 2; ++own) {
        const auto run_one = [&] {
          const auto behind = slots.begin() + root;
          Plan plan = test::unverified_plan_of(
              {sequence_of({slots.begin(), behind}), branch_of(0, fork, {behind, behind + own})});
          ++drawn;
          if (verify(plan)) {
            empty += own == 0;
            return;
          }
          std::mt19937 random(static_cast<unsigned>(drawn));
          const ModelHabits habits{
              .drops = 8, .early_marks = 6, .missing_marks = 3, .early_frees = 4, .late_frees = 2};
          Model model{{std::move(plan)}, {}};
          model.operations =
              test::write_program(test::lanes_of(model.plans[0]), 14, habits, 1, random);
          run(model, static_cast<unsigned>(drawn), tally);
        };
        const std::uint32_t places = root + own <= 3 ? 3 : 2;
        each(each, 0, root, places, root,
             [&] { each(each, root, root + own, places, fork + own, run_one); });
      }
    }
  }
  CAPTURE(drawn, empty, tally.programs);
  CHECK(empty > 0);
  CHECK(tally.programs > 2000);
}

TEST_CASE("No two live blocks share a byte under small plans with branches", "[programs]") {
  run_on_plans(1, 6000, 24,
               [](Random& random, Bytes unit) { return random_plan(random, 1, 4, unit); });
}

TEST_CASE("No two live blocks share a byte under plans with branches", "[programs]") {
  run_on_plans(100000, 3000, 60,
               [](Random& random, Bytes unit) { return random_plan(random, 1, 8, unit); });
}

TEST_CASE("No two live blocks share a byte under plans of two lanes", "[programs]") {
  run_on_plans(200000, 3000, 50,
               [](Random& random, Bytes unit) { return random_plan(random, 2, 5, unit); });
}

TEST_CASE("No two live blocks share a byte where kinds of steps are learned", "[programs][learn]") {
  run_learning(300000, kSlowed ? 200 : 3000, 200, 1, false);
}

TEST_CASE("No two live blocks share a byte where buckets are learned", "[programs][learn]") {
  run_learning(400000, kSlowed ? 100 : 1500, 200, 1, true);
}

TEST_CASE("No two live blocks share a byte where two lanes are learned", "[programs][learn]") {
  run_learning(500000, kSlowed ? 100 : 1500, 200, 2, false);
}
