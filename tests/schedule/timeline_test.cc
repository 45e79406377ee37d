#include "csrc/schedule/offload/timeline.h"

#include "tests/catch.h"
#include "tests/schedule/random_offloads.h"

#include <berth/error.h>

#include <algorithm>
#include <random>

using namespace berth;
using namespace berth::schedule::offload;

namespace {

constexpr std::uint64_t kMs = 1'000'000;

Problem problem_of(const std::vector<std::uint64_t>& ms, Index border,
                   std::vector<Problem::ValueOf> values) {
  Problem problem;
  for (const std::uint64_t one : ms) {
    problem.operators.emplace_back();
    problem.operators.back().ns = one * kMs;
  }
  problem.border = border;
  problem.values = std::move(values);
  problem.derive();
  return problem;
}

Problem::ValueOf value_of(Bytes bytes, Index maker, std::vector<Index> readers) {
  Problem::ValueOf value;
  value.bytes = bytes;
  value.maker = maker;
  value.readers = std::move(readers);
  return value;
}

// A byte takes a millisecond each way, and `loaded` of a second carries that many bytes when both
// engines copy.
Machine machine_of(Bytes budget = 0, std::uint64_t loaded = 1000) {
  return {.out = {1000, loaded}, .in = {1000, loaded}, .budget = budget};
}

OffloadPlan plan_of(const Problem& problem, std::vector<OffloadPlan::Choice> choices) {
  OffloadPlan plan = keep_all(problem);
  std::copy(choices.begin(), choices.end(), plan.choices.begin());
  return plan;
}

struct Span {
  std::uint64_t start, end;
  friend bool operator==(const Span&, const Span&) = default;
};
Span ms_of(const std::optional<CopyTime>& copy) {
  REQUIRE(copy);
  return {copy->start / kMs, copy->end / kMs};
}
Span ms_of(const RunTime& run) { return {run.start / kMs, run.end / kMs}; }

}  // namespace

TEST_CASE("Copies of a residual block end behind compute that does not wait for them",
          "[schedule][timeline]") {
  // 1x1 convolution, 3x3 convolution, join; one backward operator reads both inputs.
  const Problem problem = problem_of(
      {25, 76, 3, 1, 1}, 3, {value_of(66, kNobody, {0, 4}), value_of(68, kNobody, {1, 4})});
  OffloadPlan plan = plan_of(problem, {{Fate::kOffload, 3}, {Fate::kOffload, 3}});
  const Machine machine = machine_of();
  Timeline timeline(problem, machine);
  timeline.play(plan);
  Report report = timeline.report();
  CHECK(report.runs[2].end == (25 + 76 + 3) * kMs);
  CHECK(ms_of(report.out[0]) == Span{0, 66});
  CHECK(ms_of(report.out[1]) == Span{66, 134});

  plan.waits = OffloadPlan::Waits::kEachOperator;
  timeline.play(plan);
  report = timeline.report();
  CHECK(report.runs[2].end == (66 + 76 + 3) * kMs);
  CHECK(ms_of(report.out[1]) == Span{66, 134});

  plan.waits = OffloadPlan::Waits::kBorder;
  timeline.play(plan);
  report = timeline.report();
  CHECK(report.runs[2].end == (25 + 76 + 3) * kMs);
  CHECK(report.runs[3].start == 134 * kMs);
  CHECK(report.runs[3].stall == 30 * kMs);
  CHECK(report.runs[3].cause == RunTime::Cause::kDrain);
}

TEST_CASE("A copy never hides behind the operator that makes its bytes", "[schedule][timeline]") {
  // Value 0 has no reader before the border, value 1 is written in place by its last one.
  Problem problem =
      problem_of({10, 10, 10, 10, 10}, 3,
                 {value_of(5, 2, {4}), value_of(5, 0, {1, 4}), value_of(5, 0, {1, 4})});
  problem.values[1].written = 1;
  problem.derive();
  const Machine machine = machine_of();
  Timeline timeline(problem, machine);
  timeline.play(plan_of(problem, {{Fate::kOffload, 3}, {Fate::kOffload, 3}, {Fate::kOffload, 3}}));
  const Report report = timeline.report();
  CHECK(ms_of(report.out[0]) == Span{30, 35});
  CHECK(ms_of(report.out[1]) == Span{20, 25});
  CHECK(ms_of(report.out[2]) == Span{10, 15});  // only read: beside its last reader
}

TEST_CASE("Two reloads with one deadline run one after the other", "[schedule][timeline]") {
  const Problem problem =
      problem_of({10, 20, 1, 5}, 2, {value_of(4, kNobody, {0, 3}), value_of(6, kNobody, {0, 3})});
  const Machine machine = machine_of();
  Timeline timeline(problem, machine);
  const Outcome outcome =
      timeline.play(plan_of(problem, {{Fate::kOffload, 2}, {Fate::kOffload, 2}}));
  const Report report = timeline.report();
  CHECK(ms_of(report.in[0]) == Span{30, 34});
  CHECK(ms_of(report.in[1]) == Span{34, 40});
  CHECK(ms_of(report.runs[3]) == Span{40, 45});
  CHECK(report.runs[3].stall == 9 * kMs);
  CHECK(report.runs[3].awaited == 1);
  CHECK(outcome.stall_ns == 9 * kMs);
  // The end waits for both, they for the trigger.
  using Kind = ChainLink::Kind;
  CHECK(report.chain == std::vector<ChainLink>{{Kind::kRun, 0},
                                               {Kind::kRun, 1},
                                               {Kind::kRun, 2},
                                               {Kind::kIn, 0},
                                               {Kind::kIn, 1},
                                               {Kind::kRun, 3}});
}

TEST_CASE("A reload waits for its own copy to the host", "[schedule][timeline]") {
  const Problem problem = problem_of({10, 1, 1, 5}, 1, {value_of(30, kNobody, {0, 3})});
  const Machine machine = machine_of();
  Timeline timeline(problem, machine);
  timeline.play(plan_of(problem, {{Fate::kOffload, 1}}));
  const Report report = timeline.report();
  CHECK(ms_of(report.out[0]) == Span{0, 30});
  CHECK(ms_of(report.in[0]) == Span{30, 60});
  CHECK(report.in[0]->cause == CopyTime::Cause::kSource);
  CHECK(report.host_peak == 30);
  CHECK(report.outcome.device_peak == 60);  // both copies while the reload waits
}

TEST_CASE("A reload does not take bytes that are still copied out", "[schedule][timeline]") {
  // Value 0 goes first and comes back into the bytes of value 1, whose copy takes until 60.
  const Problem problem = problem_of(
      {10, 10, 10, 1, 1}, 2, {value_of(20, kNobody, {0, 3}), value_of(40, kNobody, {1, 4})});
  const OffloadPlan plan = plan_of(problem, {{Fate::kOffload, 2}, {Fate::kOffload, 3}});
  const Machine machine = machine_of(60);
  Timeline timeline(problem, machine);
  const Outcome outcome = timeline.play(plan);
  Report report = timeline.report();
  CHECK(outcome.excess == 0);
  // Value 0 is out at 20, where its bytes are taken by the reload: 40 + 20 fit in 60.
  CHECK(ms_of(report.in[0]) == Span{20, 40});
  CHECK(report.runs[2].start == 20 * kMs);

  const Machine tight = machine_of(59);  // inputs alone are above it until value 0 is out
  Timeline other(problem, tight);
  CHECK(other.play(plan).excess == 1);
  report = other.report();
  CHECK(ms_of(report.out[1]) == Span{20, 60});
  CHECK(report.runs[2].start == 60 * kMs);
  CHECK(report.runs[2].cause == RunTime::Cause::kRoom);
  CHECK(report.runs[2].awaited == 1);
  CHECK(ms_of(report.in[0]) == Span{60, 80});
}

TEST_CASE("A budget blocks an operator until one copy ends", "[schedule][timeline]") {
  const Problem problem =
      problem_of({10, 10, 10, 10}, 2, {value_of(30, kNobody, {0, 3}), value_of(25, 1, {2})});
  const OffloadPlan plan = plan_of(problem, {{Fate::kOffload, 2}});
  const Machine wide = machine_of(55), narrow = machine_of(54);
  Timeline timeline(problem, wide);
  timeline.play(plan);
  CHECK(timeline.report().runs[1].start == 10 * kMs);
  Timeline blocked(problem, narrow);
  CHECK(blocked.play(plan).excess == 1);  // the reload beside value 1, and nothing leaves any more
  const Report report = blocked.report();
  CHECK(report.runs[1].start == 30 * kMs);
  CHECK(report.runs[1].stall == 20 * kMs);
  CHECK(report.runs[1].cause == RunTime::Cause::kRoom);
  CHECK(report.runs[1].awaited == 0);
  CHECK(report.runs[2].live == 55);
}

TEST_CASE("An operator may wait for a reload that it triggers itself", "[schedule][timeline]") {
  // Operator 2 works in 20 bytes. Value 0 before that would be above 30 bytes.
  Problem problem = problem_of({10, 10, 10, 10}, 2, {value_of(20, kNobody, {0, 3})});
  problem.operators[2].workspace = 20;
  problem.derive();
  const Machine machine = machine_of(30);
  Timeline timeline(problem, machine);
  CHECK(timeline.play(plan_of(problem, {{Fate::kOffload, 2}})).excess == 10);
  const Outcome outcome = timeline.play(plan_of(problem, {{Fate::kOffload, 3}}));
  const Report report = timeline.report();
  CHECK(outcome.excess == 0);
  CHECK(outcome.device_peak == 20);
  CHECK(ms_of(report.in[0]) == Span{30, 50});
  CHECK(ms_of(report.runs[3]) == Span{50, 60});
  using Kind = ChainLink::Kind;
  CHECK(report.chain ==
        std::vector<ChainLink>{
            {Kind::kRun, 0}, {Kind::kRun, 1}, {Kind::kRun, 2}, {Kind::kIn, 0}, {Kind::kRun, 3}});
}

TEST_CASE("Where nothing leaves the device, the plan is over by what is missing",
          "[schedule][timeline]") {
  const Problem problem = problem_of({10, 10}, 1, {value_of(30, 0, {1})});
  const Machine machine = machine_of(29);
  Timeline timeline(problem, machine);
  CHECK(timeline.play(keep_all(problem)).excess == 1);
  CHECK(timeline.report().outcome.ns == 20 * kMs);
}

TEST_CASE("A copy that runs is timed again when the other engine begins and ends",
          "[schedule][timeline]") {
  // Value 0 comes back from 20 on, value 1 goes out from 20 to 40 alone. Half the rate for both.
  const Problem problem =
      problem_of({10, 10, 5, 100}, 2, {value_of(10, kNobody, {0, 3}), value_of(20, 1, {3})});
  const OffloadPlan plan = plan_of(problem, {{Fate::kOffload, 2}, {Fate::kOffload, 2}});
  {
    const Machine machine = machine_of();
    Timeline timeline(problem, machine);
    timeline.play(plan);
    CHECK(ms_of(timeline.report().in[0]) == Span{20, 30});
    CHECK(ms_of(timeline.report().out[1]) == Span{20, 40});
  }
  const Machine machine = machine_of(0, 500);
  Timeline timeline(problem, machine);
  timeline.play(plan);
  const Report report = timeline.report();
  CHECK(ms_of(report.in[0]) == Span{20, 40});   // 10 bytes at half the rate
  CHECK(ms_of(report.out[1]) == Span{20, 50});  // 10 bytes at half the rate, 10 at the full one
  CHECK(ms_of(report.in[1]) == Span{50, 70});
}

TEST_CASE("What is made again needs its inputs, through others that are made again",
          "[schedule][timeline]") {
  // 0 makes a, 1 makes b of a, 2 makes c of b; 3 reads c.
  Problem problem = problem_of({1, 2, 4, 8, 16}, 3,
                               {value_of(10, 0, {1}), value_of(20, 1, {2}), value_of(40, 2, {4})});
  for (Index op = 0; op < 3; ++op) problem.operators[op].recomputable = true;
  const Machine machine = machine_of();
  Timeline timeline(problem, machine);
  timeline.play(plan_of(
      problem,
      {{Fate::kRecompute, kNobody}, {Fate::kRecompute, kNobody}, {Fate::kRecompute, kNobody}}));
  const Report report = timeline.report();
  std::vector<Index> ops;
  for (const RunTime& run : report.runs) ops.push_back(run.op);
  CHECK(ops == std::vector<Index>{0, 1, 2, 3, 0, 1, 2, 4});
  CHECK(report.again_ns == 7 * kMs);
  CHECK(report.compute_ns == 38 * kMs);
  CHECK(report.outcome.device_peak == 60);
  CHECK(report.runs[3].live == 0);
  // With b kept, a is not wanted any more.
  timeline.play(plan_of(
      problem, {{Fate::kRecompute, kNobody}, {Fate::kKeep, kNobody}, {Fate::kRecompute, kNobody}}));
  CHECK(timeline.report().again_ns == 4 * kMs);
  CHECK(timeline.report().runs[3].live == 20);
}

TEST_CASE("A timeline is what its rules say, by definition", "[schedule][timeline]") {
  constexpr unsigned kSeed = 11;
  CAPTURE(kSeed);
  std::mt19937 random(kSeed);
  int waited_for_room = 0, over = 0;
  for (int round = 0; round < 2000; ++round) {
    CAPTURE(round);
    const Problem problem = test::random_copy_problem(random, 1 + random() % 7);
    const OffloadPlan plan = test::random_offload_plan(random, problem);
    Machine machine{.out = {1'000'000'000, 1'000'000'000}, .in = {500'000'000, 500'000'000}};
    Timeline free(problem, machine);
    const Bytes peak = free.play(plan).device_peak;
    if (random() % 2 == 0) machine.budget = peak / 2 + random() % (peak / 2 + 1);
    Timeline timeline(problem, machine);
    const Outcome outcome = timeline.play(plan);
    const Report report = timeline.report();
    const Execution& execution = timeline.execution();

    // Compute: in order, with each read there and nothing waited for that was not to be.
    Bytes most = 0;
    std::uint64_t before = 0;
    for (Index k = 0; k < report.runs.size(); ++k) {
      const RunTime& run = report.runs[k];
      REQUIRE(run.start >= before);
      REQUIRE(run.end == run.start + problem.operators[run.op].ns);
      bool awaited = run.start == before;
      for (const Value v : problem.operators[run.op].reads) {
        if (k < problem.border || execution.fate[v] != Fate::kOffload) continue;
        REQUIRE(report.in[v]);
        REQUIRE(report.in[v]->end <= run.start);
        awaited |= report.in[v]->end == run.start;
      }
      for (const auto& out : report.out) awaited |= out && out->end == run.start;
      if (plan.waits == OffloadPlan::Waits::kEachOperator)
        for (const auto& in : report.in) awaited |= in && in->end == run.start;
      REQUIRE(awaited);
      waited_for_room += run.cause == RunTime::Cause::kRoom;
      // What is on the device while it runs: each copy of each value by its own span of time.
      Bytes live = problem.constant + problem.operators[run.op].workspace;
      for (Value v = 0; v < problem.values.size(); ++v) {
        const Problem::ValueOf& value = problem.values[v];
        if (execution.last_use[v] == kNobody) continue;
        const Index birth = value.maker == kNobody ? 0 : execution.run_of[value.maker];
        const Fate fate = execution.fate[v];
        const bool twice = fate != Fate::kKeep;
        if (birth <= k && k <= (twice ? execution.last_before[v] : execution.last_use[v]))
          live += value.bytes;
        else if (fate == Fate::kOffload && birth <= k && report.out[v]->end > run.start)
          live += value.bytes;
        const Index second = fate == Fate::kOffload ? execution.run_of[plan.choices[v].trigger]
                                                    : execution.recomputed_at[v];
        if (twice && second <= k && k <= execution.last_use[v]) live += value.bytes;
        if (run.again && value.maker == run.op && fate != Fate::kRecompute) live += value.bytes;
      }
      REQUIRE(run.live == live);
      most = std::max(most, live);
      before = run.end;
    }
    REQUIRE(outcome.ns == before);
    REQUIRE(outcome.device_peak == std::max(most, outcome.device_peak));
    if (machine.budget != 0)
      REQUIRE(outcome.excess ==
              (outcome.device_peak > machine.budget ? outcome.device_peak - machine.budget : 0));
    over += outcome.excess != 0;

    // Copies: each as long as its rate says, never before what it needs, one at a time.
    std::vector<Span> outs, ins;
    for (Value v = 0; v < problem.values.size(); ++v) {
      REQUIRE(report.out[v].has_value() == (execution.fate[v] == Fate::kOffload));
      REQUIRE(report.in[v].has_value() == report.out[v].has_value());
      if (!report.out[v]) continue;
      const Bytes bytes = problem.values[v].bytes;
      outs.push_back({report.out[v]->start, report.out[v]->end});
      ins.push_back({report.in[v]->start, report.in[v]->end});
      REQUIRE(outs.back().end - outs.back().start == bytes);
      REQUIRE(ins.back().end - ins.back().start == 2 * bytes);
      const RunTime& last = report.runs[execution.last_before[v]];
      REQUIRE(outs.back().start >= (problem.values[v].maker == last.op ? last.end : last.start));
      REQUIRE(ins.back().start >= outs.back().end);
      const Index trigger = execution.run_of[plan.choices[v].trigger];
      REQUIRE(ins.back().start >= (trigger == execution.first_after[v]
                                       ? report.runs[trigger - 1].end
                                       : report.runs[trigger].start));
    }
    for (std::vector<Span>* copies : {&outs, &ins}) {
      std::sort(copies->begin(), copies->end(),
                [](const Span& a, const Span& b) { return a.start < b.start; });
      for (std::size_t k = 1; k < copies->size(); ++k)
        REQUIRE((*copies)[k].start >= (*copies)[k - 1].end);
    }
    REQUIRE(report.overlap >= 0);
    REQUIRE(report.overlap <= 1);
    REQUIRE(!report.chain.empty());
    REQUIRE(report.chain.back() ==
            ChainLink{ChainLink::Kind::kRun, static_cast<Index>(report.runs.size() - 1)});
    // Nothing is left over from one play to the next.
    REQUIRE(timeline.play(plan) == outcome);
  }
  CHECK(waited_for_room > 100);
  CHECK(over > 100);
}

TEST_CASE("What is no copy problem, plan or machine is refused by name", "[schedule][timeline]") {
  const Problem good = problem_of({1, 1, 1}, 1, {value_of(4, 0, {1, 2}), value_of(4, 1, {2})});
  const Machine machine = machine_of();
  const auto text_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  const auto play = [&](std::vector<OffloadPlan::Choice> choices) {
    return text_of([&] { Timeline(good, machine).play(plan_of(good, std::move(choices))); });
  };
  CHECK(play({{Fate::kOffload, 0}}) == "accepted");
  CHECK(play({{Fate::kOffload, 1}}) == "accepted");
  CHECK(
      play({{Fate::kOffload, 2}}) ==
      "the reload of value 0 is triggered by operator 2, legal are those from the last use before "
      "the border (operator 0) to the first use after it (operator 1)");
  CHECK(play({{Fate::kRecompute, kNobody}}) == "value 0 of 4 bytes may not be recomputed");
  CHECK(play({{}, {Fate::kOffload, 1}}) == "value 1 of 4 bytes may not be offloaded");
  CHECK(text_of([&] { Timeline(good, machine).play({}); }) == "a plan of 0 values for a step of 2");
  const auto derive = [&](auto change) {
    Problem problem = good;
    change(problem);
    return text_of([&] { problem.derive(); });
  };
  CHECK(derive([](Problem& p) { p.values[0].readers = {7}; }) ==
        "value 0 names operator 7, there are 3");
  CHECK(derive([](Problem& p) { p.values[1].readers = {0}; }) ==
        "operator 0 uses value 1 before operator 1 makes it");
  CHECK(derive([](Problem& p) { p.values[0].written = 0; }) ==
        "operator 0 writes value 0 in place and is none of its readers");
  CHECK(derive([](Problem& p) { p.border = 4; }) ==
        "the backward part begins at operator 4, there are 3");
  CHECK_THAT(derive([](Problem& p) { p.values[0].bytes = kMaxBytes; }),
             Catch::Matchers::Contains("all sizes together are above"));
  CHECK_THAT(derive([](Problem& p) { p.operators[0].ns = ~0ULL; }),
             Catch::Matchers::Contains("all times together are above"));
  Machine bad = machine;
  bad.in.alone = 0;
  CHECK_THAT(text_of([&] { Timeline(good, bad); }),
             Catch::Matchers::Contains("copies 0 bytes per second alone"));
  Problem large = good;
  large.values[0].bytes = kMaxBytes / 2;
  large.derive();
  Machine slow{.out = {1, 1}, .in = {1, 1}};
  CHECK_THAT(text_of([&] { Timeline(large, slow); }),
             Catch::Matchers::Contains("all copies one after the other take more than"));
}
