#include "csrc/graph/from_trace.h"

#include "csrc/core/check.h"
#include "csrc/graph/edges.h"
#include "tests/graph/traced.h"

#include <algorithm>

using namespace berth;
using namespace berth::graph;
using namespace berth::test;
using trace::Access;
using trace::BlockId;
using trace::RoleKind;

namespace {

constexpr Bytes kK = 1024;

OperatorId find(const Graph& graph, const std::string& name) {
  const auto found = std::find_if(graph.operators.begin(), graph.operators.end(),
                                  [&](const Operator& op) { return op.name == name; });
  REQUIRE(found != graph.operators.end());
  return static_cast<OperatorId>(found - graph.operators.begin());
}
const Alternative& alternative_of(const Graph& graph, const std::string& name) {
  return graph.operators[find(graph, name)].alternatives[0];
}
std::vector<std::string> names_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Operator& op : graph.operators) names.push_back(op.name);
  return names;
}
using Names = std::vector<std::string>;
using Values = std::vector<ValueId>;

std::string error_of(const Trace& trace) {
  try {
    (void)graph_from_trace(trace);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kInput);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("A training step has its operators, phases, roles and links", "[graph][trace]") {
  Recording run;
  const BlockId weight = run.request(4 * kK), batch = run.request(kK);
  run.role(weight, RoleKind::kParameter);
  const TracedGraph traced = graph_of(run, [&](int) {
    const BlockId hidden = run.make("aten::mm", {batch, weight}, 2 * kK, {.sequence = 7});
    run.role(hidden, RoleKind::kActivation);
    const BlockId loss = run.make("aten::sum", {hidden}, 8, {.sequence = 8});
    run.role(loss, RoleKind::kActivation);
    const BlockId seed = run.make("aten::ones_like", {loss}, 8);
    run.role(seed, RoleKind::kActivation);
    const auto engine =
        run.begin("autograd::engine::evaluate_function: MmBackward0", {.backward = true});
    const auto node = run.begin("MmBackward0", {.sequence = 8, .backward = true});
    run.takes(node, seed);
    const BlockId back = run.make("aten::expand_copy", {seed}, 2 * kK, {.backward = true});
    run.end(node);
    run.end(engine);
    const auto second = run.begin("MmBackward0", {.sequence = 7, .backward = true});
    run.takes(second, back);
    const BlockId gradient =
        run.make("aten::mm_backward", {back, batch}, 4 * kK, {.backward = true});
    run.role(gradient, RoleKind::kGradient);
    run.end(second);
    run.change("aten::add_", weight, {gradient});
    run.free({hidden, loss, seed, back, gradient});
  });
  const Graph& graph = traced.graph;
  CHECK(names_of(graph) == Names{"aten::mm", "aten::sum", "aten::ones_like", "aten::expand_copy",
                                 "aten::mm_backward", "aten::add_"});
  std::vector<Phase> phases;
  for (const Operator& op : graph.operators) phases.push_back(op.phase);
  CHECK(phases == std::vector<Phase>{Phase::kForward, Phase::kLoss, Phase::kLoss, Phase::kBackward,
                                     Phase::kBackward, Phase::kOptimizer});
  CHECK(graph.operators[3].forward == OperatorId{1});
  CHECK(graph.operators[4].forward == OperatorId{0});
  CHECK_FALSE(graph.operators[5].forward);
  CHECK(graph.operators[5].traits.changes_state);
  CHECK_FALSE(graph.operators[4].traits.changes_state);
  CHECK(graph.storages[0] == Storage{4 * kK, StorageClass::kResident, RoleKind::kParameter});
  CHECK(graph.storages[1] == Storage{kK, StorageClass::kResident, RoleKind::kInput});
  CHECK(graph.storages[2] == Storage{2 * kK, StorageClass::kStep, RoleKind::kActivation});
  CHECK(graph.storages[3].bytes == 64);  // as the run rounds
  CHECK(alternative_of(graph, "aten::add_").writes == Values{{0, 1}});
  CHECK(alternative_of(graph, "aten::mm").ns == 10);
  CHECK(graph.order == std::vector<OperatorId>{0, 1, 2, 3, 4, 5});
  CHECK(traced.recorded_peak == 5 * kK + 2 * kK + 128 + 2 * kK + 4 * kK);
  CHECK(peak_as_recorded(traced) == traced.recorded_peak);
  CHECK(peak_at_last_readers(graph) == 5 * kK + 2 * kK + 4 * kK);  // gradient beside `back`
}

TEST_CASE("What changes a block in place makes its next version from the one before",
          "[graph][trace]") {
  Recording run;
  const BlockId input = run.request(kK);
  const TracedGraph traced = graph_of(run, [&](int) {
    const BlockId x = run.make("aten::mul", {input}, kK);
    run.change("aten::relu_", x);
    const BlockId y = run.make("aten::sum", {x}, 64);
    run.free({x, y});
  });
  const Graph& graph = traced.graph;
  CHECK(alternative_of(graph, "aten::mul").writes == Values{{1, 1}});
  CHECK(alternative_of(graph, "aten::relu_").reads == std::vector<Read>{{{1, 1}, 0, kK}});
  CHECK(alternative_of(graph, "aten::relu_").writes == Values{{1, 2}});
  CHECK(alternative_of(graph, "aten::sum").reads == std::vector<Read>{{{1, 2}, 0, kK}});
  CHECK_FALSE(graph.operators[find(graph, "aten::relu_")].traits.changes_state);
}

TEST_CASE("Views are no operators and their readers read a part of the base", "[graph][trace]") {
  Recording run;
  const BlockId input = run.request(kK);
  const TracedGraph traced = graph_of(run, [&](int) {
    const BlockId base = run.make("aten::mul", {input}, 4 * kK);
    run.view("aten::narrow", base, {base, kK, 2 * kK});
    run.view("aten::select", {base, kK, 2 * kK}, {base, 2 * kK, 256});  // of a view
    const BlockId part = run.make("aten::exp", {{base, 2 * kK, 256}}, 256);
    // All of a large tensor, out of the few bytes of one that was expanded.
    run.view("aten::expand", {base, 0, 64}, {base, 0, 64});
    const BlockId wide = run.make("aten::clone", {{base, 0, 64}}, 8 * kK);
    run.change("aten::t_", base);
    run.free({base, part, wide});
  });
  const Graph& graph = traced.graph;
  CHECK(names_of(graph) == Names{"aten::mul", "aten::exp", "aten::clone"});
  CHECK(alternative_of(graph, "aten::exp").reads == std::vector<Read>{{{1, 1}, 2 * kK, 256}});
  CHECK(alternative_of(graph, "aten::clone").reads == std::vector<Read>{{{1, 1}, 0, 64}});
  CHECK(peak_as_recorded(traced) == traced.recorded_peak);
}

TEST_CASE("A place for the result is read where it is written in part", "[graph][trace]") {
  Recording run;
  const BlockId input = run.request(kK), buffer = run.request(2 * kK);
  const TracedGraph traced = graph_of(run, [&](int) {
    const auto whole = run.begin("aten::cat");
    run.takes(whole, input);
    run.takes(whole, buffer, Access::kWrite);
    run.change("aten::copy_", buffer, {input});  // inside: sees what the outer one wrote
    run.gives(whole, buffer, Access::kRead);
    run.end(whole);
    const auto half = run.begin("aten::exp");
    run.takes(half, input);
    run.takes(half, {buffer, kK, kK}, Access::kWrite);
    run.gives(half, {buffer, kK, kK}, Access::kRead);
    run.end(half);
    const BlockId y = run.make("aten::sum", {buffer}, 64);
    run.free(y);
  });
  const Graph& graph = traced.graph;
  CHECK(alternative_of(graph, "aten::cat").reads == std::vector<Read>{{{0, 0}, 0, kK}});
  CHECK(alternative_of(graph, "aten::cat").writes == Values{{1, 1}});
  CHECK(alternative_of(graph, "aten::exp").reads ==
        std::vector<Read>{{{0, 0}, 0, kK}, {{1, 1}, 0, 2 * kK}});
  CHECK(alternative_of(graph, "aten::exp").writes == Values{{1, 2}});
}

TEST_CASE("Gradients that add up are written in place", "[graph][trace]") {
  Recording run;
  const BlockId weight = run.request(kK);
  run.role(weight, RoleKind::kParameter);
  const TracedGraph traced = graph_of(run, [&](int) {
    const auto node = run.begin("AddmmBackward0", {.backward = true});
    const BlockId sum = run.make("aten::mm", {weight}, kK, {.backward = true});
    run.role(sum, RoleKind::kGradient);
    const BlockId next = run.make("aten::bmm", {weight}, kK, {.backward = true});
    run.end(node);
    const auto engine = run.begin(
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", {.backward = true});
    const auto accumulate = run.begin("torch::autograd::AccumulateGrad", {.backward = true});
    run.takes(accumulate, next);
    run.change("aten::add_", sum, {next});
    run.end(accumulate);
    run.end(engine);
    run.free(next);
    run.change("aten::addcdiv_", weight, {sum});
    run.free(sum);
  });
  const Graph& graph = traced.graph;
  CHECK(alternative_of(graph, "aten::add_").reads ==
        std::vector<Read>{{{1, 1}, 0, kK}, {{2, 1}, 0, kK}});
  CHECK(alternative_of(graph, "aten::add_").writes == Values{{1, 2}});
  CHECK(alternative_of(graph, "aten::addcdiv_").reads ==
        std::vector<Read>{{{0, 0}, 0, kK}, {{1, 2}, 0, kK}});
}

TEST_CASE("A weight is updated after all that read it", "[graph][trace]") {
  Recording run;
  const BlockId tied = run.request(kK);
  const TracedGraph traced = graph_of(run, [&](int) {
    const BlockId embedded = run.make("aten::embedding", {tied}, kK);
    const BlockId gradient = run.make("aten::sum", {embedded}, kK);
    const BlockId scores = run.make("aten::linear", {tied}, kK);
    run.change("aten::sub_", tied, {gradient});
    run.free({embedded, scores, gradient});
  });
  const Edges edges = edges_of(traced.graph);
  const auto has = [&](OperatorId earlier, OperatorId later) {
    return std::find(edges.order.begin(), edges.order.end(), std::pair(earlier, later)) !=
           edges.order.end();
  };
  CHECK(has(0, 3));
  CHECK(has(2, 3));
  CHECK_FALSE(has(1, 2));
}

TEST_CASE("An optimizer over a list of tensors is one operator", "[graph][trace]") {
  Recording run;
  std::vector<BlockId> weights, state;
  for (int k = 0; k < 40; ++k) {
    weights.push_back(run.request(kK));
    state.push_back(run.request(kK));
    run.role(state.back(), RoleKind::kOptimizer);
  }
  const TracedGraph traced = graph_of(run, [&](int) {
    const BlockId gradient = run.make("aten::mul", {weights[0]}, kK);
    const auto op = run.begin("aten::_foreach_addcmul_");
    for (const BlockId one : weights) run.takes(op, one, Access::kReadWrite);
    for (const BlockId one : state) run.takes(op, one);
    for (int k = 0; k < 40; ++k) run.takes(op, gradient);
    for (const BlockId one : weights) {
      const auto inner = run.begin("aten::addcmul_");
      run.takes(inner, one, Access::kReadWrite);
      run.gives(inner, one, Access::kRead);
      run.end(inner);
    }
    run.end(op);
    run.free(gradient);
  });
  REQUIRE(traced.graph.operators.size() == 2);
  const Alternative& one = alternative_of(traced.graph, "aten::_foreach_addcmul_");
  CHECK(one.reads.size() == 81);
  CHECK(one.writes.size() == 40);
  CHECK(traced.graph.operators[1].phase == Phase::kOptimizer);
}

TEST_CASE("What is freed late is held, and a planner may free it at its last reader",
          "[graph][trace]") {
  Recording run;
  const BlockId input = run.request(kK);
  BlockId kept = 0;
  const TracedGraph traced = graph_of(run, [&](int) {
    const BlockId x = run.make("aten::mul", {input}, 16 * kK);
    const BlockId y = run.make("aten::sum", {x}, kK);
    const BlockId z = run.make("aten::exp", {y}, 8 * kK);
    run.free(x);  // 5 entries after the end of aten::sum
    run.free({y, z});
    kept = x;
  });
  const auto x = std::find(traced.blocks.begin(), traced.blocks.end(), kept);
  REQUIRE(x != traced.blocks.end());
  const TracedGraph::Lifetime lifetime =
      traced.lifetimes[static_cast<std::size_t>(x - traced.blocks.begin())];
  CHECK(lifetime.birth == 1);
  CHECK(lifetime.end >= 6);  // while aten::exp ran, at moment 5, it was there
  CHECK(traced.recorded_peak == kK + 16 * kK + kK + 8 * kK);
  CHECK(peak_as_recorded(traced) == traced.recorded_peak);
  CHECK(peak_at_last_readers(traced.graph) == kK + 16 * kK + kK);
  // begin, argument, request, result and end of aten::exp; then the frees of all three
  CHECK(traced.held == 16 * kK * 6 + kK * 2 + 8 * kK * 3);
}

TEST_CASE("A block that no operator takes is read by the one that ran at its free",
          "[graph][trace]") {
  Recording run;
  const BlockId input = run.request(kK);
  const TracedGraph traced = graph_of(run, [&](int) {
    const auto op = run.begin("aten::rnn");
    run.takes(op, input);
    const BlockId hidden = run.request(2 * kK);  // kept by the operator's state
    const BlockId y = run.request(kK);
    run.gives(op, y);
    run.end(op);
    const BlockId z = run.make("aten::rnn_backward", {y}, kK);
    run.free({hidden, y, z});
  });
  const Graph& graph = traced.graph;
  CHECK(alternative_of(graph, "aten::rnn").workspace == 0);
  CHECK(alternative_of(graph, "aten::rnn").writes == Values{{1, 1}, {2, 1}});
  CHECK(alternative_of(graph, "aten::rnn_backward").reads ==
        std::vector<Read>{{{2, 1}, 0, kK}, {{1, 1}, 0, 2 * kK}});
}

TEST_CASE("What an operator needs beside its results is its workspace", "[graph][trace]") {
  Recording run;
  const BlockId input = run.request(kK);
  const TracedGraph traced = graph_of(run, [&](int) {
    const auto op = run.begin("aten::conv2d");
    run.takes(op, input);
    const BlockId packed = run.make("aten::contiguous", {input}, 4 * kK);
    const BlockId columns = run.request(8 * kK);
    run.free(packed);
    const BlockId more = run.request(kK);
    run.free({columns, more});
    const BlockId y = run.request(2 * kK);
    run.gives(op, y);
    run.end(op);
    run.free(y);
  });
  REQUIRE(names_of(traced.graph) == Names{"aten::conv2d"});
  const Alternative& one = alternative_of(traced.graph, "aten::conv2d");
  CHECK(one.workspace == 12 * kK - 2 * kK);  // the result takes the place of what is gone by then
  CHECK(one.writes == Values{{1, 1}});
  CHECK(traced.graph.storages.size() == 2);
  CHECK(traced.recorded_peak == 13 * kK);
  CHECK(peak_as_recorded(traced) == 13 * kK);
}

TEST_CASE("Room belongs to who first writes it, else to who asked for it", "[graph][trace]") {
  Recording run;
  const BlockId input = run.request(kK);
  const TracedGraph traced = graph_of(run, [&](int) {
    const BlockId room = run.make("aten::empty", {}, 4 * kK);
    const BlockId x = run.make("aten::exp", {input}, 8 * kK);
    run.free(x);
    run.change("aten::fill_", room);
    const BlockId filled = run.make("aten::empty", {}, kK);  // by the host
    const BlockId number = run.request(8);                   // without an operator
    const BlockId y = run.make("aten::add", {room, filled, number}, kK);
    run.free({room, filled, number, y});
  });
  const Graph& graph = traced.graph;
  CHECK(names_of(graph) ==
        Names{"aten::exp", "aten::fill_", "aten::empty", "outside of operators", "aten::add"});
  CHECK(alternative_of(graph, "aten::fill_").writes == Values{{1, 1}});
  CHECK(alternative_of(graph, "aten::fill_").reads.empty());
  CHECK(alternative_of(graph, "aten::empty").writes.size() == 1);
  CHECK(alternative_of(graph, "aten::add").reads.size() == 3);
  // As recorded the room is there while aten::exp runs, as planned it is not.
  CHECK(traced.recorded_peak == kK + 4 * kK + 8 * kK);
  CHECK(peak_as_recorded(traced) == traced.recorded_peak);
  CHECK(peak_at_last_readers(graph) == kK + 8 * kK);
}

TEST_CASE("What is there at the beginning only is an input", "[graph][trace]") {
  Recording run;
  BlockId before = run.request(kK);
  const TracedGraph traced = graph_of(run, [&](int) {
    const BlockId y = run.make("aten::exp", {before}, kK);
    run.free(before);
    before = y;
  });
  const Graph& graph = traced.graph;
  REQUIRE(graph.storages.size() == 2);
  CHECK(graph.storages[0].kind == StorageClass::kInput);
  CHECK(graph.storages[1].kind == StorageClass::kStep);
  CHECK(alternative_of(graph, "aten::exp").reads == std::vector<Read>{{{0, 0}, 0, kK}});
  CHECK(traced.lifetimes[0].birth == 0);
  CHECK(traced.lifetimes[1].end == 3);
}

TEST_CASE("Times are medians over the recorded steps", "[graph][trace]") {
  Recording run;
  const BlockId input = run.request(kK);
  std::uint64_t timed = 0;
  const TracedGraph traced = graph_of(run, [&](int number) {
    const auto op = run.begin("aten::exp");
    run.takes(op, input);
    run.spend(std::vector<std::uint64_t>{9000, 30, 10, 20}[static_cast<std::size_t>(number)]);
    const auto inner = run.begin("aten::exp_out");
    run.takes(inner, input);
    run.spend(5);
    run.end(inner);
    run.end(op);
    const BlockId y = run.make("aten::sum", {input}, 64);
    // The device's time counts where it is known, each part once.
    timed = run.begin("aten::mm");
    run.takes(timed, y);
    const auto kernel = run.begin("aten::addmm");
    run.takes(kernel, y);
    run.spend(1000);
    run.end(kernel);
    run.end(timed);
    run.add(trace::DeviceTime{.op = timed, .duration_ns = 40});
    run.add(trace::DeviceTime{.op = timed, .duration_ns = 2});
    run.add(trace::DeviceTime{.op = kernel, .duration_ns = 40});
    run.free(y);
  });
  CHECK(traced.steps == 4);
  CHECK(alternative_of(traced.graph, "aten::exp").ns ==
        25);  // of 9005, 35, 15 and 25 the lower middle
  CHECK(alternative_of(traced.graph, "aten::mm").ns == 42);
}

TEST_CASE("What no role tells goes with who reads it", "[graph][trace]") {
  Recording run;
  const BlockId batch = run.request(kK), state = run.request(kK);
  run.role(batch, RoleKind::kInput);
  run.role(state, RoleKind::kOptimizer);
  const TracedGraph traced = graph_of(run, [&](int) {
    const BlockId drawn = run.make("aten::rand", {}, kK);
    const BlockId leaf = run.make("aten::mul", {batch, drawn}, kK);
    run.role(leaf, RoleKind::kParameter);  // asks for a gradient, and is no weight
    const BlockId rate = run.make("aten::full", {}, 64);
    const BlockId twice = run.make("aten::exp", {rate}, 64);
    const BlockId norm = run.make("aten::norm", {batch}, 64);  // of the forward part all the same
    run.change("aten::mul_", state, {twice, norm});
    run.read("aten::item", {rate});
    run.free({drawn, leaf, rate, twice, norm});
  });
  std::vector<Phase> phases;
  for (const Operator& op : traced.graph.operators) phases.push_back(op.phase);
  CHECK(phases == std::vector<Phase>{Phase::kForward, Phase::kForward, Phase::kOptimizer,
                                     Phase::kOptimizer, Phase::kForward, Phase::kOptimizer,
                                     Phase::kOptimizer});
}

TEST_CASE("Random numbers keep their order, and what comes after a wait of the host stays there",
          "[graph][trace]") {
  Recording run;
  const BlockId input = run.request(kK);
  const TracedGraph traced = graph_of(run, [&](int) {
    const BlockId a = run.make("aten::bernoulli", {input}, kK, {.random = true});
    run.read("aten::item", {input});
    const BlockId b = run.make("aten::rand_like", {input}, kK, {.random = true});
    run.read("aten::_local_scalar_dense", {a});
    const BlockId number = run.request(64);  // that the host makes of what it was told
    const BlockId c = run.make("aten::mul", {number}, kK);
    run.free({a, b, c, number});
  });
  const Graph& graph = traced.graph;
  CHECK(graph.operators[0].traits.random);
  CHECK(graph.operators[1].traits.host_sync);
  CHECK(names_of(graph) == Names{"aten::bernoulli", "aten::item", "aten::rand_like",
                                 "aten::_local_scalar_dense", "outside of operators", "aten::mul"});
  using Edge = std::pair<OperatorId, OperatorId>;
  CHECK(graph.control == std::vector<Edge>{{1, 2}, {0, 2}, {1, 3}, {3, 4}});
}

TEST_CASE("Running statistics are written though the operator does not say so", "[graph][trace]") {
  Recording run;
  const BlockId input = run.request(kK), mean = run.request(64);
  const TracedGraph traced = graph_of(run, [&](int) {
    const auto op = run.begin("aten::batch_norm");
    run.takes(op, input);
    run.add(trace::Operand{.op = op, .block = mean, .bytes = 64, .position = 3});
    const BlockId y = run.request(kK);
    run.gives(op, y);
    run.end(op);
    run.free(y);
  });
  const Alternative& one = alternative_of(traced.graph, "aten::batch_norm");
  CHECK(one.writes == Values{{2, 1}, {1, 1}});
  CHECK(traced.graph.operators[0].traits.changes_state);
}

TEST_CASE("A norm that trains may run again: no result depends on its running statistics",
          "[graph][trace]") {
  // Two norms that share them, and what else reads them.
  const auto norms = [](bool trains, bool read_besides) {
    Recording run;
    const BlockId input = run.request(kK), mean = run.request(64);
    return graph_of(run, [&](int) {
      std::vector<BlockId> made = {input};
      for (int norm = 0; norm < 2; ++norm) {
        const auto op = run.begin("aten::native_batch_norm");
        run.takes(op, made.back());
        run.add(trace::Operand{.op = op, .block = mean, .bytes = 64, .position = 3});
        const BlockId saved = run.request(64), y = run.request(kK);
        run.gives(op, y);
        trace::Operand statistics{.op = op, .block = saved, .bytes = trains ? Bytes{64} : 0};
        statistics.position = 1;
        statistics.output = true;
        statistics.access = Access::kWrite;
        run.add(statistics);
        run.end(op);
        made.insert(made.end(), {saved, y});
      }
      if (read_besides) run.free(run.make("aten::mul", {mean}, 64));
      run.free({made.begin() + 1, made.end()});
    });
  };
  const Graph graph = norms(true, false).graph;
  for (const Operator& norm : graph.operators) {
    CHECK_FALSE(norm.traits.only_once());
    CHECK(norm.alternatives[0].reads.size() == 1);
  }
  // They are written in turn all the same.
  CHECK(graph.control == std::vector<std::pair<OperatorId, OperatorId>>{{0, 1}});
  for (const auto& [trains, read_besides] : {std::pair(false, false), std::pair(true, true)}) {
    const Graph other = norms(trains, read_besides).graph;
    CHECK(other.operators[0].traits.changes_state);
    CHECK(other.operators[1].traits.changes_state);
  }
}

TEST_CASE("Other algorithms are alternatives where none is better in both", "[graph][trace]") {
  Recording run;
  const BlockId input = run.request(kK);
  const TracedGraph traced = graph_of(run, [&](int number) {
    const auto op = run.begin("aten::cudnn_convolution");
    run.takes(op, input);
    const BlockId workspace = run.request(2 * kK);
    run.spend(100);
    const auto tries = [&](std::uint32_t algorithm, std::uint64_t ns, Bytes bytes, bool chosen) {
      run.add(trace::Alternative{.op = op,
                                 .key = 5,
                                 .algorithm = algorithm,
                                 .workspace_bytes = bytes,
                                 .duration_ns = ns,
                                 .chosen = chosen});
    };
    if (number == 0) {  // they are tried once
      tries(0, 90, 0, false);
      tries(1, 30, 16 * kK, false);
      tries(3, 95, kK, false);      // beaten by the first
      tries(4, 70, 4 * kK, false);  // and this by the recorded one
    }
    tries(2, 60, 2 * kK, true);
    const BlockId y = run.request(kK);
    run.free(workspace);
    run.gives(op, y);
    run.end(op);
    run.free(y);
  });
  const std::vector<Alternative>& alternatives = traced.graph.operators[0].alternatives;
  std::vector<std::pair<std::uint64_t, Bytes>> found;
  Names algorithms;
  for (const Alternative& one : alternatives) {
    algorithms.push_back(one.algorithm);
    found.emplace_back(one.ns, one.workspace);
    CHECK(one.reads == alternatives[0].reads);
    CHECK(one.writes == alternatives[0].writes);
  }
  // 40 ns are not the algorithm's own.
  CHECK(found ==
        std::vector<std::pair<std::uint64_t, Bytes>>{{100, 2 * kK}, {70, 16 * kK}, {130, 0}});
  CHECK(algorithms == Names{"2", "1", "0"});
}

TEST_CASE("What is no recording of operators says how to make one", "[graph][trace]") {
  test::TraceBuilder requests;
  for (int step = 0; step < 4; ++step) {
    requests.mark();
    requests.free(requests.allocate(kK));
  }
  CHECK(error_of(requests.trace()) ==
        "the trace has requests but no operators: `berth record --operators` records them");
  Recording once;
  once.make("aten::ones", {}, kK);
  CHECK_THAT(error_of(once.builder.trace()),
             Catch::Matchers::StartsWith("no step can be cut out of the trace: "));
  Recording twice;
  const BlockId x = twice.request(kK);
  for (int step = 0; step < 4; ++step) {
    twice.mark();
    twice.free(twice.make("aten::exp", {x}, kK));
  }
  for (trace::Entry& entry : twice.builder.trace().entries)
    if (auto* begin = std::get_if<trace::OperatorBegin>(&entry.event)) begin->op = 1;
  CHECK_THAT(error_of(twice.builder.trace()),
             Catch::Matchers::StartsWith("operator 1 of the trace begins twice"));
}
