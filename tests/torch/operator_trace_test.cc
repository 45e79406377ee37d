// The operator graph of a GPT's training step, rebuilt from its trace: which operator made, read,
// changed and last used each block. Once on the CPU and once on CUDA, on the stand-in.
#include "csrc/trace/file.h"
#include "tests/catch.h"
#include "tests/support/operator_graph.h"
#include "tests/support/run_program.h"
#include "tests/support/temporary_folder.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

using namespace berth::trace;
using berth::Trace;

namespace {

using Graph = berth::test::OperatorGraph;

constexpr int kLayers = 4, kSteps = 4;
// Per layer two norms, four projections, each with a bias; two embeddings, the last norm.
constexpr std::size_t kParameters = kLayers * (2 * 2 + 4 * 2) + 2 + 2;

// One recorded run for all cases: the GPT of bench/train on a made-up text.
struct Run {
  Trace trace;
  Graph graph;
  Tick first = 0, last = 0;  // of the last step

  [[nodiscard]] std::string name(Graph::OperatorIndex op) const {
    return std::string(trace.name(graph.operators()[op].begin.name));
  }
  [[nodiscard]] bool in_step(Tick tick) const { return first < tick && tick < last; }
  // Operators of that name in the last step.
  [[nodiscard]] std::vector<Graph::OperatorIndex> named(std::string_view wanted) const {
    std::vector<Graph::OperatorIndex> result;
    for (Graph::OperatorIndex i = 0; i < graph.operators().size(); ++i)
      if (in_step(graph.operators()[i].first_tick) && name(i) == wanted) result.push_back(i);
    return result;
  }
  [[nodiscard]] std::vector<const Graph::Block*> with_role(RoleKind role) const {
    std::vector<const Graph::Block*> result;
    for (const Graph::Block& block : graph.blocks())
      if (block.role == role) result.push_back(&block);
    return result;
  }
  // Names of those of `operators` that ran in the last step.
  [[nodiscard]] std::set<std::string> names(
      const std::vector<Graph::OperatorIndex>& operators) const {
    std::set<std::string> result;
    for (const auto op : operators)
      if (in_step(graph.operators()[op].first_tick)) result.insert(name(op));
    return result;
  }
};

Trace record_gpt() {
  const berth::test::TemporaryFolder folder;
  std::ofstream text(folder / "text.txt");
  for (int i = 0; i < 2000; ++i) text << static_cast<char>('a' + i * i % 23) << (i % 7 ? "" : "\n");
  text.close();
#ifdef BERTH_TEST_STANDIN
  std::vector<std::string> command = {BERTH_TEST_STANDIN, BERTH_TEST_TRAIN, "--device", "cuda"};
#else
  std::vector<std::string> command = {BERTH_TEST_TRAIN};
#endif
  command.insert(command.end(),
                 {"--model", "gpt", "--batch", "1", "--steps", std::to_string(kSteps), "--warmup",
                  "0", "--threads", "1", "--data", folder.path(), "--quiet"});
  const auto run = berth::test::run_program(command, {{"BERTH_MODE", "record"},
                                                      {"BERTH_RECORD", "operators"},
                                                      {"BERTH_TRACE", folder / "gpt.trace"}});
  REQUIRE(run.err == "");
  REQUIRE(run.exit_code == 0);
  return berth::read_trace(folder / "gpt.trace");
}

const Run& gpt() {
  static const Run run = [] {
    Trace trace = record_gpt();
    Graph graph(trace);
    Run made{.trace = std::move(trace), .graph = std::move(graph)};
    std::vector<Tick> marks;
    for (const Entry& entry : made.trace.entries)
      if (std::holds_alternative<StepMark>(entry.event)) marks.push_back(entry.tick);
    REQUIRE(marks.size() == kSteps);
    made.first = marks[kSteps - 2];
    made.last = marks[kSteps - 1];
    return made;
  }();
  return run;
}

}  // namespace

TEST_CASE("Operators nest in time and end", "[operators]") {
  const auto operators = gpt().graph.operators();
  REQUIRE(operators.size() > 1000);
  for (const auto& op : operators) {
    REQUIRE(op.first_tick < op.last_tick);
    REQUIRE(op.begin_ns <= op.end_ns);
    if (!op.parent) continue;
    REQUIRE(operators[*op.parent].first_tick < op.first_tick);
    REQUIRE(op.last_tick < operators[*op.parent].last_tick);
  }
}

TEST_CASE("Every block of a step is asked for and made in an operator", "[operators]") {
  int blocks = 0;
  for (const auto& block : gpt().graph.blocks()) {
    if (!block.born || !gpt().in_step(*block.born)) continue;
    ++blocks;
    REQUIRE(block.requested_in.has_value());
    REQUIRE(block.made_by.has_value());
    REQUIRE(block.last_used_by.has_value());
  }
  REQUIRE(blocks > 400);
}

TEST_CASE("Roles of a step add up", "[operators][roles]") {
  const Run& run = gpt();
  REQUIRE(run.with_role(RoleKind::kParameter).size() == kParameters);
  // Each step has its gradients; moments of the optimizer are two for each parameter.
  REQUIRE(run.with_role(RoleKind::kGradient).size() == kParameters * kSteps);
  REQUIRE(run.with_role(RoleKind::kOptimizer).size() == kParameters * 2);
}

TEST_CASE("Attention weights live from their softmax to its backward", "[operators]") {
  const Run& run = gpt();
  const auto softmax = run.named("aten::_softmax");
  REQUIRE(softmax.size() == kLayers);
  for (const auto op : softmax) {
    const auto& results = run.graph.operators()[op].results;
    REQUIRE(results.size() == 1);
    const auto* weights = run.graph.find_block(results[0].block);
    REQUIRE(weights->role == RoleKind::kActivation);
    REQUIRE(run.name(*weights->made_by) == "aten::_softmax");
    const auto user = *weights->last_used_by;
    const auto& last = run.graph.operators()[user];
    REQUIRE(run.name(user) == "aten::_softmax_backward_data");
    REQUIRE(last.begin.backward);
    REQUIRE(last.forward == op);
    REQUIRE(weights->changed_by.empty());
    REQUIRE(weights->freed.has_value());
    // 8 heads, 512 x 512 scores each, float.
    REQUIRE(results[0].bytes == 8 * 512 * 512 * 4);
    REQUIRE(run.trace.shapes[results[0].shape] == std::vector<std::int64_t>{1, 8, 512, 512});
    REQUIRE(results[0].element_type == 6);
  }
}

TEST_CASE("Backward operators name the forward operator that caused them", "[operators]") {
  const Run& run = gpt();
  const std::map<std::string, std::string> causes = {
      {"aten::gelu_backward", "aten::gelu"},
      {"aten::native_layer_norm_backward", "aten::native_layer_norm"},
      {"aten::_softmax_backward_data", "aten::_softmax"},
      {"aten::embedding_dense_backward", "aten::embedding"},
      {"aten::nll_loss_backward", "aten::nll_loss_forward"}};
  for (const auto& [backward, forward] : causes) {
    const auto operators = run.named(backward);
    CAPTURE(backward);
    REQUIRE(!operators.empty());
    std::set<Graph::OperatorIndex> caused_by;
    for (const auto one : operators) {
      const auto& op = run.graph.operators()[one];
      REQUIRE(op.begin.backward);
      REQUIRE(op.forward.has_value());
      REQUIRE(run.name(*op.forward) == forward);
      caused_by.insert(*op.forward);
    }
    REQUIRE(caused_by.size() == operators.size());
  }
}

TEST_CASE("A tied weight is read twice in forward and changed by the optimizer alone",
          "[operators]") {
  const Run& run = gpt();
  // The token embedding: what the last of the two embeddings (token, position) and the logits read.
  std::set<BlockId> embedded;
  for (const auto op : run.named("aten::embedding"))
    embedded.insert(run.graph.operators()[op].arguments.at(0).block);
  REQUIRE(embedded.size() == 2);
  int tied = 0;
  for (const BlockId id : embedded) {
    const auto* weight = run.graph.find_block(id);
    REQUIRE(weight->role == RoleKind::kParameter);
    REQUIRE(weight->freed.value_or(run.last) >= run.last);  // with the model, after the last step
    tied += run.names(weight->read_by).contains("aten::mm");
    const auto changed = run.names(weight->changed_by);
    // Weight decay, then the update.
    REQUIRE(changed == std::set<std::string>{"aten::addcdiv_", "aten::mul_.Scalar"});
  }
  REQUIRE(tied == 1);
}

TEST_CASE("Gradients are made in backward and clipped in place and last read by the optimizer",
          "[operators]") {
  const Run& run = gpt();
  int gradients = 0;
  for (const auto* gradient : run.with_role(RoleKind::kGradient)) {
    if (!run.in_step(*gradient->born)) continue;
    ++gradients;
    REQUIRE(run.graph.operators()[*gradient->made_by].begin.backward);
    REQUIRE(run.names(gradient->changed_by).contains("aten::mul_.Tensor"));
    REQUIRE(run.names(gradient->read_by).contains("aten::addcmul_"));
  }
  REQUIRE(gradients == kParameters);
}

TEST_CASE("Moments of the optimizer outlive steps and are changed in each", "[operators]") {
  const Run& run = gpt();
  for (const auto* moment : run.with_role(RoleKind::kOptimizer)) {
    REQUIRE(*moment->born < run.first);
    const auto changed = run.names(moment->changed_by);
    REQUIRE((changed.contains("aten::add_.Tensor") || changed.contains("aten::addcmul_")));
  }
}

TEST_CASE("Text and targets are inputs and drawn at random", "[operators]") {
  const Run& run = gpt();
  for (const auto op : run.named("aten::embedding")) {
    const auto& index = run.graph.operators()[op].arguments.at(1);
    REQUIRE(run.graph.find_block(index.block)->role == RoleKind::kInput);
  }
  std::set<std::string> random;
  for (const auto& op : run.graph.operators())
    if (op.begin.random && run.in_step(op.first_tick))
      random.insert(std::string(run.trace.name(op.begin.name)));
  REQUIRE(random == std::set<std::string>{"aten::randint.generator"});
}

TEST_CASE("Views are no operators, and what takes one takes a part of the base's block",
          "[operators]") {
  const Run& run = gpt();
  for (const char* view : {"aten::view", "aten::transpose.int", "aten::as_strided", "aten::t"})
    REQUIRE(run.named(view).empty());
  // Queries, keys and values are parts of one product.
  int parts = 0;
  for (const auto& op : run.graph.operators()) {
    if (!run.in_step(op.first_tick)) continue;
    for (const auto& one : op.arguments) {
      const auto* block = run.graph.find_block(one.block);
      if (block == nullptr || block->bytes == 0) continue;
      REQUIRE(one.byte_offset + one.bytes <= block->bytes);
      parts += one.byte_offset > 0;
    }
  }
  REQUIRE(parts > 0);
}
