// Graphs of steps that nobody wrote: random, damaged, and recorded under PyTorch.
#include "csrc/core/check.h"
#include "csrc/trace/file.h"
#include "csrc/trace/step.h"
#include "tests/graph/traced.h"

#include <fmt/format.h>

#include <random>

using namespace berth;
using namespace berth::graph;
using namespace berth::test;
using trace::Access;
using trace::RoleKind;

namespace {

// A step of random operators: it draws the same numbers each time.
void random_step(Recording& run, std::uint64_t seed, const std::vector<BlockId>& there) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  std::vector<BlockId> live = {run.make("aten::ones", {}, 64)};
  const auto some = [&] {
    const std::size_t pick = below(live.size() + there.size());
    return pick < live.size() ? live[pick] : there[pick - live.size()];
  };
  for (std::uint64_t left = 4 + below(20); left > 0; --left) {
    switch (below(6)) {
      case 0:
        run.change("aten::add_", some(), {some()});
        break;
      case 1: {
        const BlockId base = some();
        run.view("aten::view", base, base);
        break;
      }
      case 2:
        live.push_back(below(2) == 0 ? run.make("aten::empty", {}, 1 + below(9999))
                                     : run.request(1 + below(9999)));
        break;
      default: {
        const auto op = run.begin("aten::mm");
        run.takes(op, some());
        run.takes(op, some());
        std::vector<BlockId> inner;
        for (std::uint64_t temporaries = below(4); temporaries > 0; --temporaries) {
          inner.push_back(run.make("aten::clone", {}, 1 + below(9999)));
          if (below(2) == 0) {
            run.free(inner.back());
            inner.pop_back();
          }
        }
        for (std::uint64_t results = 1 + below(2); results > 0; --results) {
          live.push_back(run.request(1 + below(9999)));
          if (below(4) != 0) run.gives(op, live.back());
        }
        run.free(inner);
        run.end(op);
      }
    }
    while (!live.empty() && below(3) == 0) {
      const std::size_t gone = below(live.size());
      run.free(live[gone]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(gone));
    }
  }
  run.free(live);
}

}  // namespace

TEST_CASE("The recorded order has the run's peak to the byte, and never more at last readers",
          "[graph][trace][random]") {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    Recording run;
    const std::vector<BlockId> there = {run.request(500), run.request(9000)};
    const TracedGraph traced = graph_of(run, [&](int) { random_step(run, seed, there); });
    const auto& entries = run.builder.trace().entries;
    const auto mark = std::find_if(entries.rbegin() + 1, entries.rend(), [](const auto& entry) {
      return std::holds_alternative<trace::StepMark>(entry.event);
    });
    const Bytes peak = peak_of_run(run.builder.trace(), mark->tick, entries.back().tick);
    REQUIRE(traced.recorded_peak == peak);
    REQUIRE(peak_as_recorded(traced) == peak);
    REQUIRE(peak_at_last_readers(traced.graph) <= peak);
  }
}

#ifdef BERTH_TEST_ZLIB
TEST_CASE("Steps recorded under PyTorch have the peak of their run and all their parts",
          "[graph][trace]") {
  const struct {
    const char* file;
    std::size_t operators, parameters, gradients;
  } rows[] = {{"cnn", 56, 8, 8}, {"lstm", 56, 10, 10}, {"transformer", 65, 13, 13}};
  for (const auto& [file, operators, parameters, gradients] : rows) {
    CAPTURE(file);
    const Trace trace = read_trace(fmt::format("{}/{}.trace.gz", BERTH_TEST_DATA, file));
    StepOptions options;
    options.max_unroll = 1;
    const auto step = extract_step(trace, options);
    REQUIRE(step);
    const TracedGraph traced = graph_from_trace(trace);
    const Graph& graph = traced.graph;
    CHECK(traced.recorded_peak == peak_of_run(trace, step->first_tick, step->last_tick));
    CHECK(peak_as_recorded(traced) == traced.recorded_peak);
    CHECK(peak_at_last_readers(graph) <= traced.recorded_peak);
    CHECK(traced.steps == 2);
    CHECK(graph.operators.size() == operators);
    const auto count = [&](StorageClass kind, RoleKind role) {
      return static_cast<std::size_t>(std::count_if(
          graph.storages.begin(), graph.storages.end(),
          [&](const Storage& storage) { return storage.kind == kind && storage.role == role; }));
    };
    CHECK(count(StorageClass::kResident, RoleKind::kParameter) == parameters);
    CHECK(count(StorageClass::kStep, RoleKind::kGradient) == gradients);
    // One phase after the other, each there.
    std::vector<Phase> phases;
    for (const Operator& op : graph.operators) phases.push_back(op.phase);
    CHECK(std::is_sorted(phases.begin(), phases.end()));
    phases.erase(std::unique(phases.begin(), phases.end()), phases.end());
    CHECK(phases.size() == 4);
    for (const Operator& op : graph.operators)
      if (op.forward) CHECK(graph.operators[*op.forward].phase <= Phase::kLoss);
    // Each weight is updated once, by the optimizer.
    for (StorageId s = 0; s < graph.storages.size(); ++s) {
      if (graph.storages[s].role != RoleKind::kParameter) continue;
      std::vector<Phase> writers;
      for (const Operator& op : graph.operators)
        for (const ValueId& written : op.alternatives[0].writes)
          if (written.storage == s) writers.push_back(op.phase);
      CHECK(writers == std::vector<Phase>{Phase::kOptimizer});
    }
  }
}
#endif

TEST_CASE("Damaged recordings are refused, or are graphs", "[graph][trace][fuzz]") {
  int refused = 0, graphs = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Recording run;
    const std::vector<BlockId> there = {run.request(500), run.request(9000)};
    for (int step = 0; step < 4; ++step) {
      run.mark();
      random_step(run, seed / 4, there);
    }
    std::vector<trace::Entry>& entries = run.builder.trace().entries;
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes) {
      trace::Entry& entry = entries[random() % entries.size()];
      if (auto* begin = std::get_if<trace::OperatorBegin>(&entry.event)) {
        begin->backward = !begin->backward;
        begin->sequence = static_cast<std::int64_t>(random() % 9);
      } else if (auto* operand = std::get_if<trace::Operand>(&entry.event)) {
        operand->access = static_cast<Access>(random() % 3);
        operand->byte_offset = random() % 3 == 0 ? kMaxBytes : random() % 9999;
        operand->block = random() % 90;
      } else if (std::holds_alternative<trace::OperatorEnd>(entry.event)) {
        entry.event = trace::OperatorEnd{random() % 50};
      } else {
        entry.thread = 1;
      }
    }
    try {
      const TracedGraph traced = graph_from_trace(run.builder.trace());
      REQUIRE(violation(traced.graph).empty());
      REQUIRE(peak_as_recorded(traced) >= peak_at_last_readers(traced.graph));
      ++graphs;
    } catch (const Error& error) {
      REQUIRE(error.kind() == ErrorKind::kInput);
      ++refused;
    }
  }
  CHECK(refused > 50);
  CHECK(graphs > 500);
}
