#include "tests/support/operator_graph.h"

#include "tests/catch.h"
#include "tests/support/trace_builder.h"
#include "tests/trace/random_trace.h"

using namespace berth;
using test::OperatorGraph;
using test::TraceBuilder;
using trace::Access;
using trace::BlockId;

namespace {

// Writes operators down as the libtorch adapter does: arguments at the begin, results at the end.
class Operators {
 public:
  explicit Operators(TraceBuilder& t) : t_(t) {}

  std::uint64_t begin(const std::string& name, std::int64_t sequence = -1,
                      trace::ThreadId thread = 0) {
    return start({.op = ++last_, .name = t_.name(name), .sequence = sequence}, thread);
  }
  std::uint64_t begin_backward(const std::string& name, std::int64_t sequence,
                               trace::ThreadId forward_thread, trace::ThreadId thread) {
    return start({.op = ++last_,
                  .name = t_.name(name),
                  .sequence = sequence,
                  .forward_thread = forward_thread,
                  .backward = true},
                 thread);
  }
  void takes(std::uint64_t op, BlockId block, Access access = Access::kRead) {
    operand(op, block, access, false);
  }
  void gives(std::uint64_t op, BlockId block, Access access = Access::kWrite) {
    operand(op, block, access, true);
  }
  void end(std::uint64_t op, trace::ThreadId thread = 0) { t_.add(trace::OperatorEnd{op}, thread); }

 private:
  std::uint64_t start(const trace::OperatorBegin& begin, trace::ThreadId thread) {
    t_.add(begin, thread);
    return begin.op;
  }
  void operand(std::uint64_t op, BlockId block, Access access, bool output) {
    t_.add(trace::Operand{.op = op, .block = block, .access = access, .output = output});
  }

  TraceBuilder& t_;
  std::uint64_t last_ = 0;
};

std::uint32_t index_of(const OperatorGraph& graph, std::uint64_t op) {
  return static_cast<std::uint32_t>(graph.find_operator(op) - graph.operators().data());
}

using Indices = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("A block knows who made it and read it and last used it", "[trace][operators]") {
  TraceBuilder t;
  Operators ops(t);
  const BlockId weight = t.allocate(400), input = t.allocate(100);
  const auto mm = ops.begin("aten::mm");
  ops.takes(mm, input);
  ops.takes(mm, weight);
  const BlockId hidden = t.allocate(200);
  ops.gives(mm, hidden);
  ops.end(mm);
  const auto relu = ops.begin("aten::relu_");
  ops.takes(relu, hidden, Access::kReadWrite);
  ops.gives(relu, hidden, Access::kRead);
  ops.end(relu);
  const auto sum = ops.begin("aten::sum");
  ops.takes(sum, hidden);
  const BlockId loss = t.allocate(4);
  ops.gives(sum, loss);
  ops.end(sum);
  t.free(hidden);

  const OperatorGraph graph(t.trace());
  REQUIRE(graph.operators().size() == 3);
  const auto* h = graph.find_block(hidden);
  REQUIRE(h != nullptr);
  CHECK(h->bytes == 200);
  CHECK(h->made_by == index_of(graph, mm));
  CHECK(h->requested_in == index_of(graph, mm));
  CHECK(h->read_by == Indices{index_of(graph, relu), index_of(graph, sum)});
  CHECK(h->changed_by == Indices{index_of(graph, relu)});
  CHECK(h->last_used_by == index_of(graph, sum));
  CHECK(h->freed == t.trace().entries.back().tick);
  const auto* w = graph.find_block(weight);
  CHECK_FALSE(w->made_by);
  CHECK(w->read_by == Indices{index_of(graph, mm)});
  CHECK(graph.find_block(loss)->last_used_by == index_of(graph, sum));
  CHECK(graph.find_operator(mm)->arguments.size() == 2);
  CHECK(graph.find_operator(mm)->results.size() == 1);
  CHECK(graph.find_block(999) == nullptr);
  CHECK(graph.find_operator(999) == nullptr);
}

TEST_CASE("The innermost operator that fills a block made it and not who made room for it",
          "[trace][operators]") {
  TraceBuilder t;
  Operators ops(t);
  const auto zeros = ops.begin("aten::zeros");
  const auto empty = ops.begin("aten::empty.memory_format");
  const BlockId block = t.allocate(64);
  ops.gives(empty, block);
  ops.end(empty);
  const auto zero = ops.begin("aten::zero_");
  ops.takes(zero, block, Access::kReadWrite);
  ops.gives(zero, block, Access::kRead);
  ops.end(zero);
  ops.gives(zeros, block);
  ops.end(zeros);
  const OperatorGraph graph(t.trace());
  const auto* b = graph.find_block(block);
  CHECK(b->made_by == index_of(graph, zero));
  CHECK(b->requested_in == index_of(graph, empty));
  CHECK(b->read_by.empty());
  CHECK(b->changed_by.empty());
  CHECK(graph.find_operator(zero)->parent == index_of(graph, zeros));
  CHECK(graph.find_operator(empty)->parent == index_of(graph, zeros));
  CHECK_FALSE(graph.find_operator(zeros)->parent);
}

TEST_CASE("A backward operator and all within it link to the forward one that caused it",
          "[trace][operators]") {
  TraceBuilder t;
  Operators ops(t);
  const auto linear = ops.begin("aten::linear", 7, 0);
  const auto addmm = ops.begin("aten::addmm", 7, 0);  // the last to begin with the number
  ops.end(addmm);
  ops.end(linear);
  const auto other = ops.begin("aten::relu", 8, 0);
  ops.end(other);
  const auto same_number = ops.begin("aten::mul", 7, 3);  // of another thread
  ops.end(same_number, 3);
  const auto node = ops.begin_backward("AddmmBackward0", 7, 0, 1);
  const auto mm = ops.begin_backward("aten::mm", 8, 0, 1);  // its number counts other nodes
  ops.end(mm, 1);
  ops.end(node, 1);
  const auto unknown = ops.begin_backward("AccumulateGrad", 99, 0, 1);
  ops.end(unknown, 1);

  const OperatorGraph graph(t.trace());
  CHECK(graph.find_operator(node)->forward == index_of(graph, addmm));
  CHECK(graph.find_operator(mm)->forward == index_of(graph, addmm));
  CHECK(graph.find_operator(addmm)->backward == Indices{index_of(graph, node)});
  CHECK(graph.find_operator(other)->backward.empty());
  CHECK_FALSE(graph.find_operator(unknown)->forward);
  CHECK(graph.find_operator(mm)->parent == index_of(graph, node));
}

TEST_CASE("What was there before the recording is only changed", "[trace][operators]") {
  TraceBuilder t;
  Operators ops(t);
  const BlockId weight = 77;  // no request carries it
  const auto add = ops.begin("aten::add_");
  ops.takes(add, weight, Access::kReadWrite);
  ops.end(add);
  t.add(trace::Role{weight, trace::RoleKind::kUnknown});
  t.add(trace::Role{weight, trace::RoleKind::kParameter});
  const OperatorGraph graph(t.trace());
  const auto* w = graph.find_block(weight);
  REQUIRE(w != nullptr);
  CHECK_FALSE(w->born);
  CHECK_FALSE(w->made_by);
  CHECK(w->changed_by == Indices{index_of(graph, add)});
  CHECK(w->read_by == Indices{index_of(graph, add)});
  CHECK(w->role == trace::RoleKind::kParameter);
}

TEST_CASE("Operators without an end or a begin do no harm", "[trace][operators]") {
  TraceBuilder t;
  Operators ops(t);
  const auto open = ops.begin("aten::mm");
  ops.end(55);
  ops.takes(66, 1);
  const OperatorGraph graph(t.trace());
  REQUIRE(graph.operators().size() == 1);
  CHECK(graph.find_operator(open)->first_tick == graph.find_operator(open)->last_tick);
  const OperatorGraph random(test::random_trace(GENERATE(1, 2, 3), 3000));
  for (const auto& block : random.blocks()) {
    CHECK(std::is_sorted(block.read_by.begin(), block.read_by.end()));
    if (block.made_by) CHECK(*block.made_by < random.operators().size());
  }
}
