#include "csrc/trace/step.h"

#include "csrc/trace/file.h"
#include "tests/catch.h"
#include "tests/support/trace_builder.h"

#include <random>

using namespace berth;
using Catch::Matchers::Contains;
using test::TraceBuilder;

namespace {

// One step of a small model: three layers forward, three backward, a gradient each that the next
// step's start frees, as `zero_grad` does.
class Model {
 public:
  void step(TraceBuilder& t, bool mark = true) {
    const trace::BlockId input = t.allocate(5000);
    for (const trace::BlockId gradient : gradients_) t.free(gradient);
    gradients_.clear();
    std::vector<trace::BlockId> activations;
    for (int layer = 0; layer < 3; ++layer) {
      const trace::BlockId scratch = t.allocate(700);
      activations.push_back(t.allocate(1000));
      t.free(scratch);
    }
    while (!activations.empty()) {
      gradients_.push_back(t.allocate(300));
      t.free(activations.back());
      activations.pop_back();
    }
    t.free(input);
    if (mark) t.mark();
  }
  void tear_down(TraceBuilder& t) {
    for (const trace::BlockId gradient : gradients_) t.free(gradient);
    gradients_.clear();
  }

 private:
  std::vector<trace::BlockId> gradients_;
};

void erase_marks(Trace& t) {
  std::erase_if(t.entries,
                [](const auto& e) { return std::holds_alternative<trace::StepMark>(e.event); });
}

const StepRequest& request_of(const Step& step, std::uint32_t birth, std::uint32_t lane = 0) {
  for (const StepRequest& r : step.requests) {
    if (r.birth == birth && r.lane == lane) return r;
  }
  throw std::runtime_error("no such request");
}

}  // namespace

TEST_CASE("A step between marks has its requests in order with their lifetimes", "[trace][step]") {
  TraceBuilder t;
  for (int i = 0; i < 4; ++i) {
    const auto a = t.allocate(100);
    const auto b = t.allocate(200);
    t.free(a);
    const auto c = t.allocate(300);
    t.free(c);
    t.free(b);
    t.mark();
  }
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  REQUIRE(step->repeats == 4);
  REQUIRE(step->lanes.size() == 1);
  REQUIRE(step->lanes[0].period == 3);
  REQUIRE(step->lanes[0].marks == std::vector<std::uint32_t>{0});
  REQUIRE(step->requests.size() == 3);
  CHECK(request_of(*step, 0).length == 2);
  CHECK(request_of(*step, 1).length == 2);
  CHECK(request_of(*step, 2).length == 1);
  CHECK(request_of(*step, 2).bytes == 300);
  // The last whole step.
  CHECK(request_of(*step, 0).block == 10);
  CHECK(step->residents.empty());
}

TEST_CASE("A block freed in the next step is an arc", "[trace][step]") {
  TraceBuilder t;
  trace::BlockId kept = 0;
  for (int i = 0; i < 4; ++i) {
    const auto a = t.allocate(100);
    if (kept != 0) t.free(kept);
    const auto b = t.allocate(200);
    kept = t.allocate(300);
    t.free(b);
    t.free(a);
    t.mark();
  }
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  CHECK(request_of(*step, 2).length == 2);  // its own tick and tick 0 of the next step
  CHECK(request_of(*step, 2).planned);
}

TEST_CASE("What lives at both ends of the step is resident", "[trace][step]") {
  TraceBuilder t;
  const auto weight = t.allocate(5000);
  const auto gone = t.allocate(6000);
  Model model;
  model.step(t);
  t.free(gone);
  const auto state = t.allocate(7000);  // made by the first optimizer step
  for (int i = 0; i < 3; ++i) model.step(t);
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  REQUIRE(step->residents.size() == 2);
  CHECK(step->residents[0].block == weight);
  CHECK(step->residents[1].block == state);
  CHECK(step->residents[1].bytes == 7000);
}

TEST_CASE("A program's irregular beginning and end do not matter", "[trace][step]") {
  const bool marks = GENERATE(true, false);
  CAPTURE(marks);
  TraceBuilder t;
  Model model;
  for (int i = 0; i < 7; ++i) (void)t.allocate(10 + i);
  model.step(t);
  (void)t.allocate(9999);  // the first step makes the optimizer's state
  for (int i = 0; i < 5; ++i) model.step(t);
  const auto lost = t.allocate(5000);  // a last step that does not end
  t.free(lost);
  (void)t.allocate(123456);
  model.tear_down(t);
  if (!marks) erase_marks(t.trace());
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  CHECK(step->lanes[0].period == 10);
  CHECK(step->repeats >= 4);
  CHECK(step->lanes[0].marks.size() == (marks ? 1 : 0));
  for (const StepRequest& r : step->requests) CHECK(r.planned);
}

TEST_CASE("A slot lives as long as the longest repeat", "[trace][step]") {
  TraceBuilder t;
  for (int i = 0; i < 6; ++i) {
    const auto a = t.allocate(100);
    const auto b = t.allocate(200);
    if (i != 3) t.free(a);
    const auto c = t.allocate(300);
    if (i == 3) t.free(a);
    t.free(b);
    t.free(c);
    t.mark();
  }
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  CHECK(request_of(*step, 0).length == 3);
}

TEST_CASE("One output kept in twenty steps stays planned", "[trace][step]") {
  TraceBuilder t;
  for (int i = 0; i < 20; ++i) {
    const auto a = t.allocate(100);
    const auto output = t.allocate(200);
    t.free(a);
    (void)t.allocate(300);
    t.free(output + 1);
    if (i != 10) t.free(output);
    t.mark();
  }
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  CHECK(request_of(*step, 1).planned);
  CHECK(request_of(*step, 1).length == 2);
}

TEST_CASE("A block that is never freed again is not planned", "[trace][step]") {
  TraceBuilder t;
  Model model;
  for (int i = 0; i < 6; ++i) {
    (void)t.allocate(8);  // a loss kept for ever
    model.step(t);
  }
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  CHECK_FALSE(request_of(*step, 0).planned);
  CHECK(request_of(*step, 1).planned);
  CHECK(step->unrolled == 1);
}

TEST_CASE("A step is unrolled where large blocks outlive one period", "[trace][step]") {
  TraceBuilder t;
  trace::BlockId before = 0;
  for (int i = 0; i < 6; ++i) {
    const auto small = t.allocate(100);
    const auto large = t.allocate(1 << 20);
    t.free(small);
    const auto other = t.allocate(50);
    t.free(other);
    if (before != 0) t.free(before);  // a step late: two are alive at once
    before = large;
    t.mark();
  }
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  CHECK(step->unrolled == 2);
  CHECK(step->lanes[0].period == 6);
  CHECK(step->lanes[0].marks == std::vector<std::uint32_t>{0, 3});
  CHECK(step->marks_per_period == 2);
  CHECK(request_of(*step, 1).planned);
  CHECK(request_of(*step, 1).length == 5);
  CHECK(request_of(*step, 4).length == 5);

  StepOptions options;
  options.max_unroll = 1;
  const auto single = extract_step(t.trace(), options);
  REQUIRE(single);
  CHECK(single->unrolled == 1);
  CHECK_FALSE(request_of(*single, 1).planned);
}

TEST_CASE("Small blocks that outlive a period do not unroll the step", "[trace][step]") {
  TraceBuilder t;
  trace::BlockId before = 0;
  for (int i = 0; i < 6; ++i) {
    const auto large = t.allocate(1 << 20);
    const auto loss = t.allocate(4);
    if (before != 0) t.free(before);
    before = loss;
    const auto other = t.allocate(50);
    t.free(other);
    t.free(large);
    t.mark();
  }
  // Born second, freed after the second of the next step: longer than a period by a tick.
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  CHECK(step->unrolled == 1);
  CHECK_FALSE(request_of(*step, 1).planned);
}

TEST_CASE("Steps that alternate make one step with all their marks", "[trace][step]") {
  TraceBuilder t;
  for (int i = 0; i < 12; ++i) {
    const auto a = t.allocate(100);
    t.free(a);
    if (i % 3 == 2) {  // the optimizer, every third micro-batch
      const auto b = t.allocate(700);
      t.free(b);
    }
    t.mark();
  }
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  CHECK(step->lanes[0].period == 4);
  CHECK(step->marks_per_period == 3);
  CHECK(step->lanes[0].marks.size() == 3);
}

TEST_CASE("Of several kinds of steps the latest long run is cut out", "[trace][step]") {
  TraceBuilder t;
  const auto steps = [&](int n, Bytes bytes) {
    for (int i = 0; i < n; ++i) {
      const auto a = t.allocate(bytes);
      const auto b = t.allocate(2 * bytes);
      t.free(a);
      t.free(b);
      t.mark();
    }
  };
  steps(10, 100);
  steps(8, 300);
  steps(2, 900);  // too few beside the others
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  CHECK(request_of(*step, 0).bytes == 300);
  CHECK(step->repeats == 8);
}

TEST_CASE("A run whose steps never repeat has no step and says why", "[trace][step]") {
  TraceBuilder t;
  std::mt19937_64 random(1);
  for (int i = 0; i < 50; ++i) {
    std::vector<trace::BlockId> blocks;
    for (int k = 0; k < 20; ++k) blocks.push_back(t.allocate(100 + random() % 100000));
    for (const auto block : blocks) t.free(block);
    t.mark();
  }
  std::string why;
  REQUIRE_FALSE(extract_step(t.trace(), {}, &why));
  REQUIRE_THAT(why, Contains("the run has 50 step marks, but no step between them repeats"));
  REQUIRE_FALSE(extract_step(Trace{}, {}, &why));
  REQUIRE_THAT(why, Contains("the run has no step marks"));
}

TEST_CASE("Two equal steps in sixty are chance and no step", "[trace][step]") {
  TraceBuilder t;
  for (int i = 0; i < 60; ++i) {
    const auto a = t.allocate(100 + (i == 31 ? 30 : i));
    t.free(a);
    t.mark();
  }
  REQUIRE_FALSE(extract_step(t.trace()));
}

TEST_CASE("A request for no bytes makes no tick", "[trace][step]") {
  TraceBuilder t;
  for (int i = 0; i < 4; ++i) {
    const auto a = t.allocate(100);
    t.free(t.allocate(0));
    const auto b = t.allocate(200);
    t.free(a);
    t.free(b);
    t.mark();
  }
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  CHECK(step->lanes[0].period == 2);
  CHECK(request_of(*step, 0).length == 2);
}

TEST_CASE("Without marks a step begins where least is alive", "[trace][step]") {
  TraceBuilder t;
  Model model;
  for (int i = 0; i < 6; ++i) {
    const auto large = t.allocate(1 << 20);
    model.step(t, /*mark=*/false);
    t.free(large);
  }
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  CHECK(step->marks_per_period == 0);
  CHECK(request_of(*step, 0).bytes == 1 << 20);
  CHECK(step->lanes[0].period == 11);
}

TEST_CASE("A lane that does not repeat with the others is left out", "[trace][step][lanes]") {
  const bool marks = GENERATE(true, false);
  TraceBuilder t;
  Model model;
  std::mt19937_64 random(2);
  for (int i = 0; i < 8; ++i) {
    model.step(t, marks);
    for (std::uint64_t k = random() % 4 + 1; k != 0; --k) t.free(t.allocate(random() % 90000, 5));
  }
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  REQUIRE(step->lanes.size() == 1);
  CHECK(step->lanes[0].key == 0);
  CHECK(step->lanes[0].period == 10);
}

TEST_CASE("The marked lane is the step's though a data loader's repeats more",
          "[trace][step][lanes]") {
  TraceBuilder t;
  Model model;
  for (int epoch = 0; epoch < 6; ++epoch) {
    for (int i = 0; i < 5; ++i) {
      for (int image = 0; image < 4; ++image) t.free(t.allocate(60000, 5));
      model.step(t);
    }
    for (int image = 0; image < 4; ++image) t.free(t.allocate(60000, 5));
    const auto last_batch = t.allocate(100 + epoch);  // smaller, so an epoch ends otherwise
    t.free(last_batch);
    t.mark();
  }
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  REQUIRE(step->lanes.size() == 2);
  CHECK(step->lanes[step->primary].key == 0);
  CHECK(step->lanes[step->primary].period == 10);
}

TEST_CASE("Where marks do not help the lane of most bytes is cut and not what repeats between them",
          "[trace][step][lanes]") {
  TraceBuilder t;
  Model model;
  std::mt19937_64 random(3);
  for (int i = 0; i < 12; ++i) {
    model.step(t, false);
    t.free(t.allocate(500, 5));  // a data loader's
    const std::uint64_t marked = random() % 3;
    for (std::uint64_t k = 0; k < 3; ++k) {
      if (k == marked) t.mark();
      t.free(t.allocate(400 + k));
    }
  }
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  CHECK(step->lanes[step->primary].key == 0);
  CHECK(step->lanes[step->primary].period == 13);
}

TEST_CASE("Lanes that repeat together are cut together", "[trace][step][lanes]") {
  const bool marks = GENERATE(true, false);
  TraceBuilder t;
  for (int i = 0; i < 5; ++i) {
    const auto a = t.allocate(1000, 0);
    const auto b = t.allocate(20, 3);
    const auto c = t.allocate(3000, 0);
    t.free(a);
    const auto d = t.allocate(40, 3);
    t.free(b);
    t.free(c);
    t.free(d);
    if (marks) t.mark();
  }
  const auto step = extract_step(t.trace());
  REQUIRE(step);
  REQUIRE(step->lanes.size() == 2);
  CHECK(step->lanes[0].period == 2);
  CHECK(step->lanes[1].key == 3);
  CHECK(step->lanes[1].period == 2);
  // Ticks of a lane count its own requests only.
  CHECK(request_of(*step, 0, 0).length == 2);
  CHECK(request_of(*step, 0, 1).length == 2);
  CHECK(step->lanes[0].marks.size() == (marks ? 1 : 0));
  CHECK(step->lanes[1].marks.empty());
  std::vector<std::uint32_t> order;
  for (const StepRequest& r : step->requests) order.push_back(r.lane);
  CHECK(order == std::vector<std::uint32_t>{0, 1, 0, 1});
}

TEST_CASE("A recorded VGG-16 gives its step with marks and without", "[trace][step]") {
  Trace t = read_trace(BERTH_TEST_DATA "/vgg16.csv.gz");
  const bool marks = GENERATE(true, false);
  if (!marks) erase_marks(t);
  const auto step = extract_step(t);
  REQUIRE(step);
  CHECK(step->requests.size() == 143);
  CHECK(step->repeats == 3);
  CHECK(step->residents.size() == 34);
  for (const StepRequest& r : step->requests) CHECK(r.planned);
}

TEST_CASE("A prefix of a recorded VGG-16 gives its step or none", "[trace][step]") {
  Trace t = read_trace(BERTH_TEST_DATA "/vgg16.csv.gz");
  erase_marks(t);
  bool found = false;
  for (std::size_t size = 10; size < t.entries.size(); size += 10) {
    CAPTURE(size);
    Trace part = t;
    part.entries.resize(size);
    const auto step = extract_step(part);
    if (step) CHECK(step->lanes[0].period == 143);
    CHECK((step || !found));  // once found it stays found
    found = found || step;
  }
  REQUIRE(found);
}
